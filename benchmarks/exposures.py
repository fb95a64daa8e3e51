"""A picture of the barcode bandit: what an episode earns by how often its bandit was met before, from the records of the method.

    python benchmarks/exposures.py benchmarks/records docs/images/episodic_lstm.png

Reads `episodic_lstm.barcode.json` and, if it is there, `episodic_lstm.barcode-lstm.json`. The exact references are computed.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from rulax.commands.method.record import Seed, read_experiment, seeds_of
from rulax.evaluation.references import one_good_arm
from rulax.methods.experiments.episodic_lstm import CLOSED, EXPOSURE, FULL, SECOND, THIRD
from rulax.report.plot import INK, LINE, MUTED, save_figure, tidy

GREEN, AMBER = "#2a7f62", "#d97706"


def of_seed(seed: Seed, name: str) -> np.ndarray:
    """The numbers [repeats] that details of a seed call `name` 1, `name` 2, ..."""
    return np.array([seed.details[f"{name} {number}"] for number in range(1, FULL.sizes.repeats + 1)], np.float64)


def figure_of(table: list[Seed], plain: list[Seed]) -> Any:
    """Every seed of the episodic LSTM and of the LSTM without a table as a line, beside the exact references."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display needed

    sizes = FULL.sizes
    met = np.arange(1, sizes.repeats + 1)
    figure = Figure(figsize=(7.2, 4.4), dpi=140, layout="constrained")
    axes = figure.subplots()
    perfect = one_good_arm.greedy_by_exposure(sizes.arms, sizes.pulls, sizes.repeats)
    alone = np.full(sizes.repeats, one_good_arm.optimum(sizes.arms, sizes.pulls))
    axes.plot(met, perfect, "--", color=INK, linewidth=1.2, label="memory of all pulls (exact)")
    axes.plot(met, alone, ":", color=INK, linewidth=1.2, label="no memory of earlier episodes (exact)")
    lines = [(table, EXPOSURE, LINE, "episodic LSTM"), (table, f"{CLOSED}, {EXPOSURE}", AMBER, "the same agents, gate closed")]
    for seeds, name, colour, label in [*lines, (plain, EXPOSURE, GREEN, "trained without a table")]:
        for place, seed in enumerate(seeds):
            count = f"{label}, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
            axes.plot(met, of_seed(seed, name), "o-", color=colour, markersize=3, linewidth=1.4, label=None if place else count)
    # The upper one is for the mean of all that follow.
    axes.hlines([SECOND, THIRD], [1.8, 3], [2.2, sizes.repeats], color=MUTED, linewidth=1, label="goals")
    tidy(axes, "Barcode bandit: reward of an episode of ten pulls", 11)
    axes.set_xticks(met)
    axes.set_xlabel("how often the bandit has been met", color=INK)
    axes.set_ylabel("expected reward", color=INK)
    axes.set_ylim(0, 10)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right", ncols=2)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    table, plain = (
        seeds_of(read_experiment(arguments.folder / f"episodic_lstm.{name}.json")) for name in ("barcode", "barcode-lstm")
    )
    if not table:
        parser.error(f"there is no record episodic_lstm.barcode.json in {arguments.folder}; `rulax method episodic_lstm` makes one")
    save_figure(arguments.picture, figure_of(table, plain))
    print(f"{len(table)} and {len(plain)} seeds in {arguments.picture}")


if __name__ == "__main__":
    main()
