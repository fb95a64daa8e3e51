"""What `rulax explain` says: how far it is, and where its page is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rulax.commands.driver import print_places
from rulax.records.folder import EXPLANATION, REPORT
from rulax.text import duration

SHARE = 100  # how far it is, in per cent


class ExplainStatus(NamedTuple):
    """How far an explanation has come, in per cent of its estimated time."""

    step: int
    phase: str
    said: str
    seconds_left: float | None
    total: int = SHARE
    counts_steps: bool = False

    def facts(self) -> list[str]:
        """The phase, what it reports, and how long the rest will take."""
        return [self.phase, *([self.said] if self.said else []), f"{duration(self.seconds_left)} left"]


def show(folder: Path, quiet: bool) -> None:
    """Where things are."""
    if quiet:
        print(folder)
    else:
        print_places(("the numbers", folder / EXPLANATION), ("the page", folder / REPORT))
