"""What a notebook shows of a run or a comparison: a small table and its curves, in one piece of HTML that loads nothing."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from rulax.report.blocks import CellValue
from rulax.report.compare import Found, estimate
from rulax.report.html import cell
from rulax.report.plot import INK, MUTED, tidy
from rulax.text import count, duration, plural

COLOURS = ("#0b62a8", "#d9560b", "#2e9e5b", "#a0306c", "#a97900", "#3f97d3", "#7d5a44", "#5f6b77")  # those of the pages
COLUMNS = 3  # panels side by side


def run_html(title: str, steps: int, seconds: float, final_returns: Sequence[float | None], figure: Any) -> str:
    """A run: the return that each seed ended with, and the curve.

    Args:
        title: what the run is called.
        steps: environment steps per seed.
        seconds: how long it took.
        final_returns: per seed, [K]; None where no episode ended.
        figure: the learning curve, a matplotlib figure.
    """
    rows = [[str(seed), value] for seed, value in enumerate(final_returns)]
    note = f"{count(steps)} steps, {duration(seconds)}; returns are means over the last tenth, while training"
    return piece(title, note, ["seed", "final return"], rows, figure)


def comparison_html(found: Found) -> str:
    """A comparison: returns with intervals per environment and rule, and the curves.

    Args:
        found: the content of compare.json.
    """
    rules = [rule["name"] for rule in found["rules"]]
    rows: list[list[CellValue]] = []
    for env in found["environments"]:
        values = found["statistics"]["environments"].get(env["name"])
        if not env["complete"] or values is None:
            rows.append([env["name"], *["unfinished"] * len(rules), env["random"]])
            continue
        best = max(values[rule]["value"] for rule in rules)
        rows.append([env["name"], *(estimate(values[rule], values[rule]["value"] == best) for rule in rules), env["random"]])
    note = (
        f"{plural(found['seeds'], 'seed')}, {count(found['steps'])} steps each; final return of training episodes, "
        "interquartile mean over seeds with its 95 % interval"
    )
    return piece(" · ".join(rules), note, ["environment", *rules, "untrained"], rows, comparison_figure(found))


def piece(title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[CellValue]], figure: Any) -> str:
    """Title, table and picture. Every word is escaped: names are a user's own."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return (
        f"<div><p><b>{escape(title)}</b><br><small>{escape(note)}</small></p>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        f'<img alt="learning curves: {escape(title)}" style="max-width:100%" src="data:image/png;base64,{png(figure)}"></div>'
    )


def png(figure: Any) -> str:
    """A figure in base64, at a resolution that keeps notebooks small."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def comparison_figure(found: Found) -> Any:
    """One panel per environment, one line with its interval per rule."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display needed

    envs, rules = found["environments"], [rule["name"] for rule in found["rules"]]
    columns = max(1, min(COLUMNS, len(envs)))
    lines = max(1, -(-len(envs) // columns))
    figure = Figure(figsize=(max(4.8, 3.4 * columns), 2.8 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in panels[len(envs) :]:
        axes.set_visible(False)
    for env, axes in zip(envs, panels, strict=False):
        tidy(axes, env["name"], 10)
        for each in found["cells"]:
            if each["env"] == env["name"]:
                draw_cell(axes, each, COLOURS[rules.index(each["rule"]) % len(COLOURS)])
        if env["random"] is not None:
            axes.axhline(env["random"], color=MUTED, linestyle="--", linewidth=1)
    panels[0].legend(frameon=False, fontsize=8, labelcolor=MUTED)
    figure.supxlabel("environment steps per seed; dashed: untrained", color=INK, fontsize=9)
    return figure


def draw_cell(axes: Any, found: Found, colour: str) -> None:
    """The mean of a cell's seeds, and its interval where there is one."""
    curve = {name: np.array(values, dtype=object).astype(float) for name, values in found["curve"].items()}
    # Of one seed there is no interval, and its lists may be empty.
    if len(curve["low"]) == len(curve["steps"]):
        axes.fill_between(curve["steps"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0)
    axes.plot(curve["steps"], curve["mean"], color=colour, linewidth=1.8, label=found["rule"])
