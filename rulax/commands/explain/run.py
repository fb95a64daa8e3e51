"""`rulax explain`: analyses a rule phase by phase, and leaves `explain.json` and one page, finished or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rulax.commands.driver import Clock, Driver, Job, drive
from rulax.commands.explain.settings import ExplainConfig, build_explain
from rulax.commands.explain.setup import set_up
from rulax.commands.explain.show import Explanation, show
from rulax.commands.progress import Status, make_progress
from rulax.commands.signals import StopRequest
from rulax.errors import UserError
from rulax.files import write_json
from rulax.own import shown
from rulax.records import folder as folders
from rulax.text import plural

if TYPE_CHECKING:
    from rulax.commands.explain.analyses import Analyses

KIND = "explain"
PARTS = 100  # how far it is, in per cent of its estimated time


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    config = build_explain(values)
    show(explain(config), config.quiet)
    return 0


def explain_from(values: dict[str, Any]) -> Explanation:
    """Explain a rule, as Python users ask for it."""
    return Explanation(explain(build_explain(values)))


def explain(config: ExplainConfig) -> Path:
    """Explain a rule; returns the folder with the page and the numbers."""
    folders.check_free(config.out)
    # An explanation has neither config.json nor a checkpoint, so check_free does not know one when it sees it.
    if config.out and (Path(config.out) / folders.EXPLANATION).exists():
        raise UserError(f"{config.out} already holds an explanation; choose another --out")
    # Before numpy is imported: the threads of its many small products wait for each other longer than they compute, ten times as
    # long on a busy machine. JAX has threads of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    progress = make_progress(config.quiet)
    with StopRequest(progress.message) as stop:
        subject = set_up(config)
        from rulax.commands.explain.analyses import Analyses  # with numpy, hence after the line above

        job = ExplainJob(Analyses(subject), folders.create_new(config.out, KIND, config.rule))
        progress.message(job.announcement())
        return drive(job, progress, stop)


class ExplainJob(Job[Path]):
    """One explanation in progress. It cannot go on once stopped, and what was found is written after every phase."""

    def __init__(self, analyses: Analyses, folder: Path):
        self.analyses, self.folder, self.clock = analyses, folder, Clock()
        self.phases, self.config = analyses.phases(), analyses.subject.config
        self.times: dict[str, float] = {}
        self.title = f"explaining {shown(self.config.rule)} in {shown(self.config.env)}"
        self.latest = Status(0, PARTS, ["starting"], sum(seconds for _, _, seconds in self.phases), counts_steps=False)

    def announcement(self) -> str:
        """How long it will take, before it begins."""
        total = sum(seconds for _, _, seconds in self.phases)
        more = "; --ablations would train two more agents" if self.analyses.can_ablate and not self.config.ablations else ""
        return f"this takes about {plural(max(1, round(total / 60)), 'minute')} on two free cores{more}"

    def work(self, driver: Driver) -> Iterator[None]:
        """Phase after phase."""
        total, before = sum(seconds for _, _, seconds in self.phases), 0.0
        for name, function, seconds in self.phases:
            yield
            # `done` freezes what `before` is now; the closure would see it change.
            began, done = self.clock.seconds, before
            driver.phase(name)

            def report(part: float, said: str, name: str = name, done: float = done, seconds: float = seconds) -> bool:
                self.latest = self.status_at((done + part * seconds) / total, name, said)
                # Reported from inside of a phase, since these take minutes and the driver only looks between them.
                driver.progress.update(self.latest)
                return not driver.stopping

            function(report)
            self.times[name] = round(self.clock.seconds - began, 1)
            self.write(finished=False)  # so that not even a second Ctrl-C or a crash loses what is found
            before += seconds
            driver.check()  # a phase that was stopped is not finished

    def status_at(self, part: float, phase: str, said: str) -> Status:
        """What the bar shows when this part of the work is done."""
        # From the time that it has really taken: the phases' seconds are of another machine and only give proportions.
        left = self.clock.seconds * (1 - part) / part if part > 0.01 else None
        # Never the whole: 100 % would be read as the end while the page is still to be written.
        return Status(min(PARTS - 1, int(PARTS * part)), PARTS, [phase, *([said] if said else [])], left, counts_steps=False)

    def status(self) -> Status:
        """What a phase reported last."""
        return self.latest

    def conclude(self, finished: bool) -> Path:
        """The numbers and the page."""
        self.write(finished)
        return self.folder

    def write(self, finished: bool) -> None:
        """The numbers and the page, from whatever there is."""
        from rulax.report.explain import write_explain_page  # with numpy

        # Without indentation, because trajectories and weights are long lists of numbers.
        write_json(self.folder / folders.EXPLANATION, self.results(finished), indent=None)
        write_explain_page(self.folder)

    def results(self, finished: bool) -> dict[str, Any]:
        """The content of `explain.json`."""
        subject = self.analyses.subject
        config, record, inside = subject.config, subject.prepared.record, subject.inside
        return {
            "kind": KIND,
            "finished": finished,
            "rule": config.rule,
            "env": config.env,
            "env_options": config.env_options,
            "steps": config.steps,
            "seed": config.seed,
            "watch": config.watch,
            "streams": subject.prepared.recipe.learning.streams,
            "actions": subject.prepared.environment.num_actions,
            "discovered": inside is not None,
            "about": inside.about if inside else {},
            "sizes": vars(inside.sizes) if inside else None,
            "record": {name: record[name] for name in ("settings", "learning", "network", "command", "versions", "commit")},
            "cost": {
                "seconds": round(self.clock.seconds, 1),
                "cpu_seconds": round(self.clock.cpu_seconds, 1),
                "phases": self.times,
            },
            **self.analyses.found,
        }

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        return f"stopped; what was found so far:\n  {self.folder / folders.REPORT}"

    def close(self) -> None:
        """The trainer of the agent that was watched."""
        self.analyses.subject.prepared.trainer.close()
