"""`rulax tune` and `rulax train --tune`: trial after trial, each a run of `rulax train`, then the best settings on fresh seeds.

The folder of a sweep holds `config.json`, the journal of the search, `tune.json` (all results), a run folder for each trial in
`trials/` and one for the result. Whatever stops it, `--resume` goes on, and more `--trials` extend it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rulax.commands import build
from rulax.commands import resume as resuming
from rulax.commands.cells import FAILED, SCORE, TUNE, Cell, CellsProgress, cost_of, failure, finished, read_cell, train_cell
from rulax.commands.driver import Driver, Job, Stopped, drive, stopped_text
from rulax.commands.names import take_options
from rulax.commands.progress import Status, make_progress
from rulax.commands.run_folder import at_work
from rulax.commands.search_space import Choices, split_rule
from rulax.commands.settings import check_bounds, read_values
from rulax.commands.signals import StopRequest
from rulax.commands.train.setup import prepare
from rulax.commands.tune.results import results
from rulax.commands.tune.settings import TuneConfig, build_tune, settings_of, training
from rulax.commands.tune.show import Sweep, show
from rulax.commands.tune.study import Study, Trial, check_installed
from rulax.errors import Interrupted, InUse, TrainingStopped, UserError
from rulax.files import write_json
from rulax.files.reading import blamed
from rulax.learning.members import OF_GRADIENT_STEPS
from rulax.own import shown
from rulax.records import folder as folders
from rulax.records import stages
from rulax.records.provenance import how_made
from rulax.report.tune import write_tune_page

KIND = "tune"
RESULTS = (stages.SUMMARY, stages.PAGE)


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    show(tune_from(values), bool(values.get("quiet")))
    return 0


def tune_from(values: dict[str, Any]) -> Sweep:
    """Start a sweep, or go on with one."""
    check_installed()
    config, record = resumed(values) if values.get("resume") else fresh(values)
    recommended = checked(config)
    progress = make_progress(config.quiet)
    with StopRequest(progress.message) as stop:
        folder = folders.create_new(config.out, KIND, config.env, config.rule)
        with at_work(folder, KIND, fresh=not values.get("resume")):
            if not values.get("resume"):
                stages.begin(folder)
            write_json(folder / folders.CONFIG, record)
            job = TuneJob(dataclasses.replace(config, out=str(folder)), record, recommended)
            if values.get("resume"):
                made = len(job.study.trials())
                left = not job.is_finished() or bool(stages.missing(folder, RESULTS, made))
                resuming.check_budget(folder, made, config.trials, "trials" in values, "trials", "--trials", left)
            return drive(job, progress, stop)


def fresh(values: Mapping[str, Any]) -> tuple[TuneConfig, dict[str, Any]]:
    """A new sweep: its configuration and what its config.json will say."""
    config = build_tune(values)
    folders.check_free(config.out)
    return config, how_made(KIND, settings_of(config))


def resumed(values: Mapping[str, Any]) -> tuple[TuneConfig, dict[str, Any]]:
    """An earlier sweep, with the changes that a resumed one may make."""
    folder = Path(values["resume"])
    record = resuming.read_record(folder, KIND)
    # By today's names: those of an earlier version are not the user's to correct.
    given = take_options(read_values(TuneConfig, values))
    with blamed(folder / folders.CONFIG):
        kept = read_values(TuneConfig, record["settings"], str(folder / folders.CONFIG))
        saved = build_tune(kept)
        # As they are recorded: lists that were split at their commas are joined, and defaults resolved.
        now = settings_of(build_tune(kept | {name: value for name, value in given.items() if name != "resume"}))
        resolved = {name: now.get(name, value) for name, value in given.items()}
        changes = resuming.accept(TuneConfig, resolved, settings_of(saved), folder)
    config = dataclasses.replace(saved, **changes, out=str(folder))
    check_bounds(config)
    return config, record | {"settings": settings_of(config)}


def checked(config: TuneConfig) -> dict[str, Any]:
    """Build the training without what is tuned, which finds every other mistake; the recommended settings, if they may be tried."""
    prepared = prepare(training(config, "", {}, trial=True))
    prepared.trainer.close()
    space = config.space
    idle = [name for name in space if name in OF_GRADIENT_STEPS and not prepared.recipe.rule.by_gradient]
    if idle:
        raise UserError(f"--tune: {idle[0]} does nothing for rule '{config.rule}', whose agents take no gradient steps")
    for name, dimension in space.items():
        ends = dimension.values.values() if isinstance(dimension, Choices) else (dimension.low, dimension.high)
        for end in ends:
            options = split_rule({name: end})[1]
            if options:  # settings of agents are checked by their bounds; what options allow only the rule knows
                build.registered_recipe(config.rule, config.rule_options | options)
    known = dataclasses.asdict(prepared.recipe.learning) | dataclasses.asdict(prepared.recipe.network)
    inside = all(name in known and dimension.holds(known[name]) for name, dimension in space.items())
    return {name: known[name] for name in space} if inside else {}


class TuneJob(Job[Sweep]):
    """One sweep in progress. Every training in it has checkpoints of its own, and closes itself."""

    def __init__(self, config: TuneConfig, record: dict[str, Any], recommended: dict[str, Any]):
        self.config, self.record, self.recommended, self.folder = config, record, recommended, Path(config.out)
        self.study = Study(self.folder, config.space, config.seed)
        self.title = f"tune {shown(config.env)} · {shown(config.rule)}"

    def work(self, driver: Driver) -> Iterator[None]:
        """Every trial, then the result."""
        progress = CellsProgress(driver.progress, self.cells())
        while self.left():
            driver.check()
            self.try_next(progress, driver)
        best = self.study.best()
        if best is None:
            reasons = [trial.reason for trial in self.study.trials()]
            raise TrainingStopped(f"no trial could be trained to its end, so there is nothing to choose from: {reasons[0]}")
        driver.check()
        last = self.last_cell(best)
        self.train(last, self.config.trials, progress, driver)
        if reason := failure(last):
            raise TrainingStopped(f"the best settings could not be trained to the end: {reason}")
        yield from ()  # a training can be stopped anywhere: its own job sees to that

    def left(self) -> bool:
        """Whether there are trials to make."""
        made = self.study.trials()
        return len(made) < self.config.trials or not all(trial.finished for trial in made)

    def try_next(self, progress: CellsProgress, driver: Driver) -> None:
        """One trial, from its settings to its score."""
        trial = self.study.ask(self.recommended)
        same = [each for each in self.study.trials() if each.finished and each.values == trial.values]
        if same:  # the seeds are the same as well, and so would be the result
            self.decide(trial, same[0].score, same[0].reason)
            return
        cell = self.cell(trial)
        self.train(cell, trial.number, progress, driver)
        run, reason = read_cell(cell), failure(cell)
        score = run.summary()["final_return"] if run and reason is None else None
        self.decide(trial, score, reason or ("no episode ended" if score is None else ""))
        self.write()

    def decide(self, trial: Trial, score: float | None, reason: str) -> None:
        """Write a trial's end into the journal."""
        if score is None:
            self.study.fail(trial.number, reason)
        else:
            self.study.tell(trial.number, score)

    def train(self, cell: Cell, number: int, progress: CellsProgress, driver: Driver) -> None:
        """One training to its end, unless it is done."""
        progress.cells = self.cells()
        progress.cells[number] = cell
        if finished(cell):
            return
        progress.enter(number)
        try:
            train_cell(cell, progress, driver.stop)
        except Interrupted:
            # The training has saved itself and said nothing yet: the sweep's own sentence names the command that goes on.
            raise Stopped from None
        except InUse:  # says nothing about the settings
            raise
        except UserError as error:  # settings that do not fit together, such as a batch that minibatches do not divide
            folders.create(cell.folder)
            write_json(cell.folder / FAILED, {"reason": str(error)})
        progress.leave(cost_of(cell).seconds)

    def cell(self, trial: Trial) -> Cell:
        """The training of a trial."""
        out = self.folder / "trials" / f"{trial.number + 1:03d}"
        config = training(self.config, str(out), trial.values, trial=True)
        return Cell(TUNE, shown(config.env), shown(config.rule), config, trial.number)

    def last_cell(self, best: Trial) -> Cell:
        """The training of the result; its folder names the trial, as more trials may find better settings."""
        config = training(self.config, str(self.folder / f"best-{best.number + 1:03d}"), best.values, trial=False)
        return Cell(SCORE, shown(config.env), f"{shown(config.rule)} with the best settings", config)

    def cells(self) -> list[Cell]:
        """A cell for each trial, of which only the budget is known before it begins, and one for the result."""
        trials = [self.cell(Trial(number, {})) for number in range(self.config.trials)]
        return [*trials, self.last_cell(Trial(0, {}))]

    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        best = self.study.best()
        last = self.last_cell(best) if best is not None and not self.left() else None
        return last is not None and finished(last) and failure(last) is None

    def write(self) -> Sweep:
        """All that is known, into the folder."""
        best = self.study.best()
        trials = [(trial, self.cell(trial)) for trial in self.study.trials()]
        last = self.last_cell(best) if best and self.is_finished() else None
        found = results(self.config, self.record, trials, best, last, self.study.importances())
        write_json(self.folder / folders.SWEEP, found)
        return Sweep(self.folder, found)

    def conclude(self, finished: bool) -> Sweep:
        """The results and the page."""
        sweep = self.write()
        write_tune_page(self.folder)
        for stage in RESULTS if finished else ():
            stages.record(self.folder, stage, len(self.study.trials()))
        return sweep

    def status(self) -> Status:
        """The steps of finished trials; a trial that is being made reports its own."""
        cells = self.cells()
        done = sum(
            cell.config.steps for cell, _ in zip(cells, filter(lambda trial: trial.finished, self.study.trials()), strict=False)
        )
        return Status(done, sum(cell.config.steps for cell in cells), (), None)

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        done = sum(trial.finished for trial in self.study.trials())
        where = f"after {done} of {self.config.trials} trials"
        return stopped_text(where, f"rulax tune --resume {self.folder}", self.folder / folders.REPORT)
