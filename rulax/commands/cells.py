"""Cells, which comparisons and sweeps are made of: one rule in one environment, all seeds at once, in a run folder of its own.

A cell is trained by the machinery of `rulax train`; here is only what makes many of them one thing: where they are, whether they
are finished, what they cost, and one view of their progress. Which cells there are is the command's own affair.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypedDict

from rulax.commands.driver import Clock
from rulax.commands.fields import changeable
from rulax.commands.progress import Silent, Status
from rulax.commands.settings import HostLoop
from rulax.commands.signals import StopRequest
from rulax.commands.train import run as train
from rulax.commands.train.result import Run, load
from rulax.commands.train.settings import TrainConfig
from rulax.commands.train.setup import Prepared, prepare
from rulax.envs.base import EnvironmentFailed
from rulax.errors import TrainingStopped, UserError
from rulax.files import read_json, write_json
from rulax.learning.train import COMPILE_FAST, CompiledTrainer
from rulax.records import folder as folders
from rulax.records import stages
from rulax.rules.base import Recipe
from rulax.text import duration

SCORE, TUNE, UNTRAINED = "cells", "tuning", "untrained"  # what a cell is for, and the folder that it is in
COST, FAILED = "cost.json", "failed.json"


class Cell(NamedTuple):
    """One rule in one environment."""

    purpose: str
    env: str  # as tables call it
    rule: str  # likewise; empty for untrained agents
    config: TrainConfig
    trial: int = -1

    @property
    def folder(self) -> Path:
        """Its run folder."""
        return Path(self.config.out)

    @property
    def place(self) -> tuple[str, str]:
        """Where it is in the folder of the whole."""
        return self.purpose, self.folder.name

    @property
    def work(self) -> int:
        """Environment steps of all seeds."""
        return self.config.steps * self.config.seeds

    @property
    def title(self) -> str:
        """What it is called while it is trained."""
        what = {SCORE: self.rule, TUNE: f"{self.rule} (trial {self.trial + 1})", UNTRAINED: "untrained"}[self.purpose]
        return f"{self.env} · {what}"


class Cost(NamedTuple):
    """What a cell has cost in all its parts, compiling included."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0


class _Reason(TypedDict):
    reason: str


class Failed(_Reason, total=False):
    """The form of the file that says why a cell could not be trained."""

    most_restarts: int


# -- what has become of a cell ---------------------------------------------------------------------------------------------------


def begun(cell: Cell) -> bool:
    """Whether there is something of it to show."""
    # Both: config.json is written first, so a cell killed between the two has nothing to show.
    return (cell.folder / folders.CHECKPOINT).exists() and (cell.folder / folders.CONFIG).exists()


def finished(cell: Cell) -> bool:
    """Whether nothing is left to do: trained to the end, or found to be impossible."""
    # Asked of the folder every time: it is the only record of progress, so nothing can disagree with it after a crash.
    if failure(cell) is not None or not begun(cell):
        return failure(cell) is not None
    run = load(cell.folder)
    return run.finished and not stages.missing(cell.folder, stages.OF_TRAINING, run.steps_made)


def failure(cell: Cell) -> str | None:
    """Why a cell could not be trained to its end, if so; an environment that failed too often may be allowed more by now."""
    facts = read_json(cell.folder / FAILED, Failed)
    if not facts:
        return None
    # Failures without a limit, such as a loss that is no number, would happen again.
    now = {"most_restarts": cell.config.most_restarts, "step_limit": cell.config.step_limit or math.inf}
    return None if any(now[name] > facts[name] for name in now if name in facts) else facts["reason"]


def cost_of(cell: Cell) -> Cost:
    """What it has cost so far."""
    return Cost(**read_json(cell.folder / COST, Cost))


@contextmanager
def named(cell: Cell) -> Iterator[None]:
    """Around work on one of many cells, so that an error names it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{cell.title}: {error}") from error


def prepare_cell(cell: Cell, recipe: Recipe | None = None) -> Prepared:
    """Build it, which finds every mistake. A recipe takes the place of the one that the cell's rule has."""
    prepared = prepare(cell.config, recipe=recipe)
    if cell.purpose == UNTRAINED and isinstance(prepared.trainer, CompiledTrainer):
        # A program that runs for so short a time is not worth optimising.
        prepared.trainer.compile_options = COMPILE_FAST
    return prepared


