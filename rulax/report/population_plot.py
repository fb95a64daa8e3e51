"""What a population did, as a picture and as charts of a page: all members' scores and hyper-parameters, the best line in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rulax.records.population import Turn, ancestors
from rulax.report.blocks import Block, Curves, Line, Panels
from rulax.report.plot import INK, LINE, MUTED, tidy

BEST, OTHERS = "the best member's line", "all members"
NOTE = (
    "Blue is the line of descent of the member that ended best: its own hyper-parameters, before that those of the member that it "
    "is a copy of, and so on. Its schedule is in schedule.json; `rulax train --schedule FILE` trains other agents with it."
)
MOST_DRAWN = 32  # members


def stairs(turns: Sequence[Turn], values: Sequence[float], last: int) -> tuple[list[int], list[float]]:
    """A value that holds from each turn to the next, and to the last step, as the corners of a line."""
    steps = [turn["step"] for turn in turns] + [max(last, turns[-1]["step"])]
    corners = [(step, value) for begin, end, value in zip(steps, steps[1:], values, strict=False) for step in (begin, end)]
    return [step for step, _ in corners], [value for _, value in corners]


def panels_of(turns: Sequence[Turn], best: int, last: int) -> dict[str, list[tuple[list[int], list[float | None]]]]:
    """By panel, the lines of all members, [x], [y] each, and last that of the best one's ancestors."""
    line, members = ancestors(turns, best), range(min(len(turns[0]["parents"]), MOST_DRAWN))
    found: dict[str, list[tuple[list[int], list[float | None]]]] = {}
    scored = turns[1:]  # the first one only says how the population began
    if scored:
        steps = [turn["step"] for turn in scored]
        # A score belongs to the stretch before the turn, and to whom the member was then.
        before = [line[index] for index in range(len(scored))]
        own = [turn["scores"][who] for turn, who in zip(scored, before, strict=True)]
        found["return since the turn before"] = [(steps, [turn["scores"][each] for turn in scored]) for each in members] + [
            (steps, own)
        ]
    for name in turns[0]["hyperparameters"]:
        every = [[turn["hyperparameters"][name][each] for turn in turns] for each in members]
        own = [turn["hyperparameters"][name][who] for turn, who in zip(turns, line, strict=True)]
        found[name.replace("_", " ")] = [stairs(turns, each, last) for each in (*every, own)]  # type: ignore[misc]
    return found


def is_wide(lines: Sequence[tuple[list[int], list[float | None]]]) -> bool:
    """Whether values differ so much in size that a logarithmic axis shows more."""
    values = [value for _, each in lines for value in each if value is not None]
    return bool(values) and min(values) > 0 and max(values) > 5 * min(values)


def population_block(turns: Sequence[Turn], best: int, last: int) -> list[Block]:
    """The charts of a page."""
    if not turns:
        return []
    charts = []
    for name, lines in panels_of(turns, best, last).items():
        drawn = [Line(OTHERS, *each, style="faint") for each in lines[:-1]]
        # Its own name must be a line, or the legend would have nothing to switch.
        drawn = [Line(BEST, *lines[-1]), Line(OTHERS, *lines[0]), *drawn[1:]]
        wide = is_wide(lines)
        charts.append(Curves(name, "steps", "", drawn, log="y" if wide else "", starts_log=wide))
    return [Panels("What the population found", charts, NOTE)]


def population_figure(turns: Sequence[Turn], best: int, last: int, title: str) -> Any:
    """The same as a matplotlib figure; a dot where the best one's line begins anew as a copy."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display needed

    panels = panels_of(turns, best, last)
    figure = Figure(figsize=(7.2, 0.6 + 1.9 * len(panels)), dpi=140, layout="constrained")
    line = ancestors(turns, best)
    copied = [turn["step"] for turn, before, who in zip(turns[1:], line, line[1:], strict=False) if before != who]
    places = np.ravel(figure.subplots(len(panels), sharex=True))
    for axes, (name, lines) in zip(places, panels.items(), strict=True):
        *others, (steps, values) = lines
        for x, y in others:
            axes.plot(x, np.array(y, float), color=MUTED, alpha=0.35, linewidth=0.8)
        axes.plot(steps, np.array(values, float), color=LINE, linewidth=2)
        # Of the corners at a step the last one is what it went on with.
        at = [max(index for index, step in enumerate(steps) if step == each) for each in copied if each in steps]
        axes.plot([steps[index] for index in at], [values[index] for index in at], "o", color=LINE, markersize=4)
        tidy(axes, f"{title}\n{name}" if axes is places[0] else name, 10)
        if is_wide(lines):
            axes.set_yscale("log")
    words = "environment steps per member   (blue: the best member's line; dots: there it goes on as a copy)"
    places[-1].set_xlabel(words, color=INK)
    return figure
