"""`rulax explain`: drives the study of a rule phase by phase, and leaves `explain.json` and one page, finished or not."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from rulax.commands.config import assemble, read_values
from rulax.commands.explain.settings import ExplainConfig
from rulax.commands.progress import Silent, make_progress
from rulax.commands.signals import StopRequest
from rulax.errors import Interrupted, UserError
from rulax.files import write_atomically
from rulax.records import folder as folders
from rulax.text import duration

RESULTS = "explain.json"
SHARE = 100  # how far it is, in per cent


class Status(NamedTuple):
    """How far an explanation has come, in per cent of its estimated time."""

    step: int
    phase: str
    said: str
    seconds_left: float | None
    total: int = SHARE
    made_of_steps: bool = False  # what counts is time

    def facts(self) -> list[str]:
        """What is done, what it says, how long it will take."""
        return [self.phase, *([self.said] if self.said else []), f"{duration(self.seconds_left)} left"]


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    # Before numpy is imported: its many small products wait for each other's threads longer than they compute, ten times as
    # long on a busy machine. JAX has threads of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    given = read_values(ExplainConfig, values)
    if "steps" not in given and given.get("rule"):
        from rulax.rules.registry import recommended_steps

        given["steps"] = recommended_steps(given["rule"])
    config = assemble(ExplainConfig, given)
    folder = explain(config)
    if config.quiet:
        print(folder)
    else:
        print(f"the page     {folder / folders.REPORT}\nthe numbers  {folder / RESULTS}")
    return 0


def explain(config: ExplainConfig) -> Path:
    """Explain a rule; returns the folder with the page and the numbers."""
    folder = Path(config.out) if config.out else None
    if folder is not None:
        check_free(folder)
    from rulax.commands.explain.setup import set_up

    progress = make_progress(config.quiet)
    with StopRequest(progress.message) as stop:
        subject = set_up(config)
        from rulax.commands.explain.analyses import Analyses

        if folder is None:
            folder = folders.create_numbered("explain", config.rule)
        else:
            folders.create(folder)
        driver = Driver(Analyses(subject), folder, progress, stop)
        try:
            finished = driver.drive()
        finally:
            progress.stop()
            subject.prepared.trainer.close()
    if not finished:
        raise Interrupted(f"stopped; what was found so far:\n  {folder / folders.REPORT}")
    return folder


def check_free(folder: Path) -> None:
    """Refuse to write over an explanation or a run."""
    folders.check_free(folder)
    if (folder / RESULTS).exists():
        raise UserError(f"{folder} already holds an explanation; choose another --out")


class Driver:
    """One explanation in progress."""

    def __init__(self, analyses: Any, folder: Path, progress: Silent, stop: StopRequest):
        self.analyses, self.folder, self.progress, self.stop = analyses, folder, progress, stop
        self.began, self.cpu_began = time.monotonic(), time.process_time()
        self.times: dict[str, float] = {}

    def drive(self) -> bool:
        """Phase after phase; whether all of them came to their end. However it ends, there is a page."""
        phases, config = self.analyses.phases(), self.analyses.subject.config
        total, before = sum(seconds for _, _, seconds in phases), 0.0
        self.progress.start(f"explaining {config.rule} in {config.env}", Status(0, "starting", "", total))
        finished = False
        try:
            for name, function, seconds in phases:
                started = time.monotonic()
                self.progress.phase(name)
                function(
                    lambda part, said, name=name, done=before, seconds=seconds: self.say(
                        (done + part * seconds) / total, name, said
                    )
                )
                self.times[name] = round(time.monotonic() - started, 1)
                self.write(finished=False)  # so that not even a second Ctrl-C or a crash takes what is found
                if self.stop.requested:
                    break
                before += seconds
            else:
                finished = True
        finally:
            self.write(finished)
        return finished

    def say(self, part: float, phase: str, said: str) -> bool:
        """Show how far it is; False if somebody asked to stop."""
        spent = time.monotonic() - self.began
        left = spent * (1 - part) / part if part > 0.01 else None
        self.progress.update(Status(min(SHARE - 1, int(SHARE * part)), phase, said, left))
        return not self.stop.requested

    def write(self, finished: bool) -> None:
        """The numbers and the page, from whatever there is."""
        from rulax.report.explain import write_explain_page

        found = self.results(finished)
        write_atomically(self.folder / RESULTS, json.dumps(found, allow_nan=False, separators=(",", ":")) + "\n")
        write_explain_page(self.folder)

    def results(self, finished: bool) -> dict[str, Any]:
        """The content of `explain.json`."""
        subject = self.analyses.subject
        config, record, inside = subject.config, subject.prepared.record, subject.inside
        return without_nan(
            {
                "kind": "explain",
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
                    "seconds": round(time.monotonic() - self.began, 1),
                    "cpu_seconds": round(time.process_time() - self.cpu_began, 1),
                    "phases": self.times,
                },
                **self.analyses.found,
            }
        )


def without_nan(value: Any) -> Any:
    """JSON has no NaN: what is not a finite number was not measured."""
    if isinstance(value, dict):
        return {str(name): without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if hasattr(value, "tolist"):
        return without_nan(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
