"""`rulax train`: trains agents chunk by chunk to the end of their budget.

Every way out leaves a folder from which the run can go on: the end, Ctrl-C, SIGTERM, and a reward that is not a number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypedDict

import jax
import numpy as np

from rulax.agents.base import split
from rulax.commands import build
from rulax.commands import resume as resuming
from rulax.commands.driver import Clock, Driver, Pace, drive, stopped_text
from rulax.commands.hosts import joined
from rulax.commands.names import take_options
from rulax.commands.progress import Silent, Status, make_progress
from rulax.commands.run_folder import at_work
from rulax.commands.settings import read_values
from rulax.commands.signals import StopRequest
from rulax.commands.train.callbacks import Callback, CallbackFailed, Caller, EarlyStopping, Evaluate, SaveBest
from rulax.commands.train.result import Run, agents_of
from rulax.commands.train.settings import TrainConfig, build_train
from rulax.commands.train.setup import (
    KIND,
    Prepared,
    action_note,
    changed_files,
    check_own,
    prepare,
    reserve,
    saved_config,
    saved_settings,
    warm_up_note,
)
from rulax.commands.train.show import show
from rulax.envs.base import EnvironmentFailed
from rulax.envs.ranges import fold_ranges
from rulax.errors import TrainingStopped, UserError
from rulax.files import jsonable, write_json
from rulax.files.reading import blamed
from rulax.learning.life import gradient_steps
from rulax.methods.population import PopulationTrainer
from rulax.own import shown_with
from rulax.parallel import processes
from rulax.records import checkpoint, sharded, stages
from rulax.records import folder as folders
from rulax.records.population import Turn, keep_turns, write_turns
from rulax.records.rows import RESTARTS, Recorder, Row, RunLog, Writer
from rulax.text import count, plural, shown_return

POINTS = 100  # of the curve, unless log_every says otherwise
BACKUP_BYTES = 64 * 2**20  # states up to this size are copied before every chunk
BAD = {"bad_rewards": "a reward", "bad_gradients": "the gradient", "bad_params": "a parameter"}


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    with joined(values) as values:
        run = resume(values) if values.get("resume") else start(build_train(values))
        if processes.first():
            show(run)
    return 0


def start(
    config: TrainConfig, on_disk: bool = True, environment: Any = None, recipe: Any = None, callbacks: Sequence[Callback] = ()
) -> Run:
    """Train from the beginning."""
    # Before anything is built: the check costs nothing, and building makes the environment.
    folders.check_free(config.out)
    prepared, progress = prepare(config, environment, recipe), make_progress(config.quiet)
    # By shapes alone: the number of parameters is known before a single array is made.
    agent = jax.eval_shape(prepared.trainer.agent, prepared.trainer.skeleton())
    size = sum(leaf.size for leaf in jax.tree.leaves(split(agent)[0]))
    progress.message(f"agent: {count(size)} parameters; {learning_note(prepared)}")
    if note := action_note(prepared):
        progress.message(note)
    return begin(prepared, progress, on_disk, callbacks=callbacks)


def begin(
    prepared: Prepared,
    progress: Silent,
    on_disk: bool = True,
    stop: StopRequest | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train what has been prepared; several runs can share one view of their progress and one request to stop."""
    config = prepared.config
    announce(prepared, progress)
    with nullcontext(stop) if stop else StopRequest(progress.message) as stop:  # from here on there is a folder to go on from
        with first_reset(prepared):
            # Before the folder is made: an environment that cannot even be reset leaves no empty run behind.
            state = prepared.trainer.init(jax.random.key(config.seed))
        folder = folders.create_new(config.out, config.env, config.rule) if on_disk else None
        with at_work(folder, KIND, fresh=True):
            if folder is not None:
                stages.begin(folder)
                # Before the checkpoint: a folder with a checkpoint always has the settings that it belongs to.
                write_json(folder / folders.CONFIG, prepared.record)
            job = TrainJob(prepared, folder, state, first_rows(prepared), Clock(), callbacks)
            job.save()  # before compiling, which can take long
            return drive(job, progress, stop)


