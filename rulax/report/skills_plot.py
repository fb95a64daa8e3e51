"""A picture of where each skill of an agent goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rulax.report.plot import INK, MUTED

SHOWN = 12  # episodes of each skill that are drawn; more would hide each other
NAMED = 12  # skills up to which a legend helps


def skills_figure(places: np.ndarray, skill: np.ndarray, axes_names: tuple[str, str], title: str = "Where each skill goes") -> Any:
    """Episodes as lines in the plane, a colour for each skill, with a dot where each ends.

    Args:
        places: [T, N, 2], NaN after the end of an episode.
        skill: [N] which skill each of the N episodes followed.
        axes_names: what the two dimensions are.
        title: above the picture.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 5.2), dpi=140, layout="constrained")
    axes = figure.subplots()
    number = int(skill.max()) + 1 if len(skill) else 0
    for each in range(number):
        colour = colormaps["tab10"](each % 10) if number <= 10 else colormaps["hsv"](each / number)
        for count, episode in enumerate(np.flatnonzero(skill == each)[:SHOWN]):
            path = places[:, episode][np.isfinite(places[:, episode]).all(-1)]
            axes.plot(*path.T, color=colour, linewidth=0.7, alpha=0.5)
            axes.plot(*path[-1:].T, "o", color=colour, markersize=4, label=f"skill {each}" if count == 0 else None)
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.set_xlabel(axes_names[0], color=INK)
    axes.set_ylabel(axes_names[1], color=INK)
    axes.tick_params(colors=MUTED, labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    if 0 < number <= NAMED:
        figure.legend(loc="outside lower center", ncols=6, frameon=False, labelcolor=MUTED, fontsize=8)
    return figure
