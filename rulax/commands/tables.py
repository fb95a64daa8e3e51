"""What commands print when they are done, and what Python users hold of those whose result is a set of tables."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rulax.files import load_json
from rulax.files.reading import blamed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class Tables:
    """Results of many trainings in one folder, finished or not; subclasses name the file they are in, and print them."""

    file: ClassVar[str]

    def __init__(self, folder: Path, results: dict[str, Any]):
        self.folder, self.results = folder, results

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """From its folder."""
        return cls(Path(folder), load_json(Path(folder) / cls.file))

    @property
    def finished(self) -> bool:
        """Whether everything was trained to its end."""
        return self.results["finished"]

    @property
    def table(self) -> str:
        """The tables as text."""
        with blamed(self.folder / self.file):
            return as_text(self.print_tables)

    def print_tables(self, console: Any) -> None:
        """Write the tables to a console."""
        raise NotImplementedError

    def show(self, quiet: bool, *places: tuple[str, Any]) -> None:
        """Print the tables and `places` on stdout; quietly, only the folder, for scripts."""
        if quiet:
            print(self.folder)
            return
        from rich.console import Console  # here, because it is slow to import

        self.print_tables(Console(highlight=False))
        print_places(("folder", self.folder), ("all numbers", self.folder / self.file), *places)


def print_places(*places: tuple[str, Any]) -> None:
    """Where things are, one line each; what a user should open comes last."""
    for name, what in places:
        print(f"{name:<12} {what}")


def make_table(first: str, others: Sequence[str]) -> Table:
    """A table for the terminal: names to the left, numbers to the right. Brackets in a name are read as style."""
    from rich.table import Table  # here, because it is slow to import

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def as_text(print_to: Callable[[Console], None]) -> str:
    """What a function prints to a console, as text. Its width is fixed: text cannot know the terminal that will show it."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=110, highlight=False)
    print_to(console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def number(value: float) -> str:
    """About three digits, and as many for equal sizes, so that columns line up."""
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def escaped(text: str) -> str:
    """A name may hold brackets, which rich would read as style."""
    return text.replace("[", "\\[")