def train_cell(
    cell: Cell, progress: Silent, stop: StopRequest, prepared: Prepared | None = None, recipe: Recipe | None = None
) -> None:
    """Train a cell to its end, from its checkpoint if it has one. An agent that breaks ends its cell, not all of them.

    Args:
        cell: what to train.
        progress: is told how far it has come.
        stop: whether the user asked to stop.
        prepared: the cell, if it is built already.
        recipe: takes the place of the one that the cell's rule has.
    """
    clock = Clock(**cost_of(cell)._asdict())
    # It is being tried again; were the old reason left, a cell that succeeds now would still count as failed.
    (cell.folder / FAILED).unlink(missing_ok=True)
    try:
        if (cell.folder / folders.CONFIG).exists():
            values = {"resume": str(cell.folder), "quiet": True}
            # What a comparison or a sweep was given anew on resuming has to reach cells that were begun with other values.
            values |= {name: getattr(cell.config, name) for name in changeable(HostLoop)}
            train.resume(values, recipe=recipe, progress=progress, stop=stop)
        else:
            train.begin(prepared or prepare_cell(cell, recipe), progress, stop=stop)
    except TrainingStopped as error:
        folders.create(cell.folder)  # an environment that cannot even be started leaves none
        # Kept only where a larger limit could change the outcome; see `failure`.
        limits = error.__cause__.limits if isinstance(error.__cause__, EnvironmentFailed) else {}
        write_json(cell.folder / FAILED, {"reason": str(error), **limits})
    finally:
        # In `finally`, because interrupted and failed training costs as well; where not even a folder was made there is nowhere to
        # write.
        if cell.folder.exists():
            write_json(cell.folder / COST, Cost(clock.seconds, clock.cpu_seconds)._asdict())


def read_cell(cell: Cell) -> Run | None:
    """The run in a cell's folder, if it has begun."""
    return load(cell.folder) if begun(cell) else None


# -- one view of them all --------------------------------------------------------------------------------------------------------


class CellsProgress(Silent):
    """What a cell reports, shown as a part of the whole; the end of a cell does not close the bar."""

    def __init__(self, shown: Silent, cells: list[Cell]):
        self.shown, self.cells, self.current = shown, cells, 0
        # Seconds and work of the cells that are done. By environment and rule: both may change the speed a hundredfold.
        self.rates: dict[tuple[str, str], tuple[float, int]] = {}
        self.since = 0.0

    def enter(self, number: int) -> None:
        """The next reports are about this cell."""
        self.current, self.since = number, time.monotonic()

    def leave(self, seconds: float) -> None:
        """The cell is done, after so many seconds of its own."""
        cell = self.cells[self.current]
        spent, work = self.rates.get((cell.env, cell.rule), (0.0, 0))
        self.rates[cell.env, cell.rule] = (spent + seconds, work + cell.work)

    def start(self, title: str, status: Status) -> None:
        self.shown.rename(f"{self.current + 1}/{len(self.cells)} {self.cells[self.current].title}")

    def update(self, status: Status) -> None:
        # Of all earlier cells, also of failed ones that made fewer steps: the bar never has to jump back.
        before = sum(cell.config.steps for cell in self.cells[: self.current])
        total = sum(cell.config.steps for cell in self.cells)
        left, facts = self.left(status.seconds_left, time.monotonic() - self.since), list(status.facts)
        if left is None and status.seconds_left is not None:
            facts.append(f"{duration(status.seconds_left)} left in this cell")
        self.shown.update(status._replace(step=before + status.step, total=total, facts=facts, seconds_left=left))

    def left(self, of_cell: float | None, spent: float) -> float | None:
        """Seconds to the end: what the cell says of itself, and for later ones what their rule took there in trials.

        None, rather than a guess, where a later cell's rule has not been measured in its environment.
        """
        cell, rates = self.cells[self.current], dict(self.rates)
        if of_cell is not None:
            seconds, work = rates.get((cell.env, cell.rule), (0.0, 0))
            # The cell's own estimate counts as if it were done, so that later cells of the same kind profit from it at once.
            rates[cell.env, cell.rule] = (seconds + spent + of_cell, work + cell.work)
        if any((each.env, each.rule) not in rates for each in self.cells[self.current :]):
            return None

        def expected(each: Cell) -> float:
            seconds, work = rates[each.env, each.rule]
            return each.work * seconds / work

        left = max(0.0, expected(cell) - spent) if of_cell is None else of_cell
        return left + sum(map(expected, self.cells[self.current + 1 :]))

    def phase(self, text: str, done: int = 0, of: int = 0) -> None:
        self.shown.phase(text, done, of)

    def message(self, text: str) -> None:
        self.shown.message(text)
