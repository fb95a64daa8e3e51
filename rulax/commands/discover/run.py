"""`rulax discover`: discovers a rule meta-step by meta-step, and evaluates it on fresh agents.

Every way out leaves a folder from which the run can go on: the end, Ctrl-C, SIGTERM, too many bad meta-gradients, and a kill.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict

import jax
import jax.numpy as jnp

from rulax.commands import resume as resuming
from rulax.commands.discover.evaluations import Evaluator, Scores
from rulax.commands.discover.memory import plan_memory, reserves
from rulax.commands.discover.result import DiscoveryRun, Spent
from rulax.commands.discover.rows import as_iteration, make_row
from rulax.commands.discover.scale import scaled_text
from rulax.commands.discover.settings import DiscoverConfig, build_discover, whole_specs
from rulax.commands.discover.setup import KIND, PreparedDiscovery, fixed_part, prepare_discovery, saved_discovery
from rulax.commands.discover.show import as_markdown, as_metadata, card_facts, evaluation_line, show
from rulax.commands.driver import Clock, Driver, Pace, Stopped, drive, stopped_text
from rulax.commands.hosts import joined
from rulax.commands.progress import Silent, Status, make_progress
from rulax.commands.run_folder import at_work
from rulax.commands.settings import parts_of, read_values
from rulax.commands.signals import StopRequest
from rulax.discovery.meta_step import DiscoveryState
from rulax.envs.base import EnvironmentFailed
from rulax.errors import TrainingStopped, UserError
from rulax.files import write_atomically, write_json
from rulax.files.reading import blamed
from rulax.own import shown
from rulax.parallel import processes
from rulax.records import checkpoint, sharded, stages
from rulax.records import folder as folders
from rulax.records.rows import Recorder, RunLog
from rulax.settings import with_current_names
from rulax.text import count, shown_return

ROWS = 500  # of the curve: meta-steps are gathered into about so many
RESULTS = ("first", "best", "last")  # evaluations that are remembered
FIRST_STEPS = 10  # meta-steps before the rule of the start is evaluated, if no other evaluation comes sooner
MOST_SHOWN = 3  # families in a line of progress


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    with joined(values) as values:
        run = discover_from(values)
        if processes.first():
            show(run)
    return 0


def discover_from(values: dict[str, Any]) -> DiscoveryRun:
    """Start or go on, as the values say."""
    return resume(values) if values.get("resume") else start(build_discover(values))


def start(config: DiscoverConfig, progress: Silent | None = None, stop: StopRequest | None = None) -> DiscoveryRun:
    """Discover from the beginning. A discovery that is a part of something reports to that, and is stopped by it."""
    # Before anything is built: the check costs nothing, and building makes every environment.
    folders.check_free(config.out)
    prepared = prepare_discovery(config)
    progress = progress or make_progress(config.quiet)
    if config.scale < 1:
        progress.message(scaled_text(config.scale, config.scaled))
    with nullcontext(stop) if stop else StopRequest(progress.message) as stop:
        state = prepared.discoverer.init(jax.random.key(config.seed))
        folder = folders.create_new(config.out, KIND, config.suite[:40] or "own")
        with at_work(folder, KIND, fresh=True):
            stages.begin(folder)
            # Before the checkpoint: a folder with a checkpoint always has the settings that it belongs to.
            write_json(folder / folders.CONFIG, prepared.record)
            job = DiscoverJob(prepared, folder, state, first_rows(config), Clock())
            job.save()  # before compiling, which can take long
            return drive(job, progress, stop)


def first_rows(config: DiscoverConfig) -> Recorder:
    """What gathers the rows of a run from its beginning."""
    # A row for every meta-step of a long run would make a file and a page that are too large to open.
    return Recorder(max(1, config.steps // ROWS), 1, row_of=make_row)


def resume(values: dict[str, Any], progress: Silent | None = None, stop: StopRequest | None = None) -> DiscoveryRun:
    """Go on from the checkpoint in a run folder."""
    folder = Path(values["resume"])
    resuming.read_record(folder, KIND)  # a folder without a run is told so before anything is written there
    with at_work(folder, KIND):
        job, progress = taken_up(folder, values, progress)
        with nullcontext(stop) if stop else StopRequest(progress.message) as stop:
            return drive(job, progress, stop)


def taken_up(folder: Path, values: dict[str, Any], progress: Silent | None) -> tuple[DiscoverJob, Silent]:
    """What is left of the discovery in a folder, and what shows it."""
    record = resuming.read_record(folder, KIND)
    given = read_values(DiscoverConfig, values)
    # Only where families were given: an empty tuple would count as a setting that differs from the folder's.
    given |= {name: specs for name, specs in whole_specs(given).items() if name in given}
    with blamed(folder / folders.CONFIG):
        changes = resuming.accept(DiscoverConfig, given, record["settings"] | fixed_part(record), folder)
        config = saved_discovery(record, changes)
    again = resuming.before_first_checkpoint(sharded.folder_of_all(folder))
    found = None if again else sharded.load(folder, Facts)
    facts: dict[str, Any] = {"step": 0} if found is None else found.facts
    missing = stages.missing(folder, stages.OF_DISCOVERY, facts["step"])
    resuming.check_budget(folder, facts["step"], config.steps, "steps" in given, "meta-steps", left=bool(missing))
    prepared = prepare_discovery(config)
    prepared = prepared._replace(record={**prepared.record, "command": record.get("command")})  # what started it, for its card
    if found is not None:
        check_fixed(folder, prepared, facts["fixed"])
    progress = progress or make_progress(config.quiet)
    if note := resuming.what_is_left(folder, facts["step"] >= config.steps, missing, again):
        progress.message(note)
    if found is None:
        write_json(folder / folders.CONFIG, prepared.record)
        state = prepared.discoverer.init(jax.random.key(config.seed))
        return DiscoverJob(prepared, folder, state, first_rows(config), Clock()), progress
    state = sharded.unpack(found, prepared.discoverer, folder / folders.CHECKPOINT)
    with blamed(folder / folders.CHECKPOINT):
        recorder = Recorder(facts["window"], 1, facts["step"], found.pending, make_row)
    checkpoint.settle(found, folder / folders.CHECKPOINT)
    write_json(folder / folders.CONFIG, prepared.record)
    job = DiscoverJob(prepared, folder, state, recorder, Clock(facts["seconds"], facts["cpu_seconds"]), facts.get("rows"))
    for note in filter(None, (found.note, job.log.note)):
        progress.message(note)
    job.bad, job.results = facts["bad"], {name: facts[name] for name in RESULTS}
    job.evaluated = facts["evaluated"] if facts["step"] else -1  # at step 0 its row is not kept, so it is made again
    # Evaluations from after the checkpoint will be made again, also that of its own step: it is saved before it is evaluated.
    job.log.drop("evaluation", job.evaluated)
    if job.evaluated < 0:
        # The start is yet to be evaluated: the same rule again, since the seed determines it.
        job.start = prepared.discoverer.rule(prepared.discoverer.init(jax.random.key(config.seed)))
    return job, progress


def check_fixed(folder: Path, prepared: PreparedDiscovery, fixed: dict[str, Any]) -> None:
    """Refuse a checkpoint that was written with other settings."""
    # By name and not only by fingerprint, so that the error can say which setting differs.
    then = with_current_names(fixed, *parts_of(DiscoverConfig))
    # A setting that is younger than the checkpoint is not in it, and was completed with what runs did before it existed.
    now = {name: value for name, value in fixed_part(prepared.record).items() if name in then}
    changed = resuming.differences(now, then)
    if changed:
        raise UserError(f"the checkpoint in {folder} was written with other settings than its {folders.CONFIG}: {changed}")


class _Facts(TypedDict):
    step: int
    seconds: float
    cpu_seconds: float
    window: int
    evaluated: int
    bad: int
    first: Scores | None
    best: Scores | None
    last: Scores | None
    fixed: dict[str, Any]


class Facts(_Facts, total=False):
    """What a checkpoint says beside its tensors."""

    rows: int  # not counted in the first versions


class DiscoverJob:
    """One discovery in progress."""

    def __init__(
        self,
        prepared: PreparedDiscovery,
        folder: Path,
        state: DiscoveryState,
        recorder: Recorder,
        clock: Clock,
        rows: int | None = None,
    ):
        self.prepared, self.folder, self.config, self.discoverer = prepared, folder, prepared.config, prepared.discoverer
        self.state, self.recorder, self.clock, self.pace = state, recorder, clock, Pace()
        self.log = RunLog(folder, KIND, recorder.step, kept=rows)
        self.evaluator = Evaluator(prepared, folder)
        self.evaluated = -1  # the meta-step of the last evaluation
        # Evaluated only after the first meta-steps, when it is no longer the rule of the state; a copy, as those consume the state.
        self.start = jax.tree.map(jnp.copy, self.discoverer.rule(state))
        self.bad = 0  # meta-gradients that were left out
        self.results: dict[str, dict[str, Any] | None] = dict.fromkeys(RESULTS)  # `Scores` each
        self.latest: dict[str, Any] = {}  # the last row of meta-steps
        self.title = f"discover {shown(self.config.suite)}".strip()
        self.checkpoint_minutes = self.config.checkpoint_minutes
        self.keeper = sharded.keeper(folder)

    @property
    def step(self) -> int:
        """Meta-steps made."""
        return self.recorder.step

    # -- the work ---------------------------------------------------------------------------------------------------------

    def work(self, driver: Driver) -> Iterator[None]:
        """Meta-step after meta-step, with evaluations between them."""
        try:
            yield from self.meta_steps(driver)
        except EnvironmentFailed as error:
            # Nothing is saved here: a meta-step that failed has consumed the state before it.
            where = self.folder / folders.CHECKPOINT
            raise TrainingStopped(f"discovery stopped: {error}; the last good state is in {where}") from error

    def meta_steps(self, driver: Driver) -> Iterator[None]:
        """The work itself."""
        if self.evaluated >= 0:  # a resumed run, which finds the baselines of its scores in its folder
            self.evaluator.measure(driver.message, driver.phase)
        if not self.discoverer.done(self.state):
            # Inside of the work, so that Ctrl-C during minutes of compiling still leads to a saved run.
            for text in reserves(self.discoverer, self.config.replay_limit):
                driver.message(text)
            plan_memory(self.discoverer, self.config.memory_limit, self.folder, driver.message, driver.phase)
            self.discoverer.compile(driver.phase)
        while not self.discoverer.done(self.state):
            self.evaluate_if_due(driver)
            yield
            self.advance()
        self.log.write(self.recorder.flush(self.clock.seconds))
        self.evaluate_if_due(driver)

    def advance(self) -> None:
        """One meta-step, and its row."""
        # Assigned before the check: where that raises, `drive` saves nothing, and the checkpoint stays the last good state.
        self.state, metrics = self.discoverer.advance(self.state)
        self.bad += int(metrics[""]["bad_agents"])
        # A few bad meta-gradients in a long run are left out and forgiven; a rule that has diverged produces nothing else.
        if self.bad > self.config.most_bad:
            raise TrainingStopped(
                f"discovery stopped at meta-step {self.step + 1}: {self.bad} meta-gradients were not finite numbers, more than "
                f"most_bad ({self.config.most_bad}); the last good state is in {self.folder / folders.CHECKPOINT}, and a lower "
                "--meta-learning-rate or --learning-rate may help"
            )
        rows = self.recorder.add(as_iteration(metrics), self.clock.seconds)
        self.log.write(rows)
        self.latest = rows[-1] if rows else self.latest
        self.pace.begin(self.step)

    def evaluate_if_due(self, driver: Driver) -> None:
        """At intervals and at the end, never twice at one meta-step; and once the rule of the start."""
        done, before = self.discoverer.done(self.state), self.clock.seconds
        # Not at once: baselines and evaluations take minutes to compile, and a user should first see discovery at work.
        if self.evaluated < 0 and (done or self.step >= min(FIRST_STEPS, self.config.evaluate_every)):
            self.evaluate(self.start, 0, driver)
        due = self.step > 0 and self.step % self.config.evaluate_every == 0
        if (due or done) and self.evaluated != self.step:
            self.evaluate(self.discoverer.rule(self.state), self.step, driver)
        self.pace.leave_out(self.clock.seconds - before)

    def evaluate(self, rule: Any, step: int, driver: Driver) -> None:
        """The scores of the rule of a meta-step, and its files."""
        driver.check()
        self.save()  # an evaluation takes minutes, and on the host its environments may fail
        # Also where no meta-step is left, because the results are scores; a second time it does nothing.
        self.evaluator.measure(driver.message, driver.phase)
        result = self.evaluator.evaluate(rule, step, lambda: driver.stopping, driver.phase)
        # Half an evaluation is no score; it is made again when the run goes on.
        if result is None:
            raise Stopped
        self.log.write([result.row(self.clock.seconds)])
        self.evaluated, self.results["last"] = step, dataclasses.asdict(result)
        self.results["first"] = self.results["first"] or self.results["last"]
        best = self.results["best"]
        # Strictly better: of equal rules the earlier one stays, and a resumed run picks the same.
        better = best is None or result.choice > Scores(**best).choice
        if better:
            self.results["best"] = self.results["last"]
        # Rules before the checkpoint: one that says that this step was evaluated promises that its rules are on disk. Killed in
        # between, the evaluation is repeated and writes the same files.
        self.write_rules(rule, step, better)
        self.save()
        driver.message(evaluation_line(result, better))

    # -- what is kept -----------------------------------------------------------------------------------------------------

    def write_rules(self, rule: Any, step: int, better: bool) -> None:
        """The rule that was evaluated, which may also be the best one."""
        from rulax.rules.pretrained import save_rule

        # The last result is also the right one for the best rule, since this is only called right after an evaluation.
        facts = card_facts(self.prepared, self.results["last"], self.spent(step), self.evaluator.baselines)
        for name in (folders.LAST, folders.RULE) if better else (folders.LAST,):
            save_rule(self.folder / name, rule, self.prepared.sizes, as_metadata(facts))
        if better:
            write_atomically(self.folder / folders.CARD, as_markdown(facts))

    def save(self) -> None:
        """Write the checkpoint."""
        facts = {
            "step": self.step,
            "seconds": self.clock.seconds,
            "cpu_seconds": self.clock.cpu_seconds,
            "window": self.recorder.window,
            "evaluated": self.evaluated,
            "bad": self.bad,
            **self.results,
            # The settings themselves and not only a hash: see `resume`, which names the one that differs.
            "fixed": fixed_part(self.prepared.record),
            "rows": len(self.log.rows),
        }
        self.log.sync()
        if self.keeper:
            self.keeper.save(self.state, self.recorder.pending(), facts)
        else:
            path, pending = self.folder / folders.CHECKPOINT, self.recorder.pending()
            checkpoint.save(path, self.state, pending, facts, self.config.checkpoints)

    def conclude(self, finished: bool) -> DiscoveryRun:
        """The run as it stands, with its pictures."""
        run = DiscoveryRun(self.config, self.folder, self.log.rows, finished, self.spent(self.step))
        run.results = dict(self.results)
        run.baselines = {name: each._asdict() for name, each in self.evaluator.baselines.items()}
        if finished:  # the stages of a run that is not will be made again, so they are not recorded
            stages.record(self.folder, stages.TRAINED, self.step)
            stages.record(self.folder, stages.EVALUATED, self.step)
        run.write_results(lambda stage: stages.record(self.folder, stage, self.step) if finished else None)
        return run

    def close(self) -> None:
        """Its files and environments."""
        self.log.close()
        if self.keeper:
            self.keeper.close()
        self.discoverer.close()
        self.evaluator.close()

    # -- what the user reads ----------------------------------------------------------------------------------------------

    def spent(self, step: int) -> Spent:
        """What the run has cost up to a meta-step, in the time until now."""
        return Spent.of(self.prepared, step, self.clock.seconds, self.clock.cpu_seconds, self.bad)

    def status(self) -> Status:
        """What the progress bar shows."""
        speed, left = self.pace.measure(self.step, self.config.steps)
        last = self.results["last"]
        score = Scores(**last).choice if last else None
        role, families = "validation" if self.prepared.validation else "training", list(self.prepared.training)
        returns = ", ".join(f"{shown(name)} {shown_return(self.latest.get(f'return/{name}'))}" for name in families[:MOST_SHOWN])
        more = f", {len(families) - MOST_SHOWN} more" if len(families) > MOST_SHOWN else ""
        facts = [f"{role} score {shown_return(score)}", f"return {returns}{more}" if self.latest else "return -"]
        facts += [f"meta-gradient {shown_return(self.latest.get('meta_gradient_norm_of_mean'))}"]
        facts += [f"{self.bad} left out"] if self.bad else []
        return Status(self.step, self.config.steps, [*facts, f"{count(speed)} meta-steps/s"], self.with_evaluations(left))

    def with_evaluations(self, left: float | None) -> float | None:
        """Seconds to the end: those of the meta-steps that are left and of their evaluations, once it is known what one takes."""
        each = self.evaluator.seconds
        if left is None or each is None:
            return None
        every, total = self.config.evaluate_every, self.config.steps
        return left + each * (-(-total // every) - self.step // every)

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        where = f"at meta-step {self.step:,} of {self.config.steps:,}"
        return stopped_text(where, f"rulax discover --resume {self.folder}", self.folder / folders.REPORT)
