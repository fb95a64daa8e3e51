"""What `rulax explain` says: where its page is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rulax.commands.tables import print_places
from rulax.files import read_json
from rulax.records.folder import EXPLANATION, REPORT


class Explanation(NamedTuple):
    """What Python users hold after `rulax.explain(...)`."""

    folder: Path

    @property
    def page(self) -> Path:
        """The interactive page."""
        return self.folder / REPORT

    @property
    def results(self) -> dict[str, Any]:
        """All numbers of the page."""
        return read_json(self.folder / EXPLANATION)


def show(folder: Path, quiet: bool) -> None:
    """Where things are."""
    if quiet:
        print(folder)
    else:
        print_places(("the numbers", folder / EXPLANATION), ("the page", folder / REPORT))
