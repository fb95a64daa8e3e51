"""`rulax discover`: discovers a rule meta-step by meta-step, and evaluates it on fresh agents.

Every way out leaves a folder from which the run can go on: the end, Ctrl-C, SIGTERM, too many bad meta-gradients, and a kill.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from rulax.commands import resume as resuming
from rulax.commands.discover.evaluations import Evaluator, Result
from rulax.commands.discover.memory import plan_memory
from rulax.commands.discover.result import LAST, RULE, DiscoveryRun, Spent
from rulax.commands.discover.rows import DiscoveryStatus, as_iteration, make_row
from rulax.commands.discover.settings import DiscoverConfig, build_discover, whole_specs
from rulax.commands.discover.setup import KIND, PreparedDiscovery, fixed_part, prepare_discovery, saved_discovery
from rulax.commands.discover.show import CARD, as_markdown, as_metadata, card_facts, evaluation_line, show
from rulax.commands.driver import Clock, Driver, Pace, Stopped, drive, stopped_text
from rulax.commands.progress import make_progress
from rulax.commands.settings import parts_of, read_values
from rulax.commands.signals import StopRequest
from rulax.errors import TrainingStopped, UserError
from rulax.files import write_atomically, write_json
from rulax.records import checkpoint
from rulax.records import folder as folders
from rulax.records.rows import Recorder, RunLog
from rulax.settings import with_current_names

ROWS = 500  # of the curve: meta-steps are gathered into about so many
RESULTS = ("first", "best", "last")  # evaluations that are remembered


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    show(discover_from(values))
    return 0


def discover_from(values: dict[str, Any]) -> DiscoveryRun:
    """Start or go on, as the values say."""
    return resume(values) if values.get("resume") else start(build_discover(values))


def start(config: DiscoverConfig) -> DiscoveryRun:
    """Discover from the beginning."""
    # Before anything is built: the check costs nothing, and building makes every environment.
    folders.check_free(config.out)
    prepared = prepare_discovery(config)
    progress = make_progress(config.quiet)
    with StopRequest(progress.message) as stop:
        state = prepared.discoverer.init(jax.random.key(config.seed))
        folder = folders.create_new(config.out, KIND, config.suite[:40] or "own")
        # Before the checkpoint: a folder with a checkpoint always has the settings that it belongs to.
        write_json(folder / folders.CONFIG, prepared.record)
        # A row for every meta-step of a long run would make a file and a page that are too large to open.
        recorder = Recorder(max(1, config.steps // ROWS), 1, row_of=make_row)
        job = DiscoverJob(prepared, folder, state, recorder, Clock())
        job.save()  # before compiling, which can take long
        return drive(job, progress, stop)


def resume(values: dict[str, Any]) -> DiscoveryRun:
    """Go on from the checkpoint in a run folder."""
    folder = Path(values["resume"])
    record = resuming.read_record(folder, KIND)
    given = read_values(DiscoverConfig, values)
    # Only where families were given: an empty tuple would count as a setting that differs from the folder's.
    given |= {name: specs for name, specs in whole_specs(given).items() if name in given}
    changes = resuming.accept(DiscoverConfig, given, record["settings"] | fixed_part(record), folder)
    found = checkpoint.load(folder / folders.CHECKPOINT)
    config = saved_discovery(record, changes)
    facts = found.facts
    resuming.check_budget(folder, facts["step"], config.steps, "steps" in given, "meta-steps")
    prepared = prepare_discovery(config)
    prepared = prepared._replace(record={**prepared.record, "command": record.get("command")})  # what started it, for its card
    # By name and not only by fingerprint, so that the error can say which setting differs.
    then = with_current_names(facts["fixed"], *parts_of(DiscoverConfig))
    # A setting that is younger than the checkpoint is not in it, and was completed with what runs did before it existed.
    now = {name: value for name, value in fixed_part(prepared.record).items() if name in then}
    changed = resuming.differences(now, then)
    if changed:
        raise UserError(f"the checkpoint in {folder} was written with other settings than its {folders.CONFIG}: {changed}")
    state = checkpoint.unpack(found, prepared.discoverer.skeleton(), folder / folders.CHECKPOINT)
    write_json(folder / folders.CONFIG, prepared.record)
    progress = make_progress(config.quiet)
    with StopRequest(progress.message) as stop:
        recorder = Recorder(facts["window"], 1, facts["step"], found.pending, make_row)
        job = DiscoverJob(prepared, folder, state, recorder, Clock(facts["seconds"], facts["cpu_seconds"]))
        job.bad, job.results = facts["bad"], {name: facts[name] for name in RESULTS}
        job.evaluated = facts["evaluated"] if facts["step"] else -1  # at step 0 its row is not kept, so it is made again
        return drive(job, progress, stop)


class DiscoverJob:
    """One discovery in progress."""

    def __init__(self, prepared: PreparedDiscovery, folder: Path, state: Any, recorder: Recorder, clock: Clock):
        self.prepared, self.folder, self.config, self.discoverer = prepared, folder, prepared.config, prepared.discoverer
        self.state, self.recorder, self.clock, self.pace = state, recorder, clock, Pace()
        self.log = RunLog(folder, KIND, recorder.step)
        self.evaluator = Evaluator(prepared, folder)
        self.evaluated = -1  # the meta-step of the last evaluation
        self.bad = 0  # meta-gradients that were left out
        self.results: dict[str, dict[str, Any] | None] = dict.fromkeys(RESULTS)  # a `Result` each
        self.latest: dict[str, Any] = {}  # the last row of meta-steps
        self.title = f"discover {self.config.suite}".strip()
        self.checkpoint_minutes = self.config.checkpoint_minutes

    @property
    def step(self) -> int:
        """Meta-steps made."""
        return self.recorder.step

    # -- the work ---------------------------------------------------------------------------------------------------------

    def work(self, driver: Driver) -> Iterator[None]:
        """Meta-step after meta-step, with evaluations between them."""
        # Inside of the work, so that Ctrl-C during minutes of compiling still leads to a saved run.
        self.get_ready(driver)
        while not self.discoverer.done(self.state):
            self.evaluate_if_due(driver)
            yield
            self.advance()
        self.log.write(self.recorder.flush(self.clock.seconds))
        self.evaluate_if_due(driver)

    def get_ready(self, driver: Driver) -> None:
        """All that comes before the first meta-step: a plan for memory, baselines, a first evaluation, programs."""
        done = self.discoverer.done(self.state)
        if not done:  # first, because it may refuse
            plan_memory(self.discoverer, self.config.memory_limit, self.folder, driver.message, driver.phase)
        # Needed even when no meta-step is left, because the results are scores.
        self.evaluator.measure(driver.message, driver.phase)
        self.evaluate_if_due(driver)
        if not done:
            self.discoverer.compile(driver.phase)

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
        """At the start, at intervals and at the end; never twice at one meta-step."""
        due = self.step % self.config.evaluate_every == 0 or self.discoverer.done(self.state)
        if not due or self.evaluated == self.step:
            return
        driver.check()
        result = self.evaluator.evaluate(self.state.meta_params, self.step, lambda: driver.stopping, driver.phase)
        # Half an evaluation is no score; it is made again when the run goes on.
        if result is None:
            raise Stopped
        self.log.write([result.row(self.clock.seconds)])
        self.evaluated, self.results["last"] = self.step, dataclasses.asdict(result)
        self.results["first"] = self.results["first"] or self.results["last"]
        best = self.results["best"]
        # Strictly better: of equal rules the earlier one stays, and a resumed run picks the same.
        better = best is None or result.choice > Result(**best).choice
        if better:
            self.results["best"] = self.results["last"]
        # Rules before the checkpoint: one that says that this step was evaluated promises that its rules are on disk. Killed in
        # between, the evaluation is repeated and writes the same files.
        self.write_rules(better)
        self.save()
        driver.message(evaluation_line(result, better))

    # -- what is kept -----------------------------------------------------------------------------------------------------

    def write_rules(self, better: bool) -> None:
        """The current rule, which may also be the best one."""
        from rulax.rules.pretrained import save_rule

        # The last result is also the right one for the best rule, since this is only called right after an evaluation.
        facts = card_facts(self.prepared, self.results["last"], self.spent(), self.evaluator.baselines)
        for name in (LAST, RULE) if better else (LAST,):
            save_rule(self.folder / name, self.state.meta_params, self.prepared.sizes, as_metadata(facts))
        if better:
            write_atomically(self.folder / CARD, as_markdown(facts))

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
        }
        checkpoint.save(self.folder / folders.CHECKPOINT, self.state, self.recorder.pending(), facts)

    def conclude(self, finished: bool) -> DiscoveryRun:
        """The run as it stands, with its pictures."""
        run = DiscoveryRun(self.config, self.folder, self.log.rows, finished, self.spent())
        run.results = dict(self.results)
        run.baselines = {name: each._asdict() for name, each in self.evaluator.baselines.items()}
        run.write_results()
        return run

    def close(self) -> None:
        """Its files."""
        self.log.close()

    # -- what the user reads ----------------------------------------------------------------------------------------------

    def spent(self) -> Spent:
        """What the run has cost."""
        return Spent.of(self.prepared, self.step, self.clock.seconds, self.clock.cpu_seconds, self.bad)

    def status(self) -> DiscoveryStatus:
        """What the progress bar shows."""
        speed, left = self.pace.measure(self.step, self.config.steps)
        last = self.results["last"]
        score = Result(**last).choice if last else None
        returns = {name: self.latest.get(f"return/{name}") for name in self.prepared.training if self.latest}
        norm, held_out = self.latest.get("meta_gradient_norm_of_mean"), bool(self.prepared.validation)
        return DiscoveryStatus(self.step, self.config.steps, speed, left, score, held_out, returns, norm, self.bad)

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        where = f"at meta-step {self.step:,} of {self.config.steps:,}"
        return stopped_text(where, f"rulax discover --resume {self.folder}", self.folder / folders.REPORT)
