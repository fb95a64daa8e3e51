"""`rulax train`: drives a trainer chunk by chunk to the end of its budget, and keeps its run folder in order.

Every way out leaves a folder from which the run can go on: the end, Ctrl-C, SIGTERM, and a reward that is not a number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rulax.commands.config import HOST_MAY_CHANGE, TrainConfig, build
from rulax.commands.progress import Silent, Status, make_progress
from rulax.commands.signals import StopRequest
from rulax.commands.train import show as report
from rulax.commands.train.result import Run
from rulax.commands.train.setup import Prepared, check_own, prepare, reserve, saved_config, warm_up_note
from rulax.envs.base import EnvironmentFailed
from rulax.errors import Interrupted, TrainingStopped, UserError
from rulax.records import checkpoint
from rulax.records import folder as folders
from rulax.records.rows import RESTARTS, Recorder, RunLog, number
from rulax.text import count

POINTS = 100  # of the curve, unless log_every says otherwise
BACKUP_BYTES = 64 * 2**20  # states up to this size are copied before every chunk
BAD = {"bad_rewards": "a reward", "bad_gradients": "the gradient", "bad_params": "a parameter"}
MAY_CHANGE = ("resume", "steps", "checkpoint_minutes", "platform", "quiet", *HOST_MAY_CHANGE)


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    run = resume(values) if values.get("resume") else start(build(TrainConfig, values))
    report.show(run)
    return 0


def start(config: TrainConfig, on_disk: bool = True, environment: Any = None, recipe: Any = None) -> Run:
    """Train from the beginning."""
    if config.out:
        folders.check_free(Path(config.out))
    prepared, progress = prepare(config, environment, recipe), make_progress(config.quiet)
    agent = jax.eval_shape(prepared.trainer.agent, prepared.trainer.skeleton())
    progress.message(f"agent: {count(sum(leaf.size for leaf in jax.tree.leaves(agent)))} parameters")
    return begin(prepared, progress, on_disk)


def begin(prepared: Prepared, progress: Silent, on_disk: bool = True) -> Run:
    """Train what has been prepared; several runs can share one view of their progress."""
    config, folder = prepared.config, Path(prepared.config.out) if prepared.config.out else None
    iterations = -(-config.steps // prepared.trainer.steps_per_iteration)
    wanted = round(config.log_every / prepared.trainer.steps_per_iteration) if config.log_every else -(-iterations // POINTS)
    announce(prepared, progress)
    with StopRequest(progress.message) as stop:  # from here on whoever stops the run leaves a folder to go on from
        with first_reset(prepared):
            state = prepared.trainer.init(jax.random.key(config.seed))
        if on_disk:
            if folder is None:
                folder = folders.create_numbered(config.env, config.rule)
            else:
                folders.create(folder)
            folders.write_json(folder / folders.CONFIG, prepared.record)
        driver = Driver(prepared, folder, progress, window=max(1, wanted))
        driver.save(state)  # before compiling, which can take long
        return driver.drive(state, stop)


def resume(values: dict[str, Any], environment: Any = None, recipe: Any = None, progress: Silent | None = None) -> Run:
    """Go on from the checkpoint in a run folder. Objects without a name must be given again, from Python."""
    for name in values:
        if name not in MAY_CHANGE:
            others = "--quiet, --platform, --checkpoint-minutes, --replay-limit, --most-restarts"
            raise UserError(f"{name} cannot be given with --resume; only --steps and {others} can")
    folder = Path(values["resume"])
    record = folders.read_config(folder)
    found = checkpoint.load(folder / folders.CHECKPOINT)
    config = saved_config(record, {name: value for name, value in values.items() if name != "resume"})
    check_own(record, str(folder), environment, recipe)
    made = found.facts["step"]
    if "steps" not in values and config.steps <= made:
        raise UserError(f"{folder} is finished, after {made} steps; --steps N with a larger N trains on")
    if config.steps < made:
        raise UserError(f"{folder} has already made {made} steps, more than --steps {config.steps}")
    prepared = prepare(config, environment, recipe)
    if prepared.record["fingerprint"] != found.facts["fingerprint"]:
        raise UserError(f"the checkpoint in {folder} was written by a run with other settings than its {folders.CONFIG}")
    tensors, pending = checkpoint.split(found.tensors)
    state = checkpoint.unpack(tensors, prepared.trainer.skeleton(), folder / folders.CHECKPOINT)
    progress = progress or make_progress(config.quiet)
    announce(prepared, progress)
    with first_reset(prepared):
        state = prepared.trainer.resume(state)
    folders.write_json(folder / folders.CONFIG, {**prepared.record, "command": record.get("command")})
    with StopRequest(progress.message) as stop:
        driver = Driver(prepared, folder, progress, found.facts["window"], made, found.facts["seconds"], pending)
        driver.cpu_before = found.facts.get("cpu_seconds") or float("nan")  # a folder from before it was counted stays unknown
        return driver.drive(state, stop)


@contextmanager
def first_reset(prepared: Prepared) -> Iterator[None]:
    """Where environments are reset for the first time, and some can not be."""
    try:
        yield
    except EnvironmentFailed as error:
        prepared.trainer.close()
        raise TrainingStopped(f"'{prepared.config.env}' cannot be started: {error}") from error


def announce(prepared: Prepared, progress: Silent) -> None:
    """Say what the run will take of the host's memory, while there is still time to refuse, and what it will not reach."""
    for text in (reserve(prepared), warm_up_note(prepared)):
        if text:
            progress.message(text)


