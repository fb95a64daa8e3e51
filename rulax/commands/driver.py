"""Drives the long commands: progress, signals, checkpoints, interruption, and the result at the end, the same for all of them.

A command writes a `Job`: what there is to do, what to show of it, how to save it and what it comes to. Its work is a generator
that yields wherever it may be shown, saved or stopped, so that it reads as the plain loop that it is.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from rulax.commands.progress import Silent, Status
from rulax.commands.signals import StopRequest
from rulax.envs.adapters.limit import last_resort
from rulax.errors import Interrupted, TrainingStopped
from rulax.parallel.processes import any_of

Outcome = TypeVar("Outcome", covariant=True)


class Stopped(Exception):
    """The user asked to stop, in a place where only an exception leads out."""


class Job(Protocol[Outcome]):
    """Something that takes long. Its defaults are for a job that holds nothing and writes down every piece once it is done."""

    title: str
    checkpoint_minutes: float = math.inf  # between checkpoints

    def status(self) -> Status:
        """What the progress bar shows now."""

    def work(self, driver: Driver) -> Iterator[None]:
        """Do everything that is left to do. Yields between two pieces, where the job can be shown, saved and stopped."""

    def save(self) -> None:
        """Write what is needed to go on from here."""
        return

    def conclude(self, finished: bool) -> Outcome:
        """Write the results, and return them. Called at the end, after an interruption, and when training cannot go on."""

    def how_to_go_on(self) -> str:
        """What an interrupted user reads: how far it came, and the command that goes on."""

    def close(self) -> None:
        """Release what the job holds."""
        return


class Driver:
    """What a job may ask for while it works."""

    def __init__(self, progress: Silent, stop: StopRequest):
        self.progress, self.stop = progress, stop

    @property
    def stopping(self) -> bool:
        """Whether the user asked to stop."""
        return any_of(self.stop.requested)[0]

    def phase(self, text: str, done: int = 0, of: int = 0) -> None:
        """Say what is being done, such as compiling, and how many parts of it are done; `Stopped` is raised if the user asked to
        stop before it began."""
        self.check()
        self.progress.phase(text, done, of)

    def check(self) -> None:
        """Raise `Stopped` if the user asked to stop."""
        if self.stopping:
            raise Stopped

    def message(self, text: str) -> None:
        """One line that stays."""
        self.progress.message(text)


def drive(job: Job[Outcome], progress: Silent, stop: StopRequest) -> Outcome:
    """Do the work of a job. Every way out saves it: its end, Ctrl-C or SIGTERM (`Interrupted`), and `TrainingStopped`."""
    with last_resort(lambda: rescue(job, progress)):
        return driven(job, progress, stop)


def rescue(job: Job[Any], progress: Silent) -> None:
    """Save a job whose environment hangs and cannot be interrupted; this process ends then."""
    progress.stop()
    # Where the state cannot be saved in the middle of a piece, the last checkpoint stays as it is.
    with contextlib.suppress(Exception):
        job.save()
    job.conclude(False)


def driven(job: Job[Outcome], progress: Silent, stop: StopRequest) -> Outcome:
    """The same, by the one thread that does all of it."""
    # The count of minutes begins now and not at 0: every command that has checkpoints writes one before it comes here.
    finished, working, saved_at = False, False, time.monotonic()
    progress.start(job.title, job.status())
    try:
        try:
            for _ in job.work(Driver(progress, stop)):
                if working:  # before the first piece, which compiles, there is nothing to show
                    progress.update(job.status())
                working = True
                # Asked between two pieces only: there the state is whole, and the checkpoint after the loop can go on from it.
                asked, due = any_of(stop.requested, time.monotonic() - saved_at > 60 * job.checkpoint_minutes)
                if asked:
                    break
                if due:
                    job.save()
                    saved_at = time.monotonic()
            else:
                finished = True
                progress.update(job.status())
        # From inside a piece, such as an evaluation: the state is that of the last whole piece, so it is saved like any other.
        except Stopped:
            pass
        job.save()
        # After the checkpoint: should drawing or the page fail, the work is already safe.
        result = job.conclude(finished)
    except TrainingStopped:
        job.conclude(False)  # what there is; the state is no longer good, so nothing is saved
        raise
    finally:
        # In this order: closing may print or wait, and a live bar would overwrite that.
        progress.stop()
        job.close()
    if not finished:
        # Only now, when the bar is gone and the files are closed: the sentence promises that everything is saved.
        raise Interrupted(job.how_to_go_on(), result)
    return result


class Clock:
    """Time spent on a run, earlier parts of a resumed one included."""

    def __init__(self, seconds: float = 0.0, cpu_seconds: float = 0.0):
        # Moving the beginning back, instead of adding what was spent before, leaves one formula for new and resumed runs.
        self.began, self.cpu_began = time.monotonic() - seconds, time.process_time() - cpu_seconds

    @property
    def seconds(self) -> float:
        """Wall-clock time."""
        return time.monotonic() - self.began

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all threads."""
        return time.process_time() - self.cpu_began


class Pace:
    """How fast a run is, measured from the end of its first piece of work, which includes compiling, without what is left out."""

    def __init__(self) -> None:
        self.start: tuple[float, float] | None = None

    def measure(self, step: float, total: float) -> tuple[float, float | None]:
        """Steps per second (0 while unknown) and seconds left, at a step later than that of the first call."""
        # A job may be shown again before it has moved, and the time left would then divide by a speed of zero.
        if self.start is None or step <= self.start[1]:
            return 0.0, None
        speed = (step - self.start[1]) / max(time.monotonic() - self.start[0], 1e-6)
        return speed, max(0.0, (total - step) / speed)

    def leave_out(self, seconds: float) -> None:
        """So many seconds were spent on something else, such as an evaluation."""
        if self.start is not None:
            self.start = (self.start[0] + seconds, self.start[1])

    def begin(self, step: float) -> None:
        """The first piece of work is done."""
        if self.start is None:
            self.start = (time.monotonic(), step)


def stopped_text(where: str, command: str, page: Any = None) -> str:
    """What an interrupted user reads."""
    seen = f"\nWhat there is so far:\n  {page}" if page else ""
    return f"stopped {where}; everything is saved. To go on:\n  {command}{seen}"
