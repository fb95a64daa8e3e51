"""`rulax study`: discovery after discovery, each in a run folder of its own, and one page about all of them.

Progress is in these folders alone: whatever stops a study, `--resume` goes on, and more `--seeds` or `--points` extend it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rulax.commands import resume as resuming
from rulax.commands.driver import Driver, Job, Stopped, drive, stopped_text
from rulax.commands.progress import Silent, Status, make_progress
from rulax.commands.run_folder import at_work
from rulax.commands.settings import assemble, configured, read_values, recorded
from rulax.commands.signals import StopRequest
from rulax.commands.study.cells import StudyCell, check, make_cells, run_cell
from rulax.commands.study.plan import Plan, make_plan, read_plan, study_names
from rulax.commands.study.results import results
from rulax.commands.study.settings import StudyConfig
from rulax.commands.study.show import StudyResults, list_studies, show
from rulax.errors import Interrupted, UserError
from rulax.files import jsonable, read_json, write_json
from rulax.files.reading import blamed
from rulax.records import folder as folders
from rulax.records.provenance import how_made
from rulax.report.study import write_study_page
from rulax.text import duration

KIND = "study"


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    if values.get("study") == "list":
        list_studies()
        return 0
    show(study_from(values), bool(values.get("quiet")))
    return 0


def study_from(values: dict[str, Any], content: Mapping[str, Any] | None = None) -> StudyResults:
    """Start a study, or go on with one; `content` is that of a study without a file."""
    config, plan, record = resumed(values) if values.get("resume") else fresh(values, content)
    folder = Path(config.out or "unnamed")
    # Before a folder is made: a mistake in the last point must not show after hours of the first.
    check(plan, [cell for cell in make_cells(plan, config, folder) if not cell.finished])
    progress = make_progress(config.quiet)
    with StopRequest(progress.message) as stop:
        folder = folders.create_new(config.out, KIND, Path(config.study).stem)
        with at_work(folder, KIND, fresh=not values.get("resume")):
            write_json(folder / folders.CONFIG, record)
            return drive(StudyJob(dataclasses.replace(config, out=str(folder)), plan, record), progress, stop)


def fresh(values: dict[str, Any], content: Mapping[str, Any] | None = None) -> tuple[StudyConfig, Plan, dict[str, Any]]:
    """A new study: its configuration, its plan, and what its config.json will say."""
    config = configured(StudyConfig, values)
    if not config.study:
        raise UserError(f"which study? one of {', '.join(study_names())}, or `rulax study list`, or a file such as mine.yaml")
    plan = read_plan(config.study) if content is None else make_plan(config.study, content)
    folders.check_free(config.out)
    # The plan itself is recorded: what a file says may change, and a study goes on as it was begun.
    return config, plan.only(config.points), how_made(KIND, recorded(config), plan=as_content(plan))


def resumed(values: dict[str, Any]) -> tuple[StudyConfig, Plan, dict[str, Any]]:
    """An earlier study, with the changes that a resumed one may make."""
    folder = Path(values["resume"])
    record = resuming.read_record(folder, KIND)
    given = read_values(StudyConfig, values)
    with blamed(folder / folders.CONFIG):
        saved = read_values(StudyConfig, record["settings"], str(folder / folders.CONFIG))
        changes = resuming.accept(StudyConfig, given, saved, folder)
        config = assemble(StudyConfig, saved | changes | {"out": str(folder)})
        plan = make_plan(config.study, record["plan"])
        return config, plan.only(config.points), record | {"settings": recorded(config)}


def as_content(plan: Plan) -> dict[str, Any]:
    """A plan as its file would say it, suites as they are named there."""
    points = {
        name: {"label": point.label, "settings": point.settings, "paper": point.paper} | ({} if point.x is None else {"x": point.x})
        for name, point in plan.points.items()
    }
    content = {"settings": plan.settings, "held_out": plan.held_out, "points": points}
    return jsonable(content | {"questions": [question._asdict() for question in plan.questions]})


class StudyJob(Job[StudyResults]):
    """One study in progress. Every discovery has checkpoints of its own, and closes itself."""

    def __init__(self, config: StudyConfig, plan: Plan, record: dict[str, Any]):
        self.config, self.plan, self.record, self.folder = config, plan, record, Path(config.out)
        self.cells = make_cells(plan, config, self.folder)
        self.title = f"study {Path(config.study).stem}"

    def work(self, driver: Driver) -> Iterator[None]:
        """Every discovery to its end."""
        for number, cell in enumerate(self.cells):
            if cell.finished:
                continue
            driver.check()
            try:
                run_cell(self.plan, cell, Part(driver.progress, self.cells, number), driver.stop, self.folder)
            except Interrupted:
                # The discovery has saved itself and said nothing yet: the study's own sentence names the command that goes on.
                raise Stopped from None
            self.write()
            if cell.failure:
                driver.message(f"{cell.title}: {cell.failure}")
        yield from ()  # a discovery can be stopped anywhere: its own job sees to that

    def write(self) -> StudyResults:
        """All that is known, into the folder."""
        found = results(self.config, self.plan, self.record, self.cells)
        write_json(self.folder / folders.STUDY, found)
        return StudyResults(self.folder, found)

    def conclude(self, finished: bool) -> StudyResults:
        """The results and the page."""
        made = self.write()
        write_study_page(self.folder)
        return made

    def status(self) -> Status:
        """How many discoveries are finished; one that goes on reports its own meta-steps."""
        return Status(sum(cell.finished for cell in self.cells), len(self.cells), (), None, counts_steps=False)

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        where = f"after {sum(cell.finished for cell in self.cells)} of {len(self.cells)} discoveries"
        return stopped_text(where, f"rulax study --resume {self.folder}", self.folder / folders.REPORT)


class Part(Silent):
    """What one discovery reports, shown as a part of the whole; its end does not close the bar."""

    def __init__(self, shown: Silent, cells: list[StudyCell], number: int):
        self.shown, self.cells, self.number = shown, cells, number
        finished = [read_json(cell.folder / folders.SUMMARY, folders.Summary).get("seconds") for cell in cells if cell.finished]
        known = [seconds for seconds in finished if seconds]
        self.each = sum(known) / len(known) if known else None  # seconds that a discovery takes
        self.others = sum(not cell.finished for cell in cells) - 1  # that are still to come

    def start(self, title: str, status: Status) -> None:
        self.shown.rename(f"{self.number + 1}/{len(self.cells)} {self.cells[self.number].title}")

    def update(self, status: Status) -> None:
        # In meta-steps of all, so that the bar never has to jump back.
        steps = [cell.config.steps for cell in self.cells]
        before, left, facts = sum(steps[: self.number]), status.seconds_left, list(status.facts)
        if left is not None and self.others:
            # Rather no guess than one from a discovery that has not been made.
            facts += [] if self.each else [f"{duration(left)} left in this discovery"]
            left = left + self.each * self.others if self.each else None
        self.shown.update(Status(before + status.step, sum(steps), facts, left))

    def phase(self, text: str, done: int = 0, of: int = 0) -> None:
        self.shown.phase(text, done, of)

    def message(self, text: str) -> None:
        self.shown.message(text)