def first_rows(prepared: Prepared) -> Recorder:
    """What gathers the rows of a run from its beginning."""
    config, size = prepared.config, prepared.trainer.steps_per_iteration
    # Rounded up, as the trainer does: the budget is reached, not undershot.
    iterations = -(-config.steps // size)
    wanted = round(config.log_every / size) if config.log_every else -(-iterations // POINTS)
    return Recorder(max(1, wanted), size)


def resume(
    values: dict[str, Any],
    environment: Any = None,
    recipe: Any = None,
    progress: Silent | None = None,
    stop: StopRequest | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Go on from the checkpoint in a run folder. The user's own objects must be given again, from Python."""
    folder = Path(values["resume"])
    resuming.read_record(folder, KIND)  # a folder without a run is told so before anything is written there
    with at_work(folder, KIND):
        job, progress = taken_up(folder, values, environment, recipe, progress, callbacks)
        with nullcontext(stop) if stop else StopRequest(progress.message) as stop:
            return drive(job, progress, stop)


def taken_up(
    folder: Path, values: dict[str, Any], environment: Any, recipe: Any, progress: Silent | None, callbacks: Sequence[Callback]
) -> tuple[TrainJob, Silent]:
    """What is left of the run in a folder, and what shows it."""
    # Everything up to the unpacked state only reads: a run that cannot go on leaves its folder as it was.
    record = resuming.read_record(folder, KIND)
    given = take_options(read_values(TrainConfig, values))
    with blamed(folder / folders.CONFIG):
        if given.get("randomise"):
            # The folder has them among the options of the environment, whose others need not be repeated.
            given = fold_ranges({"env_options": record["settings"]["env_options"], **given}, record["settings"]["env"])
        changes = resuming.accept(TrainConfig, given, saved_settings(record), folder)
        config = saved_config(record, changes)
    path = folder / folders.CHECKPOINT
    found = None if resuming.before_first_checkpoint(sharded.folder_of_all(folder)) else sharded.load(folder, Facts)
    # Without this an object of the user's own would be looked up by its name, and found missing or mistaken for something else.
    check_own(record, str(folder), environment, recipe)
    if environment is not None and config.env_options.get("randomise"):
        environment = build.with_other_ranges(config.env, {}, config.env_options["randomise"], environment)
    made = found.facts["step"] if found else 0
    missing = stages.missing(folder, stages.OF_TRAINING, made)
    resuming.check_budget(folder, made, config.steps, "steps" in given, "steps", left=bool(missing))
    prepared = prepare(config, environment, recipe)
    # A config.json that was edited by hand, or a checkpoint that was copied from elsewhere, may fit in all shapes and still be
    # another run.
    if found and prepared.record["fingerprint"] != found.facts["fingerprint"]:
        raise UserError(f"the checkpoint in {folder} was written by a run with other settings than its {folders.CONFIG}")
    state = sharded.unpack(found, prepared.trainer, path) if found else None
    progress = progress or make_progress(config.quiet)
    if note := resuming.what_is_left(folder, made >= config.steps, missing, found is None):
        progress.message(note)
    for warning in filter(None, (changed_files(record), found.note if found else "")):
        progress.message(warning)
    announce(prepared, progress)
    with first_reset(prepared):
        state = prepared.trainer.init(jax.random.key(config.seed)) if state is None else prepared.trainer.resume(state)
    if found:
        checkpoint.settle(found, path)
    # Rewritten for a changed budget and today's names; the command stays the one that started the run.
    write_json(folder / folders.CONFIG, {**prepared.record, "command": record.get("command")})
    if found is None:
        return TrainJob(prepared, folder, state, first_rows(prepared), Clock(), callbacks), progress
    # A folder from before processor time was counted stays without it.
    clock = Clock(found.facts["seconds"], found.facts.get("cpu_seconds") or float("nan"))
    # The window is that of the checkpoint, whatever the budget is now: an unfinished row can only be finished in the same length.
    with blamed(path):
        recorder = Recorder(found.facts["window"], prepared.trainer.steps_per_iteration, made, found.pending)
    job = TrainJob(prepared, folder, state, recorder, clock, callbacks, found.facts.get("rows"))
    if job.log.note:
        progress.message(job.log.note)
    return job, progress


@contextmanager
def first_reset(prepared: Prepared) -> Iterator[None]:
    """Around the first reset of environments, where some turn out not to work."""
    try:
        yield
    except EnvironmentFailed as error:
        prepared.trainer.close()
        raise TrainingStopped(f"'{prepared.config.env}' cannot be started: {error}") from error


def learning_note(prepared: Prepared) -> str:
    """How often the agent will learn within its budget of steps."""
    trainer, learning = prepared.trainer, prepared.recipe.learning
    note = plural(max(0, trainer.total_iterations - trainer.warm_iterations), "update")
    each = gradient_steps(learning, 1)
    return f"{note} of {each} gradient steps each" if each > 1 else note


def announce(prepared: Prepared, progress: Silent) -> None:
    """Say how much host memory the run will take, while there is still time to refuse, and what it will not reach."""
    for text in (reserve(prepared), warm_up_note(prepared)):
        if text:
            progress.message(text)


class _Facts(TypedDict):
    step: int
    seconds: float
    window: int
    fingerprint: str


class Facts(_Facts, total=False):
    """What a checkpoint says beside its tensors."""

    cpu_seconds: float | None  # not counted in the first versions
    rows: int  # likewise


class TrainJob:
    """One training run in progress."""

    def __init__(
        self,
        prepared: Prepared,
        folder: Path | None,
        state: Any,
        recorder: Recorder,
        clock: Clock,
        callbacks: Sequence[Callback] = (),
        rows: int | None = None,
    ):
        self.prepared, self.folder, self.config, self.trainer = prepared, folder, prepared.config, prepared.trainer
        self.state, self.recorder, self.clock, self.pace = state, recorder, clock, Pace()
        self.log = RunLog(folder, KIND, recorder.step, writers_for(prepared, folder), rows, self.config.seeds)
        # Rows that survive a resumption hold the restarts of earlier parts; the trainer counts from 0 again.
        self.restarts_before = sum(row.get(RESTARTS) or 0 for row in self.log.rows)
        self.failure: EnvironmentFailed | None = None
        self.recent_return: float | None = None  # over the episodes that ended in the last chunk
        env = shown_with(self.config.env, self.config.env_options)
        self.title = f"{env} · {shown_with(self.config.rule, self.config.rule_options)}"
        self.checkpoint_minutes = self.config.checkpoint_minutes
        self.keeper = sharded.keeper(folder)
        self.turns: list[Turn] = keep_turns(folder, recorder.step) if folder and prepared.config.population else []
        self.caller = Caller([*own_callbacks(self.config), *callbacks], self.config.seed, self.config.eval_randomise)

    def work(self, driver: Driver) -> Iterator[None]:
        """Chunk after chunk, until the budget is spent or a callback stops the run."""
        while not self.trainer.done(self.state):
            yield
            self.chunk()
            if self.caller.stopped_by:
                return
        # Only at the end: an interrupted run keeps its unfinished row in the checkpoint, so that the curve is the same as without
        # the interruption.
        self.record(self.recorder.flush(self.clock.seconds))

    def chunk(self) -> None:
        """About a second of training. Should it go wrong, the state before it is kept."""
        # `advance` consumes the state, so going back needs a copy. A large one would cost time and memory at every chunk; then the
        # last periodic checkpoint has to do. Without a folder nobody could use it.
        small = self.folder is not None and checkpoint.size_of(self.state) < BACKUP_BYTES
        backup = checkpoint.copy_of(self.state) if small else None
        # A chunk ends with its row where somebody wants to see the agents at that point, and else when about a second is over.
        most = {"most": self.recorder.window - self.recorder.count} if self.caller.callbacks else {}
        try:
            state, metrics = self.trainer.advance(self.state, **most)
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
        self.record_turns()
        self.record(self.recorder.add(metrics, self.clock.seconds))
        # Where no episode ended in this chunk the bar keeps showing the last known return.
        if np.sum(metrics["episodes"]):
            self.recent_return = float(np.sum(metrics["episode_return"]) / np.sum(metrics["episodes"]))
        # After the first chunk that learns: compiling would make the speed far too low, filling replay far too high.
        if self.recorder.step > self.trainer.warm_iterations * self.trainer.steps_per_iteration:
            self.pace.begin(self.recorder.step)

    def record_turns(self) -> None:
        """Write down what a population has done."""
        if not isinstance(self.trainer, PopulationTrainer):
            return
        turns = [turn._asdict() for turn in self.trainer.told()]
        self.turns += turns
        if self.folder is not None:
            write_turns(self.folder, turns)

    def record(self, rows: list[Row]) -> None:
        """Show finished rows to the callbacks, and write them down."""
        try:
            if rows and self.caller.callbacks:
                every, step = [*self.log.rows, *rows], self.recorder.step
                self.caller(every, lambda: agents_of(self.prepared, self.state, step, every), self.trainer.done(self.state))
        except CallbackFailed as error:
            # The state is good and the row is complete but for what the callback would have added.
            self.log.write(rows)
            self.save()
            raise TrainingStopped(f"training stopped: {error}{self.what_is_kept()}") from error.__cause__
        self.log.write(rows)

    def save(self) -> None:
        """Write the checkpoint."""
        if self.folder is None:
            return
        facts = {
            "step": self.recorder.step,
            "seconds": self.clock.seconds,
            # NaN, for a run from before it was counted, becomes null: JSON has no NaN.
            "cpu_seconds": jsonable(self.clock.cpu_seconds),
            "window": self.recorder.window,
            # So that a resumption can tell whether config.json still describes this state.
            "fingerprint": self.prepared.record["fingerprint"],
            # So that it can also tell whether one of them is gone.
            "rows": len(self.log.rows),
        }
        self.log.sync()
        if self.keeper:
            self.keeper.save(self.state, self.recorder.pending(), facts)
        else:
            path, pending = self.folder / folders.CHECKPOINT, self.recorder.pending()
            checkpoint.save(path, self.state, pending, facts, self.config.checkpoints)

    def conclude(self, finished: bool) -> Run:
        """The run as it stands; in its folder, the curve, the summary and the page."""
        # A run that a callback stopped comes here in the normal way, but its budget is not spent.
        run = Run(self.config, self.folder, self.log.rows, finished and self.trainer.done(self.state), self.clock.seconds)
        run.source, run.stopped_by, run.turns = (self.prepared, self.state), self.caller.stopped_by, self.turns
        run.steps_per_second = self.pace.measure(self.recorder.step, self.config.steps)[0] * self.config.seeds
        run.cpu_seconds, run.made, run.last_failure = self.clock.cpu_seconds, self.recorder.step, self.trainer.last_failure
        # The chunk that failed has no row, so the restarts that led up to the failure are in no row either.
        if self.failure is not None:
            run.restarts = self.restarts_before + self.failure.restarts
        if self.folder is not None:
            # The stages of a run that is not finished will be made again, so they are not recorded.
            record = functools.partial(self.record_stage, finished)
            record(stages.TRAINED)  # `drive` has saved the checkpoint
            # An interrupted user wants to leave, not to wait for an animation.
            run.write_results(finished and self.config.animation, record)
        return run

    def record_stage(self, finished: bool, stage: str) -> None:
        """Write down that a stage is made."""
        if finished and self.folder is not None:
            stages.record(self.folder, stage, self.recorder.step)

    def close(self) -> None:
        """Files and streams."""
        self.log.close()
        if self.keeper:
            self.keeper.close()
        self.trainer.close()

    # -- what the user reads ----------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """What the progress bar shows."""
        step, total = self.recorder.step, self.config.steps
        speed, left = self.pace.measure(step, total)
        # The last iteration may go beyond the budget, which would show as more than 100 %.
        # That of the latest point of the curve, as the result will have it; a chunk may be most of a short run.
        latest = self.log.rows[-1]["episode_return"] if self.log.rows else None
        facts = [f"return {shown_return(self.recent_return if latest is None else latest)}"]
        # Not known until a second chunk has been timed.
        facts += [f"{count(speed * self.config.seeds)} steps/s"] if speed else []
        return Status(min(step, total), total, facts, left)

    def what_went_wrong(self, name: str, iteration: int, seed: int) -> str:
        """One sentence: what, where, when, and what is left."""
        size = self.trainer.steps_per_iteration
        # The recorder has not seen the bad chunk, so it stands where that chunk began.
        first = self.recorder.step + iteration * size
        who = "member" if self.config.population else "seed"
        return (
            f"training stopped: {BAD.get(name, name)} was not a finite number in environment '{self.config.env}' between steps "
            f"{first} and {first + size} of {who} {seed}{self.what_is_kept()}"
        )

    def what_is_kept(self) -> str:
        """The end of a sentence about a run that cannot go on."""
        if self.folder is None:
            return "; nothing was saved, because no run folder was asked for (out=...)"
        if not (self.folder / folders.CHECKPOINT).exists():
            return ""
        return f"; the last good state is in {self.folder / folders.CHECKPOINT}"

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        where = f"at step {self.recorder.step:,} of {self.config.steps:,}"
        if self.folder is None:
            return f"stopped {where}; nothing was saved, because no run folder was asked for (out=...)"
        objects = {"env": f"env=<{self.config.env}>", "rule": "rule=..."}  # the same again: a folder cannot hold them
        own = "".join(f"{objects[name]}, " for name in self.prepared.record["custom"])
        line = f"rulax.train({own}resume='{self.folder}')  # in Python" if own else f"rulax train --resume {self.folder}"
        return stopped_text(where, line, self.folder / folders.REPORT)


def own_callbacks(config: TrainConfig) -> list[Callback]:
    """Those that settings ask for; evaluation first, since the others judge by it."""
    found: list[Callback] = [Evaluate(config.eval_every, config.eval_episodes)] if config.eval_every else []
    if config.patience or config.stop_at < math.inf:
        found.append(EarlyStopping(config.patience, config.stop_at))
    return [*found, *([SaveBest(config.save_best)] if config.save_best else [])]


def writers_for(prepared: Prepared, folder: Path | None) -> list[Writer]:
    """Where else every number goes: Weights & Biases, if the user asked for it."""
    if not prepared.config.wandb or not processes.first():
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
