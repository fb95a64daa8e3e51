"""`rulax discover`: drives a Discoverer meta-step by meta-step, evaluates its rule on fresh agents, and keeps its run folder.

Every way out leaves a folder from which the run can go on: the end, Ctrl-C, SIGTERM, too many bad meta-gradients, and a kill.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax

from rulax.commands.discover import show as report
from rulax.commands.discover.evaluations import Evaluator, Result
from rulax.commands.discover.memory import plan_memory
from rulax.commands.discover.result import LAST, RULE, DiscoveryRun, Spent
from rulax.commands.discover.rows import DiscoveryLog, DiscoveryStatus, Gatherer
from rulax.commands.discover.settings import DiscoverConfig, build_discover
from rulax.commands.discover.setup import PreparedDiscovery, differences, fixed_part, prepare_discovery, saved_discovery
from rulax.commands.progress import Silent, make_progress
from rulax.commands.signals import StopRequest
from rulax.errors import Interrupted, TrainingStopped, UserError
from rulax.records import checkpoint
from rulax.records import folder as folders

ROWS = 500  # of the curve: meta-steps are gathered into about so many
MAY_CHANGE = ("resume", "steps", "most_bad", "checkpoint_minutes", "platform", "quiet", "memory_limit")


class Stopped(Exception):
    """Somebody asked to stop, in a place where only an exception leads out."""


@dataclasses.dataclass
class Books:
    """What the host must remember beside the state of discovery, saved with it."""

    step: int = 0
    evaluated: int = -1  # the meta-step of the last evaluation
    bad: int = 0  # meta-gradients that were left out
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows_of: int = 1  # meta-steps per row
    best: dict[str, Any] | None = None  # the `Result` that the rule was picked by
    last: dict[str, Any] | None = None
    first: dict[str, Any] | None = None


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    report.show(discover_from(values))
    return 0


def discover_from(values: dict[str, Any]) -> DiscoveryRun:
    """Start or go on, as the values say."""
    return resume(values) if values.get("resume") else start(build_discover(values))


def start(config: DiscoverConfig) -> DiscoveryRun:
    """Discover from the beginning."""
    folder = Path(config.out) if config.out else None
    if folder is not None:
        folders.check_free(folder)
    prepared = prepare_discovery(config)
    progress = make_progress(config.quiet)
    with StopRequest(progress.message) as stop:
        state = prepared.discoverer.init(jax.random.key(config.seed))
        if folder is None:
            folder = folders.create_numbered("discover", config.suite[:40] or "own")
        else:
            folders.create(folder)
        folders.write_json(folder / folders.CONFIG, prepared.record)
        driver = Driver(prepared, folder, progress, Books(rows_of=max(1, config.steps // ROWS)))
        driver.save(state)  # before compiling, which can take long
        return driver.drive(state, stop)


def resume(values: dict[str, Any]) -> DiscoveryRun:
    """Go on from the checkpoint in a run folder."""
    folder = Path(values["resume"])
    record = folders.read_config(folder)
    if "discovery" not in record:
        raise UserError(f"{folder} holds no discovery; if it is a training run: rulax train --resume {folder}")
    changes = {name: value for name, value in values.items() if name in MAY_CHANGE and name != "resume"}
    refuse_changes(values, record, folder)
    found = checkpoint.load(folder / folders.CHECKPOINT)
    config = saved_discovery(record, changes)
    books = Books(**found.facts["books"])
    if config.steps <= books.step and "steps" not in values:
        raise UserError(f"{folder} is finished, after {books.step} meta-steps; --steps N with a larger N goes on")
    if config.steps < books.step:
        raise UserError(f"{folder} has already made {books.step} meta-steps, more than --steps {config.steps}")
    prepared = prepare_discovery(config)
    prepared = prepared._replace(record={**prepared.record, "command": record.get("command")})  # what started it, for its card
    changed = differences(fixed_part(prepared.record), found.facts["fixed"])
    if changed:
        raise UserError(f"the checkpoint in {folder} was written with other settings than its {folders.CONFIG}: {changed}")
    tensors, pending = checkpoint.split(found.tensors)
    state = checkpoint.unpack(tensors, prepared.discoverer.skeleton(), folder / folders.CHECKPOINT)
    folders.write_json(folder / folders.CONFIG, prepared.record)
    progress = make_progress(config.quiet)
    with StopRequest(progress.message) as stop:
        if books.step == 0:
            books.evaluated = -1  # its row is not kept when nothing else is
        return Driver(prepared, folder, progress, books, pending).drive(state, stop)


def refuse_changes(values: dict[str, Any], record: dict[str, Any], folder: Path) -> None:
    """What a resumed run computes cannot change on the way; say what would."""
    saved = fixed_part(record) | {"suite": record["settings"]["suite"]}
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if name not in MAY_CHANGE}
    for name in given:
        if name not in saved:
            raise UserError(f"{name} cannot be given with --resume; only {', '.join(MAY_CHANGE[1:])} can")
    changed = differences({name: value for name, value in given.items() if value}, saved)
    if changed:
        raise UserError(f"{folder} was started with other settings, which a resumed run keeps: {changed}")


class Driver:
    """One discovery in progress."""

    def __init__(self, prepared: PreparedDiscovery, folder: Path, progress: Silent, books: Books, pending: Any = None):
        self.prepared, self.folder, self.progress, self.books = prepared, folder, progress, books
        self.config, self.discoverer = prepared.config, prepared.discoverer
        self.log = DiscoveryLog(folder, books.step)
        self.gatherer = Gatherer(books.rows_of, pending)
        self.examiner = Evaluator(prepared, folder)
        self.began = (time.monotonic() - books.seconds, time.process_time() - books.cpu_seconds)
        self.saved_at = time.monotonic()
        self.measured_from: tuple[float, int] | None = None  # time and meta-step after the first one
        self.latest: dict[str, Any] = {}  # the last row of meta-steps
        self.stop: StopRequest

    # -- the run ----------------------------------------------------------------------------------------------------------

    def drive(self, state: Any, stop: StopRequest) -> DiscoveryRun:
        """Meta-step after meta-step, until the budget is spent or somebody asks to stop."""
        self.stop = stop
        self.progress.start(f"discover {self.config.suite}".strip(), self.status())
        try:
            try:
                self.ready(state)
                while not self.discoverer.done(state):
                    self.evaluate_if_due(state)
                    self.check_stop()
                    state = self.advance(state)
                self.evaluate_if_due(state)
            except Stopped:
                pass
            finished = self.discoverer.done(state) and self.books.evaluated == self.books.step
            self.save(state)
            run = self.result(state, finished)
        finally:
            self.progress.stop()
            self.log.close()
        if not finished:
            where = f"stopped at meta-step {self.books.step:,} of {self.config.steps:,}; everything is saved"
            page = f"What there is so far:\n  {self.folder / folders.REPORT}"
            raise Interrupted(f"{where}. To go on:\n  rulax discover --resume {self.folder}\n{page}", run)
        return run

    def ready(self, state: Any) -> None:
        """All that comes before the first meta-step: a plan for memory, yardsticks, a first evaluation, programs."""
        if not self.discoverer.done(state):  # first, because it may refuse
            plan_memory(self.discoverer, self.config.memory_limit, self.folder, self.progress.message, self.phase)
        self.examiner.measure(self.progress.message, self.phase)
        self.evaluate_if_due(state)
        if not self.discoverer.done(state):
            self.discoverer.compile(self.phase)

    def advance(self, state: Any) -> Any:
        """One meta-step, and what is written about it."""
        state, metrics = self.discoverer.advance(state)
        books = self.books
        books.step += 1
        books.bad += int(metrics[""]["bad_agents"])
        if books.bad > self.config.most_bad:
            raise TrainingStopped(self.what_went_wrong(metrics))
        rows = self.gatherer.add(metrics, books.step, self.clock(), self.discoverer.done(state))
        self.log.write(rows)
        self.latest = rows[-1] if rows else self.latest
        if self.measured_from is None:
            self.measured_from = (time.monotonic(), books.step)
        self.progress.update(self.status())
        if time.monotonic() - self.saved_at > 60 * self.config.checkpoint_minutes:
            self.save(state)
        return state

    def evaluate_if_due(self, state: Any) -> None:
        """At the start, at intervals and at the end; never twice at one meta-step."""
        step, books = self.books.step, self.books
        due = step % self.config.evaluate_every == 0 or self.discoverer.done(state)
        if not due or books.evaluated == step:
            return
        self.check_stop()
        result = self.examiner.evaluate(state.meta_params, step, lambda: self.stop.requested, self.phase)
        if result is None:
            raise Stopped
        self.log.write([result.row(self.clock())])
        books.evaluated, books.last = step, dataclasses.asdict(result)
        books.first = books.first or books.last
        better = books.best is None or result.choice > Result(**books.best).choice
        if better:
            books.best = books.last
        self.clock()
        self.write_rules(state, better)
        self.save(state)
        self.progress.message(report.evaluation_line(result, better))

    # -- what is kept -----------------------------------------------------------------------------------------------------

    def write_rules(self, state: Any, better: bool) -> None:
        """The rule as it is, and as the best one if it is that."""
        from rulax.rules.pretrained import save_rule

        facts = report.card_facts(self.prepared, self.books.last, self.spent(), self.examiner.baselines)
        about = report.as_metadata(facts)
        save_rule(self.folder / LAST, state.meta_params, self.prepared.sizes, about)
        if better:
            save_rule(self.folder / RULE, state.meta_params, self.prepared.sizes, about)
            folders.write_atomically(self.folder / report.CARD, report.as_markdown(facts))

    def save(self, state: Any) -> None:
        """Write the checkpoint."""
        self.saved_at = time.monotonic()
        self.clock()
        facts = {"books": dataclasses.asdict(self.books), "fixed": fixed_part(self.prepared.record)}
        checkpoint.save(self.folder / folders.CHECKPOINT, state, self.gatherer.pending(), facts)

    def result(self, state: Any, finished: bool) -> DiscoveryRun:
        """The run as it stands, with its pictures."""
        run = DiscoveryRun(self.config, self.folder, self.log.rows, finished, self.spent())
        run.results = {name: getattr(self.books, name) for name in ("first", "best", "last")}
        run.baselines = {name: sticks._asdict() for name, sticks in self.examiner.baselines.items()}
        run.write_results()
        return run

    # -- small things -----------------------------------------------------------------------------------------------------

    def clock(self) -> float:
        """Time spent, earlier parts of a resumed run included; both clocks are written into the books."""
        self.books.seconds = time.monotonic() - self.began[0]
        self.books.cpu_seconds = time.process_time() - self.began[1]
        return self.books.seconds

    def spent(self) -> Spent:
        """What the run has cost."""
        return Spent.of(self.prepared, self.books.step, self.books.seconds, self.books.cpu_seconds, self.books.bad)

    def check_stop(self) -> None:
        """Leave, if somebody asked for it."""
        if self.stop.requested:
            raise Stopped

    def phase(self, text: str) -> None:
        """Say what takes its time; before it begins is a good moment to stop."""
        self.check_stop()
        self.progress.phase(text)

    def status(self) -> DiscoveryStatus:
        """What the progress bar shows."""
        step, speed, left = self.books.step, 0.0, None
        if self.measured_from is not None and step > self.measured_from[1]:
            speed = (step - self.measured_from[1]) / (time.monotonic() - self.measured_from[0])
            left = max(0.0, (self.config.steps - step) / speed)
        score = Result(**self.books.last).choice if self.books.last else None
        returns = {name: self.latest.get(f"return/{name}") for name in self.prepared.training if self.latest}
        norm = self.latest.get("meta_gradient_norm_of_mean")
        held_out = bool(self.prepared.validation)
        return DiscoveryStatus(step, self.config.steps, speed, left, score, held_out, returns, norm, self.books.bad)

    def what_went_wrong(self, metrics: dict[str, Any]) -> str:
        """One sentence: what, when, and what is left."""
        return (
            f"discovery stopped at meta-step {self.books.step}: {self.books.bad} meta-gradients were not finite numbers, more than "
            f"most_bad ({self.config.most_bad}); the last good state is in {self.folder / folders.CHECKPOINT}, and a lower "
            "--meta-learning-rate or --learning-rate may help"
        )
