"""`rulax train`: trains agents chunk by chunk to the end of their budget.

Every way out leaves a folder from which the run can go on: the end, Ctrl-C, SIGTERM, and a reward that is not a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rulax.agents.base import split
from rulax.commands import resume as resuming
from rulax.commands.driver import Clock, Driver, Pace, drive, stopped_text
from rulax.commands.progress import Silent, Status, make_progress
from rulax.commands.settings import read_values
from rulax.commands.signals import StopRequest
from rulax.commands.train.result import Run
from rulax.commands.train.settings import TrainConfig, build_train
from rulax.commands.train.setup import KIND, Prepared, check_own, prepare, reserve, saved_config, saved_settings, warm_up_note
from rulax.commands.train.show import show
from rulax.envs.base import EnvironmentFailed
from rulax.errors import TrainingStopped, UserError
from rulax.files import write_json
from rulax.records import checkpoint
from rulax.records import folder as folders
from rulax.records.rows import RESTARTS, Recorder, RunLog, Writer, number
from rulax.text import count

POINTS = 100  # of the curve, unless log_every says otherwise
BACKUP_BYTES = 64 * 2**20  # states up to this size are copied before every chunk
BAD = {"bad_rewards": "a reward", "bad_gradients": "the gradient", "bad_params": "a parameter"}


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    run = resume(values) if values.get("resume") else start(build_train(values))
    show(run)
    return 0


def start(config: TrainConfig, on_disk: bool = True, environment: Any = None, recipe: Any = None) -> Run:
    """Train from the beginning."""
    # Before anything is built: the check costs nothing, and building makes the environment.
    folders.check_free(config.out)
    prepared, progress = prepare(config, environment, recipe), make_progress(config.quiet)
    # By shapes alone: the number of parameters is known before a single array is made.
    agent = jax.eval_shape(prepared.trainer.agent, prepared.trainer.skeleton())
    progress.message(f"agent: {count(sum(leaf.size for leaf in jax.tree.leaves(split(agent)[0])))} parameters")
    return begin(prepared, progress, on_disk)


def begin(prepared: Prepared, progress: Silent, on_disk: bool = True, stop: StopRequest | None = None) -> Run:
    """Train what has been prepared; several runs can share one view of their progress and one request to stop."""
    config = prepared.config
    # Rounded up, as the trainer does: the budget is reached, not undershot.
    iterations = -(-config.steps // prepared.trainer.steps_per_iteration)
    wanted = round(config.log_every / prepared.trainer.steps_per_iteration) if config.log_every else -(-iterations // POINTS)
    announce(prepared, progress)
    with nullcontext(stop) if stop else StopRequest(progress.message) as stop:  # from here on there is a folder to go on from
        with first_reset(prepared):
            # Before the folder is made: an environment that cannot even be reset leaves no empty run behind.
            state = prepared.trainer.init(jax.random.key(config.seed))
        folder = folders.create_new(config.out, config.env, config.rule) if on_disk else None
        if folder is not None:
            # Before the checkpoint: a folder with a checkpoint always has the settings that it belongs to.
            write_json(folder / folders.CONFIG, prepared.record)
        job = TrainJob(prepared, folder, state, Recorder(max(1, wanted), prepared.trainer.steps_per_iteration), Clock())
        job.save()  # before compiling, which can take long
        return drive(job, progress, stop)


def resume(
    values: dict[str, Any],
    environment: Any = None,
    recipe: Any = None,
    progress: Silent | None = None,
    stop: StopRequest | None = None,
) -> Run:
    """Go on from the checkpoint in a run folder. The user's own objects must be given again, from Python."""
    folder = Path(values["resume"])
    # Everything up to the unpacked state only reads: a run that cannot go on leaves its folder as it was.
    record = resuming.read_record(folder, KIND)
    given = read_values(TrainConfig, values)
    changes = resuming.accept(TrainConfig, given, saved_settings(record), folder)
    path = folder / folders.CHECKPOINT
    found = checkpoint.load(path)
    config = saved_config(record, changes)
    # Without this an object of the user's own would be looked up by its name, and found missing or mistaken for something else.
    check_own(record, str(folder), environment, recipe)
    made = found.facts["step"]
    resuming.check_budget(folder, made, config.steps, "steps" in given, "steps")
    prepared = prepare(config, environment, recipe)
    # A config.json that was edited by hand, or a checkpoint that was copied from elsewhere, may fit in all shapes and still be
    # another run.
    if prepared.record["fingerprint"] != found.facts["fingerprint"]:
        raise UserError(f"the checkpoint in {folder} was written by a run with other settings than its {folders.CONFIG}")
    state = checkpoint.unpack(found, prepared.trainer.skeleton(), path)
    progress = progress or make_progress(config.quiet)
    announce(prepared, progress)
    with first_reset(prepared):
        state = prepared.trainer.resume(state)
    # Rewritten for a changed budget and today's names; the command stays the one that started the run.
    write_json(folder / folders.CONFIG, {**prepared.record, "command": record.get("command")})
    # A folder from before processor time was counted stays without it.
    clock = Clock(found.facts["seconds"], found.facts.get("cpu_seconds") or float("nan"))
    # The window is that of the checkpoint, whatever the budget is now: an unfinished row can only be finished in the same length.
    recorder = Recorder(found.facts["window"], prepared.trainer.steps_per_iteration, made, found.pending)
    with nullcontext(stop) if stop else StopRequest(progress.message) as stop:
        return drive(TrainJob(prepared, folder, state, recorder, clock), progress, stop)


@contextmanager
def first_reset(prepared: Prepared) -> Iterator[None]:
    """Around the first reset of environments, where some turn out not to work."""
    try:
        yield
    except EnvironmentFailed as error:
        prepared.trainer.close()
        raise TrainingStopped(f"'{prepared.config.env}' cannot be started: {error}") from error


