"""Rows of metrics: gathered from what training returns, written as JSON lines and TensorBoard events, and read back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypedDict

import numpy as np

from rulax.files import jsonable, write_atomically
from rulax.files.reading import misfit, read_bytes, read_json_lines
from rulax.records import folder as folders
from rulax.records.tensorboard import TensorBoard
from rulax.text import plural

Row = dict[str, Any]


class KnownColumns(TypedDict, total=False):
    """Columns that somebody computes with."""

    step: int
    seconds: float | None
    episodes: int
    episode_return: float | None
    episode_length: float | None
    return_per_seed: list[float | None]
    episodes_per_seed: list[int]
    restarts: int | None
    kind: str


CARRIED, ITERATIONS, COUNT = "carried ", "iterations", "#"
EARLIER = {"meta-steps": ITERATIONS}  # names of earlier versions
EPISODE = ("episodes", "episode_return", "episode_length")  # sums over the episodes that ended
BROKEN = "metrics.damaged.jsonl"  # lines that were put aside
RESTARTS = "restarts"  # of environments that raised an error; counted, not averaged


Totals = dict[str, np.ndarray]  # sums by name, [K]; "NAME#" counts the numbers in the sum of NAME


class RowMaker(Protocol):
    """Turns sums over some iterations into one row; `carried` may keep values from row to row."""

    def __call__(self, totals: Totals, step: int, seconds: float, carried: Totals) -> Row: ...


class Recorder:
    """Gathers iterations [I, K] into rows of `window` iterations; what is unfinished can be saved and restored exactly.

    Args:
        window: iterations per row.
        steps_per_iteration: by how much an iteration moves `step`.
        step: where the run stands.
        pending: the unfinished row of a checkpoint.
        row_of: what makes a row.
    """

    def __init__(
        self,
        window: int,
        steps_per_iteration: int,
        step: int = 0,
        pending: Totals | None = None,
        row_of: RowMaker | None = None,
    ):
        self.window, self.steps_per_iteration, self.step = window, steps_per_iteration, step
        self.row_of = row_of or make_row
        # As vectors, because `pending` saves the number of iterations as a scalar.
        self.totals = {EARLIER.get(name, name): np.atleast_1d(values) for name, values in (pending or {}).items()}
        self.count = int(self.totals.pop(ITERATIONS, np.zeros(1))[0])
        carried = [name for name in self.totals if name.startswith(CARRIED)]
        self.carried = {name.removeprefix(CARRIED): self.totals.pop(name) for name in carried}  # each seed's last value

    def add(self, metrics: Mapping[str, np.ndarray], seconds: float) -> list[Row]:
        """One chunk of metrics, each [I] or [I, K]; returns the rows that it completed."""
        iterations = len(next(iter(metrics.values())))
        numbers = np.stack([np.asarray(values, np.float64).reshape(iterations, -1) for values in metrics.values()], 1)  # [I, N, K]
        # Before its first update an agent has no loss: NaN means not measured, and is not part of a mean.
        measured = np.isfinite(numbers)
        chunk = np.concatenate([np.where(measured, numbers, 0.0), measured], 1)
        names = [*metrics, *(f"{name}{COUNT}" for name in metrics)]
        # A metric may be missing in what was gathered before, and then counts as not measured there.
        nothing = np.zeros(numbers.shape[-1])
        rows, start = [], 0
        while start < iterations:
            end = min(iterations, start + self.window - self.count)
            before = [np.stack([self.totals.get(name, nothing) for name in names])[None]] if self.totals else []
            # Accumulated one by one, so that a sum does not depend on where chunks begin.
            totals = np.add.accumulate(np.concatenate([*before, chunk[start:end]]))[-1]
            self.totals = dict(zip(names, totals, strict=True))
            self.count += end - start
            self.step += self.steps_per_iteration * (end - start)
            if self.count == self.window:
                rows += self.flush(seconds)
            start = end
        return rows

    def flush(self, seconds: float) -> list[Row]:
        """The row of what has been gathered so far, if anything has."""
        # `carried` is not cleared with the rest: a seed's last return must outlive the row that it was measured in.
        rows = [self.row_of(self.totals, self.step, seconds, self.carried)] if self.count else []
        self.totals, self.count = {}, 0
        return rows

    def pending(self) -> Totals:
        """The unfinished row, for a checkpoint."""
        unfinished = {**self.totals, ITERATIONS: np.asarray(self.count)} if self.count else {}
        return unfinished | {CARRIED + name: values for name, values in self.carried.items()}


def make_row(totals: Totals, step: int, seconds: float, carried: Totals) -> Row:
    """One line of `metrics.jsonl`. Returns and lengths are per episode that ended; None where none did.

    In the two means a seed in which no episode ended counts with its last value, which `carried` keeps.
    """
    episodes = totals["episodes"]
    returns, lengths = ratio(totals["episode_return"], episodes), ratio(totals["episode_length"], episodes)
    row: Row = {"step": step, "seconds": round(seconds, 3), "episodes": int(episodes.sum())}
    for name, values in (("episode_return", returns), ("episode_length", lengths)):
        carried[name] = np.where(np.isfinite(values), values, carried.get(name, np.nan))
        row[name] = jsonable(finite_mean(carried[name]))
    row |= {"return_per_seed": jsonable(returns), "episodes_per_seed": [int(value) for value in episodes]}
    # Counts of bad numbers are left out: any that is not zero has stopped the run before a row was made.
    for name in sorted(name for name in totals if not name.endswith(COUNT) and not name.startswith("bad_")):
        if name == RESTARTS:
            row[name] = int(totals[name].sum())
        elif name not in EPISODE:
            row[name] = jsonable(finite_mean(ratio(totals[name], totals[name + COUNT])))
    return row


def ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Mean of what was counted, NaN where nothing was."""
    # Both branches are computed, hence the maximum, or numpy would warn of a division by zero.
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def finite_mean(values: Any) -> float:
    """The mean of those that are finite numbers; NaN if there are none."""
    array = np.asarray(values, np.float64)
    finite = array[np.isfinite(array)]
    return float(finite.mean()) if finite.size else math.nan


