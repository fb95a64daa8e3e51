"""What an evaluation prints: a table, or all numbers as JSON."""

from __future__ import annotations

import json

from rulax.evaluation.scores import COLUMNS, Evaluation
from rulax.evaluation.skill_words import SKILL_COLUMNS


def show(evaluation: Evaluation, as_json: bool) -> None:
    """Print the result on stdout."""
    if as_json:
        print(json.dumps(evaluation.as_dict(), allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"\n[bold]{evaluation.title}[/]  return in evaluation\n")
    tables = [(COLUMNS, evaluation.rows()), *([(SKILL_COLUMNS, evaluation.skill_rows())] if evaluation.skills else [])]
    for columns, rows in tables:
        # One space and not two between columns: with two, intervals of negative numbers are broken in a terminal of 80 columns.
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for number, name in enumerate(columns):
            table.add_column(name, justify="left" if number < 2 else "right")
        for row in rows:
            table.add_row(*row, style="bold" if row[0] == "mean" else None)
        console.print(table)
        console.print()
    for note in evaluation.notes():
        console.print(note, style="yellow" if note.startswith("warning") else "dim", markup=False)
