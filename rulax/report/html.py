"""Each kind of block as a section of HTML. Charts leave an empty place and their data, which the page's script draws."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from rulax.report import blocks as b

DASH = "–"


def section(block: b.Block, number: int, charts: list[dict[str, Any]], own: list[str]) -> str:
    """One block; the data of its charts is added to `charts`, the script of an interactive one to `own`."""
    if isinstance(block, b.Facts):
        return facts(block)
    if isinstance(block, b.Notice):
        return notice(block)
    inner = content(block, charts, own)
    if isinstance(block, b.KeyValues):
        opened = " open" if block.open else ""
        return (
            f'<section id="s{number}"><details{opened}><summary><h2>{escape(block.title)}</h2></summary>{inner}</details></section>'
        )
    said = getattr(block, "note", "")
    note = f'<p class="note">{escape(said)}</p>' if said else ""
    return f'<section id="s{number}" aria-label="{escape(block.title)}"><h2>{escape(block.title)}</h2>{inner}{note}</section>'


def content(block: b.Block, charts: list[dict[str, Any]], own: list[str]) -> str:
    """What stands under the title of a block."""
    match block:
        case b.Text():
            return "".join(f"<p>{escape(paragraph)}</p>" for paragraph in block.paragraphs)
        case b.Panels():
            charts.append({"kind": "panels", "title": block.title, "panels": [chart_data(panel) for panel in block.panels]})
            return place(len(charts) - 1, "panels")
        case b.Table():
            return table(block)
        case b.KeyValues():
            rows = "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{cell(value)}</td></tr>" for name, value in block.pairs)
            return f'<div class="scroll"><table class="pairs"><tbody>{rows}</tbody></table></div>'
        case b.Commands():
            return commands(block)
        case b.Picture():
            return f'<img class="picture" src="{escape(block.source)}" alt="{escape(block.alt)}">'
        case b.Interactive():
            charts.append({"kind": "interactive", "own": len(own), "data": block.data})
            own.append(block.script)
            return f'<div class="interactive" data-chart="{len(charts) - 1}">{block.html}</div>'
        case b.Curves() | b.Intervals() | b.Bars() | b.Heatmap():
            charts.append(chart_data(block))
            return place(len(charts) - 1, charts[-1]["kind"])
    # A kind of block that was forgotten here fails loudly, instead of leaving an empty section.
    raise TypeError(f"a page cannot show a {type(block).__name__}")


def chart_data(block: b.Chart) -> dict[str, Any]:
    """What the script needs: the fields of the block and its kind."""
    return {"kind": type(block).__name__.lower(), **block.__dict__}


def place(index: int, kind: str) -> str:
    """Where the script puts a chart."""
    return f'<div class="chart {kind}" data-chart="{index}"></div>'


def facts(block: b.Facts) -> str:
    """The strip of numbers."""
    cells = ""
    for fact in block.facts:
        aside = f'<dd class="aside">{escape(fact.note)}</dd>' if fact.note else ""
        cells += f"<div><dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}</dd>{aside}</div>"
    return f'<dl class="facts">{cells}</dl>'


def notice(block: b.Notice) -> str:
    """A frame that nobody overlooks."""
    text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in block.paragraphs)
    return f'<aside class="notice {block.kind}" role="note"><strong>{escape(block.title)}</strong>{text}</aside>'


def commands(block: b.Commands) -> str:
    """Lines with a button each."""
    # Captions may be fewer than lines; filled up, so that the strict zip still finds too many of them.
    captions = [*block.captions, *[""] * (len(block.lines) - len(block.captions))]
    items = []
    for line, caption in zip(block.lines, captions, strict=True):
        above = f'<span class="caption">{escape(caption)}</span>' if caption else ""
        button = f'<button type="button" class="quiet copy" aria-label="Copy: {escape(line)}">copy</button>'
        items.append(f'<li>{above}<div class="command"><code>{escape(line)}</code>{button}</div></li>')
    return f'<ul class="commands">{"".join(items)}</ul>'


def table(block: b.Table) -> str:
    """A table whose heads are buttons; numbers stand to the right and sort as numbers."""
    numeric = [is_numeric([row[column] for row in block.rows]) for column in range(len(block.columns))]
    heads = "".join(
        f'<th scope="col" aria-sort="none"{" class=number" if number else ""}><button type="button">{escape(name)}</button></th>'
        for name, number in zip(block.columns, numeric, strict=True)
    )
    rows = []
    for index, row in enumerate(block.rows):
        cells = "".join(
            f'<td{" class=number" if number else ""} data-value="{sort_key(value)}">{cell(value)}</td>'
            for value, number in zip(row, numeric, strict=True)
        )
        rows.append(f"<tr{' class=strong' if index in block.strong else ''}>{cells}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(block.title)}">'
        f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def is_numeric(values: list[b.CellValue]) -> bool:
    """Whether a column holds numbers; what was not measured says nothing."""
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float | b.Estimate) and not isinstance(value, bool) for value in known)


def sort_key(value: b.CellValue) -> str:
    """What a cell sorts by; empty sorts last."""
    if isinstance(value, b.Estimate):
        return sort_key(value.value)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    # With all digits: two numbers that are shown alike must still sort rightly.
    return escape(repr(value) if isinstance(value, float) else str(value))


def cell(value: Any) -> str:
    """One value as a person would write it."""
    if isinstance(value, b.Estimate):
        shown = f"<b>{cell(value.value)}</b>" if value.best else cell(value.value)
        return shown if value.low is None else f'{shown} <span class="range">[{cell(value.low)}, {cell(value.high)}]</span>'
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return DASH
    return escape(number(value) if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value))


def number(value: float) -> str:
    """Four digits or three decimals, with a true minus sign."""
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:
        shown = f"{value:.3g}"
    else:
        shown = f"{value:,.1f}" if size >= 100 else f"{value:.2f}" if size >= 10 else f"{value:.3f}"
    return shown.replace("-", "−")
