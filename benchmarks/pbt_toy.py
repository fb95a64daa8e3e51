"""The picture of docs/methods/pbt.md: what two workers of the toy problem do, with the whole method and without its parts.

python benchmarks/pbt_toy.py docs/images/pbt_toy.png
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

from rulax.methods.experiments.pbt_toy import BEGIN, TOP, WAYS, ToySetup, live
from rulax.report.plot import INK, MUTED, save_figure

SEED = 0  # of the one population that is drawn
COLOURS = ("#2563eb", "#d9480f")


def figure() -> Figure:
    """One row for the weights over the contours of Q, one for Q over the steps."""
    setup = ToySetup()
    made = Figure(figsize=(10.5, 5.2), dpi=140, layout="constrained")
    panels = made.subplots(2, len(WAYS), height_ratios=(3, 2))
    line = np.linspace(-0.1, 1.05, 100)
    contours = TOP - (line[None] ** 2 + line[:, None] ** 2)
    for (above, below), (way, pbt) in zip(panels.T, WAYS.items(), strict=True):
        path = jax.tree.map(np.asarray, jax.jit(functools.partial(live, setup, pbt))(jax.random.key(SEED)))
        above.contour(line, line, contours, levels=np.arange(-0.6, 1.21, 0.2), colors=MUTED, linewidths=0.5, alpha=0.6)
        for worker, colour in enumerate(COLOURS):
            above.plot(*path.weights[:, worker].T, ".", color=colour, markersize=2.5)
            below.plot(path.value[:, worker], color=colour, linewidth=1.4)
        above.plot(0, 0, "*", color=INK, markersize=9)
        above.plot(BEGIN, BEGIN, "o", color=INK, markersize=4)
        above.set_title(f"{way}: {path.value[-1].max():.3f}", fontsize=10, color=INK, fontweight="bold")
        above.set(aspect="equal", xlim=(-0.1, 1.05), ylim=(-0.1, 1.05), xlabel="weight 1")
        below.set(ylim=(-0.5, 1.25), xlabel="step")
        below.axhline(TOP, color=MUTED, linewidth=0.8, linestyle="--")
        for axes in (above, below):
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(colors=MUTED, labelsize=8)
    panels[0, 0].set_ylabel("weight 2")
    panels[1, 0].set_ylabel("Q of each worker")
    return made


if __name__ == "__main__":
    save_figure(Path(sys.argv[1]), figure())