class Writer(Protocol):
    """A place that numbers are sent to: TensorBoard, Weights & Biases."""

    def write(self, numbers: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class RunLog:
    """All rows of a run, in memory and, if there is a folder, on disk."""

    def __init__(
        self,
        folder: Path | None,
        group: str,
        step: int = 0,
        writers: Sequence[Writer] = (),
        kept: int | None = None,
        seeds: int = 0,
    ):
        # kept: rows that there were at the checkpoint, if it says so; seeds: in each row, where they have some
        self.rows: list[Row] = []
        self.note = ""  # what a user must know of the rows of an earlier part
        self.folder, self.group = folder, group  # group: the heading of its curves in TensorBoard
        self.writers = list(writers)
        if folder is None:
            return
        if step:
            # Lines after the checkpoint will be written again: no line may stand there twice.
            rows, broken = read_lines(folder, lambda row: not seeds or is_whole(row, seeds))
            self.rows = [row for row in rows if row["step"] <= step]
            self.note = self.keep_broken(broken, kept)
        # Also at step 0: a run that goes on from its very first checkpoint makes all of its rows again.
        write_atomically(folder / folders.METRICS, "".join(json.dumps(row) + "\n" for row in self.rows))
        self.writers.append(TensorBoard(folder / "tensorboard", step))

    def keep_broken(self, broken: list[int], kept: int | None) -> str:
        """Put damaged lines aside, which the file will lose, and say so; one that a crash has cut off at the end is no news.

        Args:
            broken: their numbers.
            kept: how many rows there were at the checkpoint; None if it does not say.
        """
        # Without that number, a broken line is one of the rows before the checkpoint if a whole one of them follows.
        lost = kept - len(self.rows) if kept is not None else sum(number <= len(self.rows) for number in broken)
        assert self.folder is not None
        if lost <= 0:
            return ""
        path, aside = self.folder / folders.METRICS, self.folder / BROKEN
        if broken:
            lines = read_bytes(path).split(b"\n")
            write_atomically(aside, b"".join(lines[number - 1] + b"\n" for number in broken))
        damaged = f"the damaged lines are in {aside}" if broken else "it was cut off"
        return f"warning: {plural(lost, 'row')} of {path} from before the checkpoint cannot be read and will be missing; {damaged}"

    def sync(self) -> None:
        """Write the rows to disk, so that a checkpoint never outlives those before it."""
        # Opened for writing, without which some systems refuse; and whatever cannot sync loses rows in a power cut at worst.
        with suppress(OSError):
            opened = os.open(self.folder / folders.METRICS, os.O_WRONLY) if self.folder is not None else None
            if opened is not None:
                try:
                    os.fsync(opened)
                finally:
                    os.close(opened)

    def drop(self, kind: str, after: int) -> None:
        """Remove the rows of one kind after a step, which will be written again."""
        self.rows = [row for row in self.rows if row.get("kind") != kind or row["step"] <= after]
        if self.folder is not None:
            write_atomically(self.folder / folders.METRICS, "".join(json.dumps(row) + "\n" for row in self.rows))

    def write(self, rows: list[Row]) -> None:
        """Add finished rows."""
        self.rows += rows
        if self.folder is not None and rows:
            # Appended and not replaced as a whole: a crash can at worst cut the last line, which readers leave out.
            with (self.folder / folders.METRICS).open("a") as file:
                file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        for row in rows:
            known = {name: value for name, value in row.items() if isinstance(value, (int, float)) and name != "step"}
            for writer in self.writers:
                writer.write({f"{self.group}/{name}": value for name, value in known.items()}, row["step"])

    def close(self) -> None:
        """Flush what is buffered."""
        for writer in self.writers:
            writer.close()


def read_rows(folder: Path, seeds: int = 0) -> list[Row]:
    """The rows in a run folder; a line that is broken, as by a crash, is left out. `seeds`: of a training run."""
    return read_lines(folder, lambda row: not seeds or is_whole(row, seeds))[0]


def is_whole(row: Row, seeds: int) -> bool:
    """Whether a line of a training run has all that its curve needs."""
    values = row.get("return_per_seed"), row.get("episodes_per_seed")
    return all(isinstance(value, list) and len(value) == seeds for value in values) and "episodes" in row and "seconds" in row


def read_lines(folder: Path, whole: Callable[[Row], bool] = lambda row: True) -> tuple[list[Row], list[int]]:
    """The rows in a run folder, and the numbers of the lines that are broken: cut off, damaged, foreign, or not `whole`."""
    return read_json_lines(folder / folders.METRICS, lambda row: is_row(row) and whole(row))


def is_row(row: Row) -> bool:
    """Whether a line has the form of a row; what callbacks and methods add to it may be anything."""
    if "step" not in row or misfit(row, KnownColumns) or row["step"] < 0:
        return False
    returns, episodes = row.get("return_per_seed"), row.get("episodes_per_seed")
    return returns is None or (episodes is not None and len(returns) == len(episodes))


def final_returns(rows: list[Row], fraction: float = 0.1) -> list[float | None]:
    """Per seed, the mean over episodes in the last tenth of the steps; before that, the last value that there is."""
    if not rows:
        return []
    start = (1 - fraction) * rows[-1]["step"]
    result: list[float | None] = []
    for seed in range(len(rows[-1]["return_per_seed"])):
        points = [(row["step"], row["return_per_seed"][seed], row["episodes_per_seed"][seed]) for row in rows]
        points = [point for point in points if point[2]]
        # Long episodes may not end in the last tenth at all; the last that did is the best that is known.
        late = [point for point in points if point[0] > start] or points[-1:]
        episodes = sum(count for _, _, count in late)
        result.append(sum(value * count for _, value, count in late) / episodes if episodes else None)
    return result
