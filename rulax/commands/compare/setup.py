"""Builds what a comparison needs, before anything is written: its cells, and every trainer, which finds every mistake."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rulax.commands import resume as resuming
from rulax.commands.cells import SCORE, TUNE, Cell, finished, named, prepare_cell
from rulax.commands.compare.cells import plan, recipe_of
from rulax.commands.compare.provenance import hashes
from rulax.commands.compare.results import tuning
from rulax.commands.compare.settings import CompareConfig, build_compare, settings_of, trials
from rulax.commands.fields import changeable
from rulax.commands.settings import check_bounds, read_values
from rulax.commands.train.setup import Prepared, reserve
from rulax.envs.base import HostEnvironment
from rulax.errors import UserError
from rulax.files.reading import blamed
from rulax.records import folder as folders
from rulax.records.provenance import fingerprint, how_made

KIND = "compare"


def fresh(values: dict[str, Any]) -> tuple[CompareConfig, dict[str, Any]]:
    """A new comparison: its configuration and what its config.json will say."""
    config = build_compare(values)
    check_bounds(config)
    folders.check_free(config.out)
    # Resolved settings, suites as their environments: what a suite holds may change between versions.
    settings = settings_of(config)
    fixed = {name: value for name, value in settings.items() if name not in changeable(CompareConfig)}
    return config, how_made(KIND, settings, rule_files=hashes(config.rules), fingerprint=fingerprint(fixed))


def resumed(values: dict[str, Any]) -> tuple[CompareConfig, dict[str, Any]]:
    """An earlier comparison, with the changes that a resumed one may make."""
    folder = Path(values["resume"])
    record = resuming.read_record(folder, KIND)
    given = read_values(CompareConfig, values)
    # By today's names: those of an earlier version are not the user's to correct.
    with blamed(folder / folders.CONFIG):
        kept = read_values(CompareConfig, record["settings"], str(folder / folders.CONFIG))
        saved = build_compare(kept)
        # Suites, lists and defaults are resolved before the two are compared.
        now = settings_of(build_compare(kept | given))
        resolved = {name: now.get(name, value) for name, value in given.items()}
        changes = resuming.accept(CompareConfig, resolved, settings_of(saved), folder)
    # A path says nothing of its content. Cells trained before and after a change would be of different rules under one name.
    changed = [rule for rule, content in record.get("rule_files", {}).items() if hashes((rule,)).get(rule) != content]
    if changed:
        raise UserError(f"the rule file {changed[0]} has changed or is gone since {folder} was begun; start a new comparison")
    config = dataclasses.replace(saved, **changes, out=str(folder))
    check_bounds(config)
    return config, record | {"settings": settings_of(saved) | {name: now[name] for name in changes if name in now}}


class Setup:
    """The cells of a comparison, and those trainers that are built already."""

    def __init__(self, config: CompareConfig):
        self.config, self.folder = config, Path(config.out or "unnamed")
        self.cells: list[Cell] = plan(config, self.folder)
        self.undecided = bool(trials(config))  # whether the settings that rules are compared with are still to be found
        self.prepared: dict[tuple[str, str], Prepared] = {}  # by the cell's place in the folder, which gets its name late

    def prepare_all(self) -> None:
        """Build every cell that is not finished: all mistakes, and replay that does not fit, are found before anything runs."""
        self.choose()
        for cell in self.cells:
            if finished(cell) or (cell.purpose == SCORE and self.undecided):  # what is tuned is built in its trials
                continue
            prepared = prepare_cell(cell, recipe_of(cell, self.config))
            with named(cell):  # any trial may become what all seeds are trained with
                reserve(prepared, max(cell.config.seeds, self.config.seeds) if cell.purpose == TUNE else 0)
            if isinstance(prepared.environment, HostEnvironment):
                # Otherwise every stream of every cell would be open from the beginning.
                prepared.trainer.close()  # it holds streams open; it is built again when it is needed
            else:
                self.prepared[cell.place] = prepared

    def move_to(self, folder: Path) -> None:
        """The folder has its name now."""
        self.folder, self.config = folder, dataclasses.replace(self.config, out=str(folder))
        self.cells, self.undecided = plan(self.config, folder), bool(trials(self.config))  # `choose` decides for these cells anew

    def choose(self) -> None:
        """Once all trials are done, every rule goes on with the best it found."""
        if self.undecided and all(finished(cell) for cell in self.cells if cell.purpose != SCORE):
            self.undecided = False
            found = tuning(self.config, self.cells)["rules"]
            self.cells = plan(
                self.config,
                self.folder,
                {rule: found[name]["chosen"] for rule, name in zip(self.config.rules, self.config.rule_names, strict=True)},
            )
