"""`rulax compare`: trains rules on the same environments with the same budget, cell after cell, and compares them.

The folder of a comparison holds `config.json`, `compare.json` (all results) and the cells, each a run folder. Whatever stops it,
`--resume` goes on: finished cells stay, an unfinished one continues from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rulax.commands.cells import SCORE, CellsProgress, cost_of, finished, named, train_cell
from rulax.commands.compare.cells import recipe_of
from rulax.commands.compare.evaluation import done, evaluate_cell, waits
from rulax.commands.compare.merge import merge_from
from rulax.commands.compare.results import alone, results
from rulax.commands.compare.setup import KIND, Setup, fresh, resumed
from rulax.commands.compare.show import Comparison, show
from rulax.commands.driver import Driver, Job, Stopped, drive, stopped_text
from rulax.commands.progress import Status, make_progress
from rulax.commands.run_folder import at_work
from rulax.commands.signals import StopRequest
from rulax.errors import Interrupted, UserError
from rulax.files import write_json
from rulax.records import folder as folders
from rulax.report.compare import write_compare_page
from rulax.text import plural


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    make = merge_from if values.get("merge") else compare_from
    show(make(values), bool(values.get("quiet")))
    return 0


def compare_from(values: dict[str, Any]) -> Comparison:
    """Start a comparison, or go on with one."""
    config, record = resumed(values) if values.get("resume") else fresh(values)
    setup, progress = Setup(config), make_progress(config.quiet)
    # Before the folder is made and signals are caught: a mistake in the last cell must not show after hours of training the first.
    setup.prepare_all()
    for sentence in alone(config):  # now, while it can still be changed, and again beside the results
        progress.message(f"note: {sentence}")
    with StopRequest(progress.message) as stop:
        setup.move_to(folders.create_new(config.out, KIND, config.suite or config.envs[0]))
        with at_work(setup.folder, KIND, fresh=not values.get("resume")):
            setup.choose()
            # From here on the folder can be resumed; cells find out by themselves how far they are.
            write_json(setup.folder / folders.CONFIG, record)
            return drive(CompareJob(setup, record), progress, stop)


class CompareJob(Job[Comparison]):
    """One comparison in progress. Every cell has checkpoints of its own, and closes itself."""

    def __init__(self, setup: Setup, record: dict[str, Any]):
        self.setup, self.record, self.folder = setup, record, setup.folder
        self.title = f"compare {' '.join(setup.config.rule_names)}"

    def work(self, driver: Driver) -> Iterator[None]:
        """Every cell to its end."""
        self.write()  # with no results yet: whoever watches sees the curves of the first cell grow
        progress = CellsProgress(driver.progress, self.setup.cells)
        for number in range(len(self.setup.cells)):
            if self.setup.cells[number].purpose == SCORE:
                # Once the last trial is done this replaces the cells that follow, hence the loop by number and not over a list.
                self.setup.choose()
            progress.cells = self.setup.cells
            driver.check()
            try:
                self.train(number, progress, driver)
            except Interrupted:
                # The cell has saved itself and said nothing yet: the comparison's own sentence names the command that goes on.
                raise Stopped from None
            except UserError as error:  # memory that was free when all was prepared, for example
                # Here, because `drive` concludes only where work ends or training stops; what the finished cells cost must not be
                # lost.
                self.conclude(False)
                raise UserError(f"{error}; {self.how_to_go_on()}") from error
        yield from ()  # a cell can be stopped anywhere: its own job sees to that

    def train(self, number: int, progress: CellsProgress, driver: Driver) -> None:
        """One cell, unless it is done."""
        cell, config = self.setup.cells[number], self.setup.config
        if done(cell, config):
            return
        progress.enter(number)
        # Taken out, so that the trainer of a finished cell and its compiled program can be freed.
        prepared = self.setup.prepared.pop(cell.place, None)
        prepared = prepared and prepared._replace(config=cell.config)
        with named(cell):
            if not finished(cell):
                train_cell(cell, progress, driver.stop, prepared, recipe_of(cell, config))
            if waits(cell, config):
                progress.phase(f"{plural(config.eval_episodes, 'episode')} of each agent")
                evaluate_cell(cell, config)
        progress.leave(cost_of(cell).seconds)
        self.write()

    def write(self) -> Comparison:
        """All that is known, into the folder."""
        found = results(self.setup.config, self.record, self.setup.cells)
        write_json(self.folder / folders.COMPARISON, found)
        return Comparison(self.folder, found)

    def conclude(self, finished: bool) -> Comparison:
        """The results and the page."""
        comparison = self.write()
        write_compare_page(self.folder)
        return comparison

    def status(self) -> Status:
        """The steps of finished cells; a cell that is being trained reports its own."""
        made = sum(cell.config.steps for cell in self.setup.cells if finished(cell))
        return Status(made, sum(cell.config.steps for cell in self.setup.cells), (), None)

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        number = sum(done(cell, self.setup.config) for cell in self.setup.cells)
        return stopped_text(f"after {number} of {len(self.setup.cells)} cells", f"rulax compare --resume {self.folder}")
