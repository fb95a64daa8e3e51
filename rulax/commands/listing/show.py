"""What there is, on the terminal or as CSV: names with one line each, and tables."""

from __future__ import annotations

import csv
import importlib
import io
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rulax.commands.listing.setup import COLUMNS, INSTALLABLE, ListedRun
from rulax.commands.train.settings import DEFAULT_RULE
from rulax.errors import UserError, suggestion
from rulax.files import write_atomically
from rulax.own import shown
from rulax.text import count, duration, shown_return

if TYPE_CHECKING:
    from rulax.envs.catalogue import AdapterFamily


CUT, MOST_LETTERS = ("env", "rule"), 24  # columns whose long texts are cut: comparisons have many of both
LEAST_FIRST = (
    "broken_lines",
    "score",
    "seconds",
    "seeds",
    "kind",
    "steps",
    "env",
    "rule",
    "final_return",
)  # what is left out first


def show_names(command: str, kind: str, entries: list[tuple[str, str]], wanted: str, others: bool = False) -> bool:
    """Names and summaries in two columns; whether there were any. None is a mistake, unless there are `others` to be shown."""
    chosen = [entry for entry in entries if wanted.lower() in " ".join(entry).lower()]
    if not chosen and others:
        return False
    if not chosen:
        # `rulax rules gte NAME` arrives here as a filter.
        known = [name for name, _ in entries] + (["get"] if command == "rules" else [])
        raise UserError(f"no {kind} contains '{wanted}'{suggestion(wanted, known, f'`rulax {command}` lists all')}")
    width = max(len(name) for name, _ in chosen)
    room = max(30, shutil.get_terminal_size().columns - width - 3)
    for name, summary in chosen:
        cut = summary if len(summary) <= room or not sys.stdout.isatty() else summary[: room - 1] + "…"
        print(f"{bold(f'{name:<{width}}')}   {cut}")
    return True


def bold(text: str) -> str:
    """In bold on a terminal."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


def show_families(families: list[AdapterFamily]) -> None:
    """A table of the environments of other libraries; on a terminal what is too long goes on below, elsewhere each is one line."""
    if not families:
        return
    rows = [("name", "extra", "installed", "what it is"), *map(described, families)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    left = sum(widths) + 3 * len(widths)
    room = max(30, shutil.get_terminal_size().columns - left) if sys.stdout.isatty() else 10_000
    for row in rows:
        first, *others = textwrap.wrap(row[3], room, break_on_hyphens=False, break_long_words=False)
        columns = [f"{text:<{width}}" for text, width in zip(row, widths, strict=False)]
        print("   ".join([bold(columns[0]), *columns[1:], first]))
        for line in others:
            print(" " * left + line)


def described(family: AdapterFamily) -> tuple[str, str, str, str]:
    """A family's row: its name, the extra that it needs, whether its package is there, what it is with an example."""
    example = f"{family.prefix}/{family.examples[0]}"
    return f"{family.prefix}/ID", family.extra, "yes" if family.installed else "no", f"{family.summary}; for example {example}"


def show_ids(family: AdapterFamily) -> None:
    """Every ID of one family, where its package is there and keeps a list."""
    if not family.installed:
        return
    # Imported only when one family is asked for, since it imports that family's package.
    ids = importlib.import_module(f"rulax.envs.adapters.{family.prefix}").ids()
    if ids:
        print()
        print(textwrap.fill(" ".join(ids), shutil.get_terminal_size().columns, break_on_hyphens=False, break_long_words=False))


def mark(name: str) -> str:
    """What the list adds to a rule's line."""
    from rulax.rules.registry import is_installed

    if name in INSTALLABLE:
        return " [installed]" if is_installed(name) else f" [not installed: rulax rules get {name}]"
    return " [default]" if name == DEFAULT_RULE else ""


def show_runs(entries: list[ListedRun]) -> None:
    """A table of the columns that say something, as many as the terminal is wide enough for; names of folders are never cut."""
    if not entries:
        print("no run matches")
        return
    formats: dict[str, Callable[[Any], str]] = {"seconds": duration, "steps": count, "final_return": shown_return}
    formats |= {
        "env": own_names,
        "rule": own_names,
        "score": "{:.3g}".format,
        "finished": lambda value: "yes" if value else "unfinished",
    }
    columns = [name for name in COLUMNS if name == "finished" or any(entry[name] not in (None, 0) for entry in entries)]
    texts = {
        name: [name.replace("_", " "), *("-" if each[name] is None else formats.get(name, str)(each[name]) for each in entries)]
        for name in columns
    }
    for name in CUT:
        if name in columns:
            texts[name] = [text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…" for text in texts[name]]
    room, widths = shutil.get_terminal_size().columns, {name: max(map(len, texts[name])) for name in columns}
    left_out: list[str] = []
    for name in LEAST_FIRST:
        if name in columns and sum(widths[each] + 2 for each in columns) - 2 > room:
            columns.remove(name)
            left_out.append(name)
    right = ("seconds", "steps", "final_return", "score", "finished", "seeds", "broken_lines")
    for number in range(1 + len(entries)):
        cells = [f"{texts[name][number]:{'>' if name in right else '<'}{widths[name]}}" for name in columns]
        line = "  ".join(cells).rstrip()
        print(bold(line) if number == 0 else line)
    if left_out:
        print(f"note: {', '.join(left_out)}: in a wider terminal, or in a file by --csv FILE")


def own_names(names: Any) -> str:
    """Environments or rules, of a comparison several, each as its own page calls it."""
    return " ".join(map(shown, str(names).split(" ")))


def write_csv(path: Path, entries: list[ListedRun]) -> None:
    """All columns, one line per run."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, "budget", "command"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(entries)
    try:
        write_atomically(path, text.getvalue())
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
