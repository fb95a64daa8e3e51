"""What a page shows, without any HTML: a page is a list of these blocks, and `page.py` alone knows how they look.

Numbers may be NaN or None where nothing was measured; a chart leaves a gap there and a table a dash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Number = float | int | None


@dataclass(frozen=True)
class Estimate:
    """A cell of a table: a value with its interval, in bold where it is the best of its row. It sorts by the value."""

    value: Number
    low: Number = None
    high: Number = None
    best: bool = False


CellValue = str | float | int | None | Estimate


@dataclass(frozen=True)
class Text:
    """Plain paragraphs."""

    title: str
    paragraphs: Sequence[str]


@dataclass(frozen=True)
class Notice:
    """What a reader must not overlook: shown in a frame, with the word for its kind."""

    title: str
    paragraphs: Sequence[str]
    kind: Literal["warning", "note"] = "warning"


@dataclass(frozen=True)
class Fact:
    """One number of the strip at the top of a page."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """The few numbers that sum up the result."""

    facts: Sequence[Fact]


@dataclass(frozen=True)
class Line:
    """One curve. `low` and `high` are its interval, empty where there is none.

    A `reference` is a dashed level to compare with; `published` is a figure of others, one point at the budget it had; `faint`
    lines stand in the background and belong to the line whose name they carry, so that the legend switches both.
    """

    name: str
    x: Sequence[Number]
    mean: Sequence[Number]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    style: Literal["line", "faint", "reference", "published"] = "line"


@dataclass(frozen=True)
class Curves:
    """A chart of lines. With `log` the x or y axis can be switched to a logarithmic one, or back with `starts_log`; `points` marks
    every measurement."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    note: str = ""
    log: Literal["", "x", "y"] = ""
    points: bool = False
    y_range: tuple[Number, Number] = (None, None)  # what the y axis must reach, at least
    starts_log: bool = False


@dataclass(frozen=True)
class IntervalRow:
    """A value with its interval; one that others have `published` has a mark of another kind."""

    name: str
    value: Number
    low: Number = None
    high: Number = None
    note: str = ""
    published: bool = False


@dataclass(frozen=True)
class Intervals:
    """Values with their intervals, one under the other. `reference` is a level to compare with, as zero or one."""

    title: str
    unit: str
    rows: Sequence[IntervalRow]
    note: str = ""
    reference: Number = None


@dataclass(frozen=True)
class Table:
    """A table whose columns sort. `strong` are the indices of rows in bold, as for a mean."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[CellValue]]
    note: str = ""
    strong: Sequence[int] = ()


@dataclass(frozen=True)
class KeyValues:
    """Names and values that are there when one looks for them: collapsed at first."""

    title: str
    pairs: Sequence[tuple[str, CellValue]]
    open: bool = False


@dataclass(frozen=True)
class Commands:
    """Lines for a terminal, each with a button that copies it; `captions` say what each of them does."""

    title: str
    lines: Sequence[str]
    captions: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """An image that is part of the page: `source` is a data URL, `alt` says in words what is seen."""

    title: str
    source: str
    alt: str
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """One bar for each name."""

    title: str
    unit: str
    names: Sequence[str]
    values: Sequence[Number]
    note: str = ""


@dataclass(frozen=True)
class Heatmap:
    """A matrix of values [y, x] as colours with the numbers written in. `centre` makes the colours diverge from there."""

    title: str
    x_labels: Sequence[str]
    y_labels: Sequence[str]
    values: Sequence[Sequence[Number]]
    note: str = ""
    centre: Number = None
    limits: tuple[Number, Number] = (None, None)


Chart = Curves | Intervals | Bars | Heatmap


@dataclass(frozen=True)
class Panels:
    """Small charts side by side. Curves share one legend: switching a name off does so in all panels."""

    title: str
    panels: Sequence[Chart]
    note: str = ""


@dataclass(frozen=True)
class Interactive:
    """A part with a small script of its own. `html` and `script` are code of this package, never text of a user.

    The script is the body of a function of `root` (the element that holds `html`), `data` (any JSON) and `charts`, whose
    `charts.curves(element, spec)`, `.intervals`, `.bars` and `.heatmap` draw what the blocks of the same name draw, from an object
    with the same fields, and give a handle whose `update(spec)` draws anew.
    """

    title: str
    html: str
    script: str
    data: Any = None
    note: str = ""


Block = Text | Notice | Facts | Picture | Chart | Panels | Table | KeyValues | Commands | Interactive
