"""`rulax compare`: rules on the same environments with the same budget, cell after cell, and what can be said about them.

The folder of a comparison holds `config.json`, `compare.json` (all results) and the cells, each a run folder. Whatever stops it,
`--resume` goes on: finished cells stay, an unfinished one continues from its checkpoint.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from rulax.commands.bounds import check_bounds
from rulax.commands.compare import settings as configs
from rulax.commands.compare.cells import SCORE, TUNE, CellsProgress, cost_of, finished, named, plan, prepare_cell, train_cell
from rulax.commands.compare.provenance import hashes
from rulax.commands.compare.results import results, tuning
from rulax.commands.compare.settings import CompareConfig, build_compare, differing, settings_of, trials
from rulax.commands.compare.show import Comparison, show
from rulax.commands.config import read_values
from rulax.commands.progress import make_progress
from rulax.commands.signals import StopRequest
from rulax.commands.train.setup import COMPARISON, Prepared, reserve
from rulax.errors import Interrupted, UserError
from rulax.records import folder as folders

RESULTS = "compare.json"


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    comparison, quiet = compare_from(values), bool(values.get("quiet"))
    show(comparison, quiet)
    return 0


def compare_from(values: dict[str, Any]) -> Comparison:
    """Start a comparison, or go on with one."""
    config, record = resumed(values) if values.get("resume") else fresh(values)
    check_bounds(config)
    return Driver(config, record).drive()


def fresh(values: dict[str, Any]) -> tuple[CompareConfig, dict[str, Any]]:
    """A new comparison: its configuration and what its config.json will say."""
    config = build_compare(values)
    if config.out:
        folders.check_free(Path(config.out))
    settings = settings_of(config)
    record = {
        "kind": COMPARISON,
        "settings": settings,
        "rule_files": hashes(config.rules),
        "fingerprint": folders.fingerprint({name: value for name, value in settings.items() if name not in configs.MAY_CHANGE}),
        "command": " ".join(["rulax", *sys.argv[1:]]) if sys.argv[0].endswith(("rulax", "__main__.py")) else None,
        "versions": folders.versions(),
        "commit": folders.git_commit(),
    }
    return config, record


def resumed(values: dict[str, Any]) -> tuple[CompareConfig, dict[str, Any]]:
    """An earlier comparison. Whoever repeats its settings is welcome; whoever gives others is refused."""
    folder = Path(values["resume"])
    record = folders.read_config(folder)
    if record.get("kind") != COMPARISON:
        raise UserError(f"{folder} holds no comparison; a run of train goes on with: rulax train --resume {folder}")
    given = read_values(CompareConfig, values)
    free = {name: value for name, value in given.items() if name in configs.MAY_CHANGE and name != "out"}
    wanted = {name: value for name, value in given.items() if name not in configs.MAY_CHANGE}
    config = build_compare({**record["settings"], **free})
    if given.get("out") and Path(given["out"]) != folder:
        raise UserError(f"a comparison goes on in its own folder ({folder}); leave --out out")
    if wanted:
        now = build_compare({**record["settings"], **free, **wanted})
        others = differing(now, settings_of(config), set(wanted))  # not the record's: a folder may be older than a setting
        if others:
            raise UserError(f"{folder} was made with other settings: {', '.join(others)}; leave them out, or start anew with --out")
    changed = [rule for rule, content in record["rule_files"].items() if hashes((rule,)).get(rule) != content]
    if changed:
        raise UserError(f"the rule file {changed[0]} has changed or gone since {folder} was begun; start anew with --out")
    kept = {name: value for name, value in free.items() if name not in configs.NOT_RECORDED}
    return dataclasses.replace(config, out=str(folder)), record | {"settings": record["settings"] | kept}


class Driver:
    """One comparison in progress."""

    def __init__(self, config: CompareConfig, record: dict[str, Any]):
        self.config, self.record = config, record
        self.folder = Path(config.out or "unnamed")
        self.cells = plan(config, self.folder)
        self.undecided = bool(trials(config))  # which settings the scores are made with
        self.prepared: dict[tuple[str, str], Prepared] = {}  # by the cell's place in the folder, which gets its name late

    def drive(self) -> Comparison:
        """Every cell to its end."""
        shown = make_progress(self.config.quiet)
        with StopRequest(shown.message) as stop:
            self.choose()
            self.prepare_all()
            self.open_folder()
            progress = CellsProgress(shown, self.cells)
            try:
                for number in range(len(self.cells)):
                    if self.cells[number].purpose == SCORE:
                        self.choose()
                    progress.cells = self.cells
                    if stop.requested:
                        raise Interrupted("")
                    self.train(number, progress)
            except Interrupted:
                raise Interrupted(self.how_to_go_on(), self.conclude()) from None
            except UserError as error:  # memory that was free when all was prepared, for example
                self.conclude()
                raise UserError(f"{error}; {self.how_to_go_on()}") from error
            finally:
                progress.close()
        return self.conclude()

    def prepare_all(self) -> None:
        """Build every cell that is not finished: all mistakes, and replay that does not fit, are found before anything runs."""
        from rulax.envs.base import HostEnvironment

        for cell in self.cells:
            if finished(cell) or (cell.purpose == SCORE and self.undecided):  # what is tuned is built in its trials
                continue
            prepared = prepare_cell(cell, self.config)
            with named(cell):  # any trial may become what all seeds go on with
                reserve(prepared, max(cell.config.seeds, self.config.seeds) if cell.purpose == TUNE else 0)
            if isinstance(prepared.environment, HostEnvironment):
                prepared.trainer.close()  # it holds streams open; it is built again in its turn
            else:
                self.prepared[cell.place] = prepared

    def open_folder(self) -> None:
        """Make the folder, which has a name only now, and say what it holds."""
        if not self.config.out:
            self.folder = folders.create_numbered("compare", self.config.envs[0])
            self.config = dataclasses.replace(self.config, out=str(self.folder))
            self.cells = plan(self.config, self.folder)
        folders.create(self.folder)
        folders.write_json(self.folder / folders.CONFIG, self.record)

    def choose(self) -> None:
        """Once all trials are done, every rule goes on with the best it found."""
        if self.undecided and all(finished(cell) for cell in self.cells if cell.purpose != SCORE):
            self.undecided = False
            found = tuning(self.config, self.cells)["rules"]
            self.cells = plan(self.config, self.folder, {rule: found[rule]["chosen"] for rule in self.config.rules})

    def train(self, number: int, progress: CellsProgress) -> None:
        """One cell, unless it is done."""
        cell = self.cells[number]
        if finished(cell):
            return
        progress.enter(number)
        prepared = self.prepared.pop(cell.place, None)
        with named(cell):
            train_cell(cell, self.config, prepared and prepared._replace(config=cell.config), progress)
        progress.leave(cost_of(cell).seconds)
        self.write()

    def conclude(self) -> Comparison:
        """What an end leaves behind, whether all is done or somebody stopped it."""
        from rulax.report.compare import write_compare_page

        comparison = self.write()
        write_compare_page(self.folder)
        return comparison

    def write(self) -> Comparison:
        """All that is known, into the folder."""
        found = results(self.config, self.record, self.cells)
        folders.write_json(self.folder / RESULTS, found)
        return Comparison(self.folder, found)

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        done = sum(finished(cell) for cell in self.cells)
        where = f"stopped after {done} of {len(self.cells)} cells; everything is saved"
        return f"{where}. To go on:\n  rulax compare --resume {self.folder}"
