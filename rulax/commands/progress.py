"""Shows how training is going, on stderr: a bar on a terminal, plain lines elsewhere, nothing when asked to be quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from rulax.text import duration

LINE_SECONDS = 10.0  # between plain lines


class Status(NamedTuple):
    """How far a job has come."""

    step: int
    total: int  # at least 1
    facts: Sequence[str]  # the numbers that matter, in the order of their importance
    seconds_left: float | None  # None while unknown
    counts_steps: bool = True  # whether `step` counts something that a reader knows; else it is a share of the time

    def words(self) -> list[str]:
        """What stands beside the bar; no estimate of the time that is left where there is none worth showing."""
        # At the end nothing is left, whatever was estimated before the last piece.
        left = None if self.step >= self.total else self.seconds_left
        return [*self.facts, *([] if left is None else [f"{duration(left)} left"])]


class PhaseClock:
    """How long a phase has lasted, from when its text was first shown."""

    def __init__(self) -> None:
        self.text, self.began = "", 0.0

    def seconds(self, text: str) -> float:
        """Of the phase with this text, which begins now if it is another one than before."""
        if text != self.text:
            self.text, self.began = text, time.monotonic()
        return time.monotonic() - self.began


class Silent:
    """Shows nothing; also the interface of the other two."""

    def start(self, title: str, status: Status) -> None: ...

    def rename(self, title: str) -> None:
        """The same bar goes on with something else."""

    def phase(self, text: str, done: int = 0, of: int = 0) -> None:
        """Say what takes its time, such as compiling; called again when one more of its parts is done, if there are several."""

    def update(self, status: Status) -> None: ...

    def message(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Lines(Silent):
    """One line now and then, for logs and pipes."""

    def __init__(self) -> None:
        self.last, self.ended = 0.0, False
        self.clock = PhaseClock()

    def start(self, title: str, status: Status) -> None:
        self.message(f"{title}: compiling…")
        self.last = time.monotonic() - LINE_SECONDS + 1  # the first numbers soon, so that a log shows life

    def rename(self, title: str) -> None:
        self.message(f"{title}: compiling…")
        self.ended = False

    def phase(self, text: str, done: int = 0, of: int = 0) -> None:
        seconds = self.clock.seconds(text)
        if not done:
            self.message(f"{text}…")
        elif time.monotonic() - self.last >= LINE_SECONDS:
            self.message(f"{text}, {done} of {of} done after {duration(seconds)}")
        else:
            return
        self.last = time.monotonic()

    def update(self, status: Status) -> None:
        # The last line always appears, however soon: a log should end at 100 %.
        ends = status.step >= status.total
        # The whole may report its end after its last part has.
        if (ends and self.ended) or (not ends and time.monotonic() - self.last < LINE_SECONDS):
            return
        self.last, self.ended = time.monotonic(), ends
        percent = 100 * status.step / status.total
        steps = [f"step {status.step:,}"] if status.counts_steps else []
        self.message(" · ".join([f"{percent:5.1f} %", *steps, *status.words()]))

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar(Silent):
    """A live progress bar."""

    def __init__(self) -> None:
        # Here, because it is slow to import and only a terminal needs it.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskProgressColumn, TextColumn
        from rich.text import Text

        clock = self.clock = PhaseClock()

        class PhaseColumn(ProgressColumn):
            """For how long the present phase has lasted; it goes on by itself while the program is busy."""

            def render(self, task: Task) -> Text:
                return Text(duration(clock.seconds(clock.text)) if clock.text else "", style="dim")

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            PhaseColumn(),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("[dim]{task.fields[facts]}"),
        )
        # On stderr, so that stdout holds only results; transient, so that what stays on the screen is the table and not a full bar.
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True, expand=True)
        self.task: Any = None

    def start(self, title: str, status: Status) -> None:
        self.title = title
        self.bar.start()
        # Without a total the bar pulses: how long compiling takes is not known.
        self.task = self.bar.add_task("", total=None, facts="")
        self.phase("compiling")

    def rename(self, title: str) -> None:
        self.title = title
        self.phase("compiling")

    def phase(self, text: str, done: int = 0, of: int = 0) -> None:
        self.clock.seconds(text)  # starts it
        parts = f", {done} of {of} done" if of > 1 else ""
        self.bar.update(self.task, description=f"{self.title} [dim]{text}{parts}…")

    def update(self, status: Status) -> None:
        self.clock.text = ""
        first, *others = status.words() or [""]  # many trainings in one say nothing of their own
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