class Driver:
    """One run in progress."""

    def __init__(
        self,
        prepared: Prepared,
        folder: Path | None,
        progress: Silent,
        window: int,
        step: int = 0,
        seconds: float = 0.0,
        pending: dict[str, np.ndarray] | None = None,
    ):
        self.prepared, self.folder, self.config, self.trainer = prepared, folder, prepared.config, prepared.trainer
        self.log = RunLog(folder, step, writers_for(prepared, folder))
        self.recorder = Recorder(window, self.trainer.steps_per_iteration, step, pending)
        self.seconds_before, self.began = seconds, time.monotonic()
        self.cpu_before, self.cpu_began = 0.0, time.process_time()
        self.restarts_before = sum(row.get(RESTARTS) or 0 for row in self.log.rows)
        self.saved_at: float | None = None
        self.measured_from: tuple[float, int] | None = None  # time and step after the first chunk, which compiles
        self.recent_return: float | None = None  # over the episodes that ended in the last chunk
        self.progress = progress

    @property
    def seconds(self) -> float:
        """Time spent, earlier parts of a resumed run included."""
        return self.seconds_before + time.monotonic() - self.began

    @property
    def cpu_seconds(self) -> float:
        """Processor time of all threads, earlier parts of a resumed run included."""
        return self.cpu_before + time.process_time() - self.cpu_began

    def drive(self, state: Any, stop: StopRequest) -> Run:
        """Chunk after chunk, until the budget is spent or somebody asks to stop."""
        self.progress.start(f"{self.config.env} · {self.config.rule}", self.status())
        try:
            while not self.trainer.done(state) and not stop.requested:
                state = self.chunk(state)
            finished, speed = self.trainer.done(state), self.status().steps_per_second
            if finished and self.recorder.count:
                self.log.write([self.recorder.flush(self.seconds)])
            self.save(state)
            run = Run.of(self.prepared, self.folder, self.log.rows, state, finished, self.seconds)
            run.steps_per_second = speed
            self.tell(run)
            if self.folder is not None:
                run.write_results()
        except TrainingStopped as error:
            if self.folder is not None:
                run = Run(self.config, self.folder, self.log.rows, False, self.seconds)
                self.tell(run)
                if isinstance(error.__cause__, EnvironmentFailed):
                    run.restarts = self.restarts_before + error.__cause__.restarts
                run.write_results()
            raise
        finally:
            self.progress.stop()
            self.log.close()
            self.trainer.close()
        if not finished:
            raise Interrupted(self.how_to_go_on(), run)
        return run

    def tell(self, run: Run) -> None:
        """What rows do not say, or not to the end."""
        run.cpu_seconds, run.made = self.cpu_seconds, self.recorder.step
        run.last_failure = getattr(self.trainer, "last_failure", "")  # of a host environment

    def chunk(self, state: Any) -> Any:
        """About a second of training. Should it go wrong, the state before it is kept."""
        backup = checkpoint.copy_of(state) if self.folder and checkpoint.size_of(state) < BACKUP_BYTES else None
        try:
            state, metrics = self.trainer.advance(state)
        except EnvironmentFailed as error:  # a host environment's trainer leaves the state before it as it was
            self.save(state)
            raise TrainingStopped(f"training stopped: {error}{self.what_is_kept()}") from error
        bad = first_bad(metrics)
        if bad is not None:
            if backup is not None:
                self.save(backup)
            raise TrainingStopped(self.what_went_wrong(*bad))
        self.log.write(self.recorder.add(metrics, self.seconds))
        if np.sum(metrics["episodes"]):
            self.recent_return = float(np.sum(metrics["episode_return"]) / np.sum(metrics["episodes"]))
        if self.measured_from is None:
            self.measured_from = (time.monotonic(), self.recorder.step)
        self.progress.update(self.status())
        if self.saved_at is None or time.monotonic() - self.saved_at > 60 * self.config.checkpoint_minutes:
            self.save(state)
        return state

    def save(self, state: Any) -> None:
        """Write the checkpoint."""
        self.saved_at = time.monotonic()
        if self.folder is None:
            return
        facts = {
            "step": self.recorder.step,
            "seconds": self.seconds,
            "cpu_seconds": number(self.cpu_seconds),
            "window": self.recorder.window,
            "fingerprint": self.prepared.record["fingerprint"],
        }
        checkpoint.save(self.folder / folders.CHECKPOINT, state, self.recorder.pending(), facts)

    def status(self) -> Status:
        """What the progress bar shows."""
        step, speed, left = self.recorder.step, 0.0, None
        if self.measured_from is not None and step > self.measured_from[1]:
            speed = (step - self.measured_from[1]) / (time.monotonic() - self.measured_from[0])
            left = max(0.0, (self.config.steps - step) / speed)
        return Status(min(step, self.config.steps), self.config.steps, speed * self.config.seeds, self.recent_return, left)

    def what_went_wrong(self, name: str, iteration: int, seed: int) -> str:
        """One sentence: what, where, when, and what is left."""
        size = self.trainer.steps_per_iteration
        first = self.recorder.step + iteration * size
        return (
            f"training stopped: {BAD.get(name, name)} was not a finite number in environment '{self.config.env}' between steps "
            f"{first} and {first + size} of seed {seed}{self.what_is_kept()}"
        )

    def what_is_kept(self) -> str:
        """The end of a sentence about a run that cannot go on."""
        if self.folder is None or not (self.folder / folders.CHECKPOINT).exists():
            return ""
        return f"; the last good state is in {self.folder / folders.CHECKPOINT}"

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        where = f"stopped at step {self.recorder.step:,} of {self.config.steps:,}"
        if self.folder is None:
            return f"{where}; nothing was saved, because no run folder was asked for"
        own = self.prepared.record["custom"]
        if not own:
            return f"{where}; everything is saved. To go on:\n  rulax train --resume {self.folder}\n{self.page()}"
        objects = {"env": f"env=<{self.config.env}>", "rule": "rule=..."}  # the same again: a folder cannot hold them
        again = ", ".join(objects[name] for name in own)
        return f"{where}; everything is saved. To go on, in Python:\n  rulax.train({again}, resume='{self.folder}')\n{self.page()}"

    def page(self) -> str:
        """Where to look at what there is."""
        return f"What there is so far:\n  {self.folder}/{folders.REPORT}"


def writers_for(prepared: Prepared, folder: Path | None) -> list[Any]:
    """What else is told every number: Weights & Biases, if the user asked for it."""
    if not prepared.config.wandb:
        return []
    from rulax.records.wandb_writer import WandbWriter

    return [WandbWriter(prepared.config.wandb, folder, prepared.record)]


def first_bad(metrics: dict[str, np.ndarray]) -> tuple[str, int, int] | None:
    """The first count of something that should never happen: its name, iteration and seed."""
    found = []
    for name, values in metrics.items():
        if name.startswith("bad_") and np.any(values):
            iteration, seed = np.argwhere(values)[0]
            found.append((int(iteration), list(BAD).index(name) if name in BAD else len(BAD), name, int(seed)))
    if not found:
        return None
    iteration, _, name, seed = min(found)  # of the same iteration, a reward is the cause and a gradient the consequence
    return name, iteration, seed
