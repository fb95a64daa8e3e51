"""The picture of docs/methods/maesn.md: where the first 20 episodes of MAESN and of MAML go, and where those after one update go.

    python benchmarks/maesn_picture.py docs/images/maesn.png [--seed 0] [--meta-updates 600]

Trains both as `rulax method maesn` does (one seed, about three minutes of a core), then adapts each to the same three goals.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from rulax.methods.adaptation import adapt
from rulax.methods.experiments.adaptation import AdaptationRun, AdaptationSetup
from rulax.methods.experiments.maesn import ENVIRONMENT, SIZES, latent_setup, maml_setup
from rulax.report.plot import save_figure
from rulax.types import PyTree

GOALS = (30.0, 90.0, 150.0)  # degrees


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--meta-updates", type=int, default=SIZES["full"].total)
    arguments = parser.parse_args()
    sizes = SIZES["full"]._replace(total=arguments.meta_updates)
    paths = {}
    for name, make in (("MAESN", latent_setup), ("MAML", maml_setup)):
        setup = make(sizes)
        run = AdaptationRun(setup, arguments.seed)
        while not run.done():
            run.advance()
        paths[name] = [walked(setup, run.state.meta_params, angle) for angle in GOALS]
    save_figure(arguments.picture, draw(paths))


def walked(setup: AdaptationSetup, meta_params: PyTree, degrees: float) -> np.ndarray:
    """Positions [2, T + 1, 20, 2] of the episodes before and after the update, for the goal at an angle."""
    tasks = setup.test.tasks._replace(sample=lambda key: ENVIRONMENT.task_at(jnp.deg2rad(degrees)))
    made = jax.jit(lambda key: adapt(tasks, setup.test.learner, meta_params, key, 1))(jax.random.key(0))
    seen = made.validation.observation
    position = np.array(seen["observation"] if isinstance(seen, dict) else seen)
    # The last observation is already the start of the next episode: an episode ends where its last step led.
    moved = ENVIRONMENT.stride * np.clip(np.asarray(made.validation.action[:, -1]), -1, 1)
    position[:, -1] = position[:, -2] + moved
    return position


def draw(paths: dict[str, list[np.ndarray]]):
    """One row per method, one column per goal: first episodes in grey, those after the update in colour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.6), layout="constrained")
    axes = figure.subplots(len(paths), len(GOALS), sharex=True, sharey=True)
    for row, (name, columns) in zip(axes, paths.items(), strict=True):
        for axis, position, degrees in zip(row, columns, GOALS, strict=True):
            before, after = position
            axis.plot(*np.moveaxis(before, -1, 0), color="0.65", linewidth=0.8)
            axis.plot(*np.moveaxis(after, -1, 0), color="tab:blue" if name == "MAESN" else "tab:orange", linewidth=0.8)
            angles = np.linspace(0, np.pi, 100)
            axis.plot(np.cos(angles), np.sin(angles), color="black", linewidth=0.5, linestyle=":")
            goal = np.asarray(ENVIRONMENT.task_at(np.deg2rad(degrees)).goal)
            around = np.linspace(0, 2 * np.pi, 60)
            axis.fill(
                goal[0] + ENVIRONMENT.radius * np.cos(around),
                goal[1] + ENVIRONMENT.radius * np.sin(around),
                color="tab:green",
                alpha=0.35,
            )
            met = [np.mean(np.any(np.linalg.norm(each - goal, axis=-1) < ENVIRONMENT.radius, 0)) for each in (before, after)]
            axis.set_title(f"{name}: {met[0]:.0%} of episodes meet it, then {met[1]:.0%}", fontsize=9)
            axis.set_aspect("equal")
    axes[0, 0].set_xlim(-1.6, 1.6)
    axes[0, 0].set_ylim(-0.8, 1.5)
    figure.suptitle(
        "20 episodes before (grey) and after (colour) one update; the goal pays within the green disc only", fontsize=10
    )
    return figure


if __name__ == "__main__":
    main()
