"""Draws a discovery: the scores of its rule on fresh agents, and under them what these agents earned, one panel per family."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rulax.own import shown
from rulax.records.rows import Row
from rulax.report.plot import INK, LINE, MUTED, tidy


class Families(Protocol):
    """What a picture has to know of a configuration: the families trained in, and those only evaluated in."""

    @property
    def suite(self) -> str | None: ...

    @property
    def seed(self) -> int: ...

    @property
    def envs(self) -> tuple[str, ...]: ...

    @property
    def validation(self) -> tuple[str, ...]: ...


HELD_OUT = "#d97706"
COLUMNS = 4  # panels side by side


def discovery_figure(config: Families, rows: list[Row], baselines: dict[str, dict[str, float]]) -> Any:
    """One figure for a whole run."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display needed

    names = [*config.envs, *config.validation]
    columns = min(COLUMNS, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(max(7.2, 2.6 * columns), 3.6 + 2.2 * lines), dpi=140, layout="constrained")
    grid = figure.add_gridspec(1 + lines, columns, height_ratios=[1.6, *([1.0] * lines)])
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    meta = [row for row in rows if row["kind"] == "meta"]
    draw_scores(figure.add_subplot(grid[0, :]), config, evaluations)
    for index, name in enumerate(names):
        axes = figure.add_subplot(grid[1 + index // columns, index % columns])
        colour = LINE if name in config.envs else HELD_OUT
        draw_family(axes, name, colour, (evaluations, meta), baselines.get(name))
    figure.supxlabel("meta-steps", color=INK, fontsize=10)
    return figure


def draw_scores(axes: Any, config: Families, rows: list[Row]) -> None:
    """Mean scores of both kinds of families, and each family faintly."""
    roles = [("training", config.envs, LINE)] + ([("validation", config.validation, HELD_OUT)] if config.validation else [])
    steps = [row["step"] for row in rows]
    for level, name in ((0.0, "untrained"), (1.0, "actor-critic")):
        axes.axhline(level, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(name, (1.0, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=MUTED, fontsize=8)
    for role, names, colour in roles:
        for name in names if len(names) > 1 else ():
            axes.plot(steps, [row[f"score/{name}"] for row in rows], color=colour, alpha=0.25, linewidth=0.9)
        means = [row[f"{role}_score"] for row in rows]
        label = f"{role}, mean of {len(names)}" if len(names) > 1 else role
        axes.plot(steps, means, color=colour, linewidth=2.2, marker="o", markersize=3.5, label=label)
    if rows:
        key = "validation_score" if config.validation else "training_score"
        best = max(rows, key=lambda row: row[key])
        axes.plot(best["step"], best[key], marker="o", markersize=9, markerfacecolor="none", color=INK, label="the best rule")
        axes.legend(frameon=False, loc="best", labelcolor=MUTED, fontsize=9)
    tidy(axes, f"discover {shown(config.suite or '')} · seed {config.seed}", 12)
    axes.set_ylabel("score of fresh agents", color=INK)


def draw_family(axes: Any, name: str, colour: str, rows: tuple[list[Row], list[Row]], baselines: dict[str, float] | None) -> None:
    """What fresh agents earn at the end of an evaluation, and, faintly, what the population earns meanwhile."""
    evaluations, meta = rows
    lived = [(row["step"], row[f"return/{name}"]) for row in meta if row.get(f"return/{name}") is not None]
    if lived:
        axes.plot(*np.array(lived, float).T, color=colour, alpha=0.3, linewidth=0.8)
    found = [(row["step"], row[f"evaluation_return/{name}"]) for row in evaluations]
    found = [point for point in found if point[1] is not None]
    if found:
        axes.plot(*np.array(found, float).T, color=colour, linewidth=1.8, marker="o", markersize=2.5)
    for level in (baselines or {}).values():
        axes.axhline(level, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
    tidy(axes, shown(name), 8.5)
