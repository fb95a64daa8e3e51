"""Shows how training is going, on stderr: a bar on a terminal, plain lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple, Protocol

from rulax.text import count, duration, shown_return

LINE_SECONDS = 10.0  # between plain lines


class Shown(Protocol):
    """What a bar shows: how far, of how much, and a few numbers."""

    @property
    def step(self) -> int: ...

    @property
    def total(self) -> int: ...

    @property
    def counts_steps(self) -> bool:
        """Whether `step` counts something that a reader knows; else it is a share of the time."""

    def facts(self) -> list[str]:
        """The numbers that matter, in the order of their importance."""


class Status(NamedTuple):
    """How far a run has come."""

    step: int
    total: int
    steps_per_second: float  # of all seeds together; 0 while unknown
    mean_return: float | None
    seconds_left: float | None
    counts_steps: bool = True

    def facts(self) -> list[str]:
        """The numbers that matter, in the order of their importance."""
        speed, left = f"{count(self.steps_per_second)} steps/s", f"{duration(self.seconds_left)} left"
        return [f"return {shown_return(self.mean_return)}", speed, left]


class Silent:
    """Shows nothing; also the interface of the other two."""

    def start(self, title: str, status: Shown) -> None: ...

    def rename(self, title: str) -> None:
        """The same bar goes on with something else."""

    def phase(self, text: str) -> None:
        """Say what takes its time, such as compiling."""

    def update(self, status: Shown) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Lines(Silent):
    """One line now and then, for logs and pipes."""

    def __init__(self) -> None:
        self.last = 0.0

    def start(self, title: str, status: Shown) -> None:
        self.message(f"{title}: compiling…")
        self.last = time.monotonic() - LINE_SECONDS + 1  # the first numbers soon, so that a log shows life

    def rename(self, title: str) -> None:
        self.message(f"{title}: compiling…")

    def phase(self, text: str) -> None:
        self.message(f"{text}…")

    def update(self, status: Shown) -> None:
        # The last line always appears, however soon: a log should end at 100 %.
        if time.monotonic() - self.last < LINE_SECONDS and status.step < status.total:
            return
        self.last = time.monotonic()
        percent = 100 * status.step / status.total
        steps = [f"step {status.step:,}"] if status.counts_steps else []
        self.message(" · ".join([f"{percent:5.1f} %", *steps, *status.facts()]))

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar(Silent):
    """A live progress bar."""

    def __init__(self) -> None:
        # Here, because it is slow to import and only a terminal needs it.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("[dim]{task.fields[facts]}"),
        )
        # On stderr, so that stdout holds only results; transient, so that what stays on the screen is the table and not a full bar.
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True, expand=True)
        self.task: Any = None

    def start(self, title: str, status: Shown) -> None:
        self.title = title
        self.bar.start()
        # Without a total the bar pulses: how long compiling takes is not known.
        self.task = self.bar.add_task(f"{title} [dim]compiling…", total=None, facts="")

    def rename(self, title: str) -> None:
        self.title = title
        self.phase("compiling")

    def phase(self, text: str) -> None:
        self.bar.update(self.task, description=f"{self.title} [dim]{text}…")

    def update(self, status: Shown) -> None:
        first, *others = status.facts()
        # The number is the last word of a fact, which may itself have several, such as `validation score 0.8`.
        word, _, value = first.rpartition(" ")
        facts = " · ".join([f"{word} [bold]{value}[/]", *others])
        self.bar.update(self.task, description=self.title, completed=status.step, total=status.total, facts=facts)

    def message(self, text: str) -> None:
        # Through the bar's own console, which prints above the bar instead of into it. No markup: a path may hold brackets.
        self.bar.console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        self.bar.stop()


def make_progress(quiet: bool) -> Silent:
    """The kind that suits where stderr goes."""
    if quiet:
        return Silent()
    # A bar redraws itself by control characters, which would fill a log file.
    return Bar() if sys.stderr.isatty() else Lines()
