"""Where a policy succeeds, over the plane of two constants: trained with the default ones (D) beside trained in ranges (R).

    python benchmarks/domain_map.py [--experiment cartpole] [--seed 0] [--quick] [--across length] [--up mass] [--out FILE.png]

Each of both agents is trained as `rulax method domain_randomisation` does with that seed. A third constant is drawn from R and E
alike. The box in the middle is R; E, where no training goes and both constants are outside of R, is the four corners.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from rulax.agents.base import Agent
from rulax.envs.tasks import randomised
from rulax.methods.domain_randomisation import Domain, play
from rulax.methods.experiments.domain_randomisation import EXPERIMENTS, DomainRun
from rulax.report.plot import INK, MUTED

CELLS, EPISODES = 25, 24  # cells along each axis, and episodes in each cell
EPISODE_KEY = 11  # never a seed of training


def trained(experiment: str, suite: Any, seed: int) -> DomainRun:
    """The run of one seed, to its end."""
    (chosen,) = [each for each in EXPERIMENTS if each.name == experiment]
    run = chosen.start(suite, seed)
    assert isinstance(run, DomainRun)
    while not run.done():
        progress = run.advance()
        print(f"\r{progress.fraction:.0%}", end="", flush=True)
    print()
    return run


def frame(domain: Domain, name: str) -> tuple[float, float]:
    """From the lowest to the highest number of a constant in E."""
    (low, _), (_, high) = domain.beyond[name]
    return low, high


def success_map(domain: Domain, agent: Agent, across: str, up: str) -> np.ndarray:
    """Share of successes [CELLS, CELLS], the second axis along `across`."""
    sides = {name: np.linspace(*frame(domain, name), 2 * CELLS + 1)[1::2] for name in (across, up)}
    others = {name: frame(domain, name) for name in domain.beyond if name not in (across, up)}
    number = CELLS * CELLS * EPISODES
    environment = randomised(domain.environment, **others) if others else domain.environment
    draw = environment.sample_task if others else lambda key: environment.default_task()
    tasks = jax.vmap(draw)(jax.random.split(jax.random.key(EPISODE_KEY), number))
    grid = np.meshgrid(sides[across], sides[up])
    for name, values in zip((across, up), grid, strict=True):
        fields = domain.environment.short_names.get(name, (name,))
        tasks = tasks._replace(**dict.fromkeys(fields, jnp.asarray(np.repeat(values.ravel(), EPISODES), jnp.float32)))
    succeeded = jax.jit(lambda agent: play(domain, tasks, agent, jax.random.key(EPISODE_KEY + 1), True))(agent)
    return np.asarray(succeeded).reshape(CELLS, CELLS, EPISODES).mean(-1)


def outline(axes: Any, width: tuple[float, float], height: tuple[float, float], name: str, style: str) -> None:
    """A box with its name in its upper left corner."""
    (left, right), (low, high) = width, height
    axes.plot([left, right, right, left, left], [low, low, high, high, low], color="black", linestyle=style, linewidth=1.6)
    axes.annotate(name, (left, high), (4, -4), textcoords="offset points", va="top", fontweight="bold")


def draw_maps(run: DomainRun, across: str, up: str, title: str) -> Figure:
    """Both agents side by side."""
    domain, figure = run.setup.domain, Figure(figsize=(9.2, 4.4), dpi=130, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    names = {"D": "trained with the default constants", "R": "trained in the inner box"}
    for axes, (version, what) in zip(panels, names.items(), strict=True):
        extent = (*frame(domain, across), *frame(domain, up))
        shares = success_map(domain, run.agents[version], across, up)
        shown = axes.imshow(100 * shares, origin="lower", extent=extent, aspect="auto", cmap="viridis", vmin=0, vmax=100)
        (left, right), (low, high) = domain.ranges[across], domain.ranges[up]
        outline(axes, (left, right), (low, high), "R", "-")
        for side in domain.beyond[across]:
            for level in domain.beyond[up]:
                outline(axes, side, level, "E", ":")
        default = domain.environment.default_task()
        middle = [float(getattr(default, domain.environment.short_names.get(name, (name,))[0])) for name in (across, up)]
        axes.plot(*middle, marker="o", color="black", markersize=5)
        axes.annotate("D", middle, (5, 4), textcoords="offset points", fontweight="bold")
        axes.set_title(f"{what}: {100 * shares.mean():.0f} %", loc="left", color=INK, fontsize=10)
        axes.set_xlabel(across, color=INK)
    panels[0].set_ylabel(up, color=INK)
    bar = figure.colorbar(shown, ax=panels, shrink=0.9)
    bar.set_label("episodes that succeed, %", color=INK)
    bar.outline.set_edgecolor(MUTED)
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=12, fontweight="bold")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="cartpole", choices=[each.name for each in EXPERIMENTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="train as in the quick suite")
    parser.add_argument("--across", default="length")
    parser.add_argument("--up", default="mass")
    parser.add_argument("--out", default="domain_randomisation.png")
    given = parser.parse_args()
    run = trained(given.experiment, "quick" if given.quick else "full", given.seed)
    title = f"{given.experiment}: {given.up} and {given.across}, one agent each"
    draw_maps(run, given.across, given.up, title).savefig(given.out)
    print(given.out)


if __name__ == "__main__":
    main()