def announce(prepared: Prepared, progress: Silent) -> None:
    """Say how much host memory the run will take, while there is still time to refuse, and what it will not reach."""
    for text in (reserve(prepared), warm_up_note(prepared)):
        if text:
            progress.message(text)


class TrainJob:
    """One training run in progress."""

    def __init__(self, prepared: Prepared, folder: Path | None, state: Any, recorder: Recorder, clock: Clock):
        self.prepared, self.folder, self.config, self.trainer = prepared, folder, prepared.config, prepared.trainer
        self.state, self.recorder, self.clock, self.pace = state, recorder, clock, Pace()
        self.log = RunLog(folder, KIND, recorder.step, writers_for(prepared, folder))
        # Rows that survive a resumption hold the restarts of earlier parts; the trainer counts from 0 again.
        self.restarts_before = sum(row.get(RESTARTS) or 0 for row in self.log.rows)
        self.failure: EnvironmentFailed | None = None
        self.recent_return: float | None = None  # over the episodes that ended in the last chunk
        self.title = f"{self.config.env} · {self.config.rule}"
        self.checkpoint_minutes = self.config.checkpoint_minutes

    def work(self, driver: Driver) -> Iterator[None]:
        """Chunk after chunk, until the budget is spent."""
        while not self.trainer.done(self.state):
            yield
            self.chunk()
        # Only at the end: an interrupted run keeps its unfinished row in the checkpoint, so that the curve is the same as without
        # the interruption.
        self.log.write(self.recorder.flush(self.clock.seconds))

    def chunk(self) -> None:
        """About a second of training. Should it go wrong, the state before it is kept."""
        # `advance` consumes the state, so going back needs a copy. A large one would cost time and memory at every chunk; then the
        # last periodic checkpoint has to do. Without a folder nobody could use it.
        small = self.folder is not None and checkpoint.size_of(self.state) < BACKUP_BYTES
        backup = checkpoint.copy_of(self.state) if small else None
        try:
            state, metrics = self.trainer.advance(self.state)
        except EnvironmentFailed as error:  # the trainer of a host environment leaves the state before it as it was
            self.save()
            self.failure = error
            raise TrainingStopped(f"training stopped: {error}{self.what_is_kept()}") from error
        self.state = state
        # Before anything is recorded: the rows must not go beyond the state that is kept.
        bad = first_bad(metrics)
        if bad is not None:
            if backup is not None:
                self.state = backup
                self.save()
            raise TrainingStopped(self.what_went_wrong(*bad))
        self.log.write(self.recorder.add(metrics, self.clock.seconds))
        # Where no episode ended in this chunk the bar keeps showing the last known return.
        if np.sum(metrics["episodes"]):
            self.recent_return = float(np.sum(metrics["episode_return"]) / np.sum(metrics["episodes"]))
        # After the first chunk, the one that compiles: the speed would be far too low with it.
        self.pace.begin(self.recorder.step)

    def save(self) -> None:
        """Write the checkpoint."""
        if self.folder is None:
            return
        facts = {
            "step": self.recorder.step,
            "seconds": self.clock.seconds,
            # NaN, for a run from before it was counted, becomes null: JSON has no NaN.
            "cpu_seconds": number(self.clock.cpu_seconds),
            "window": self.recorder.window,
            # So that a resumption can tell whether config.json still describes this state.
            "fingerprint": self.prepared.record["fingerprint"],
        }
        checkpoint.save(self.folder / folders.CHECKPOINT, self.state, self.recorder.pending(), facts)

    def conclude(self, finished: bool) -> Run:
        """The run as it stands; in its folder, the curve, the summary and the page."""
        run = Run(self.config, self.folder, self.log.rows, finished, self.clock.seconds)
        run.source = (self.prepared.environment, self.trainer, self.state)
        run.steps_per_second = self.status().steps_per_second
        run.cpu_seconds, run.made, run.last_failure = self.clock.cpu_seconds, self.recorder.step, self.trainer.last_failure
        # The chunk that failed has no row, so the restarts that led up to the failure are in no row either.
        if self.failure is not None:
            run.restarts = self.restarts_before + self.failure.restarts
        if self.folder is not None:
            run.write_results()
        return run

    def close(self) -> None:
        """Files and streams."""
        self.log.close()
        self.trainer.close()

    # -- what the user reads ----------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """What the progress bar shows."""
        step, total = self.recorder.step, self.config.steps
        speed, left = self.pace.measure(step, total)
        # The last iteration may go beyond the budget, which would show as more than 100 %.
        return Status(min(step, total), total, speed * self.config.seeds, self.recent_return, left)

    def what_went_wrong(self, name: str, iteration: int, seed: int) -> str:
        """One sentence: what, where, when, and what is left."""
        size = self.trainer.steps_per_iteration
        # The recorder has not seen the bad chunk, so it stands where that chunk began.
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
        where = f"at step {self.recorder.step:,} of {self.config.steps:,}"
        if self.folder is None:
            return f"stopped {where}; nothing was saved, because no run folder was asked for"
        objects = {"env": f"env=<{self.config.env}>", "rule": "rule=..."}  # the same again: a folder cannot hold them
        own = "".join(f"{objects[name]}, " for name in self.prepared.record["custom"])
        line = f"rulax.train({own}resume='{self.folder}')  # in Python" if own else f"rulax train --resume {self.folder}"
        return stopped_text(where, line, self.folder / folders.REPORT)


def writers_for(prepared: Prepared, folder: Path | None) -> list[Writer]:
    """Where else every number goes: Weights & Biases, if the user asked for it."""
    if not prepared.config.wandb:
        return []
    # Only here: the package is optional, and logging in goes over the network.
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
