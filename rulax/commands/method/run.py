"""`rulax method`: the experiments of the meta-RL family, seed after seed, each with one record, and one table and picture over all.

A folder holds `config.json` and a record per experiment. A record is written after every seed, so whatever stops the command,
`--resume` goes on with the seeds that are missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from rulax.commands.build import start_jax
from rulax.commands.driver import Driver, Job, Pace, drive
from rulax.commands.method.pages import write_story
from rulax.commands.method.record import Seed, experiment_record, read_experiment, seeds_of
from rulax.commands.method.settings import MethodConfig
from rulax.commands.method.setup import chosen, fresh, resumed
from rulax.commands.method.show import list_methods, show, write_summary
from rulax.commands.progress import Status, make_progress
from rulax.commands.signals import StopRequest
from rulax.files import write_json
from rulax.methods.base import Experiment
from rulax.text import shown_return


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    if values.get("method") == "list":
        list_methods()
        return 0
    folder, records = method_from(values)
    if values.get("quiet"):
        print(folder)
    else:
        show(records, folder)
    # Unlike other commands: experiments have goals, and a script or CI wants to know whether they were reached.
    return 0 if all(record["pass"] for record in records) else 1


def method_from(values: dict[str, Any]) -> tuple[Path, list[dict[str, Any]]]:
    """Run experiments, or go on with them: their folder and their records."""
    config, folder = resumed(values) if values.get("resume") else fresh(values)
    # Built before JAX starts: a name that does not exist, in a folder of another version, is refused at once.
    job, progress = MethodJob(config, folder), make_progress(config.quiet)
    start_jax(config.platform)
    with StopRequest(progress.message) as stop:
        return folder, drive(job, progress, stop)


class MethodJob(Job[list[dict[str, Any]]]):
    """All experiments of one command. A record is written after every seed; a seed that was stopped begins again."""

    def __init__(self, config: MethodConfig, folder: Path):
        self.config, self.folder, self.records = config, folder, list[dict[str, Any]]()
        self.experiments = chosen(config)
        self.title = f"method {config.method}"
        self.latest = Status(0, 1, (), None)

    def work(self, driver: Driver) -> Iterator[None]:
        """Every seed of every experiment."""
        able = [each for each in self.experiments if not each.unavailable()]
        methods = {each.method for each in able}
        # Said once for a method of which nothing can run, not for each of its experiments; of `all` the others still run.
        left_out = {
            f"{each.method} {each.name}" if each.method in methods else each.method: why
            for each in self.experiments
            if (why := each.unavailable())
        }
        for name, why in left_out.items():
            driver.message(f"{name} is left out: {why}")
        for experiment in able:
            yield from self.run(experiment, driver)

    def run(self, experiment: Experiment, driver: Driver) -> Iterator[None]:
        """The missing seeds of one experiment."""
        path = self.folder / f"{experiment.method}.{experiment.name}.json"
        seeds = seeds_of(read_experiment(path))
        for seed in range(self.config.seed, self.config.seed + self.config.seeds):
            if any(done.seed == seed for done in seeds):
                continue
            driver.progress.rename(f"{experiment.method} {experiment.name} · seed {seed}")
            seeds.append((yield from self.one_seed(experiment, seed, driver)))
            # The whole record anew after every seed: means and intervals in it are always those of the seeds that it lists.
            write_json(path, experiment_record(experiment, self.config, seeds))
        record = read_experiment(path)
        assert record is not None
        self.records.append(record)
        goal = "" if record["goal"] is None else f", goal {record['goal']:g} {'reached' if record['pass'] else 'missed'}"
        driver.message(f"{record['id']}: {record['value']:.4g} ± {record['ci95']:.2g}{goal}")

    def one_seed(self, experiment: Experiment, seed: int, driver: Driver) -> Generator[None, None, Seed]:
        """Train and test one seed."""
        began, budget = time.perf_counter(), self.config.budget
        study, curve, latest, pace = experiment.start(self.config.suite, seed), [], None, Pace()
        while not study.done() and not (budget and time.perf_counter() - began >= budget):
            yield
            latest = study.advance()
            _, left = pace.measure(latest.fraction, 1.0)
            pace.begin(latest.fraction)  # after the first piece, which compiles
            left = min(left, budget - (time.perf_counter() - began)) if budget and left is not None else left
            curve.append((latest.env_steps, latest.value))
            # At least 1, since a chunk may end before its first meta-update, and how far it came is a part of the total.
            total = max(1, round(latest.meta_updates / max(latest.fraction, 1e-9)))
            value = shown_return(None if math.isnan(latest.value) else latest.value)
            self.latest = Status(latest.meta_updates, total, [f"value {value}"], left)
        driver.progress.phase("testing")
        # Also when the budget ended it: a number for what was reached says more than none, and `complete` tells the two apart.
        tested = study.test()
        write_story(self.folder, f"{experiment.method}-{experiment.name}-seed{seed}", study.story())
        return Seed.of(seed, tested, latest, curve, time.perf_counter() - began, study.done())

    def status(self) -> Status:
        """Where the current seed stands."""
        return self.latest

    def conclude(self, finished: bool) -> list[dict[str, Any]]:
        """The records; when all of them are there, a table and a picture."""
        if finished:
            # Not before: listing/setup.py takes the table as the sign that a folder is finished.
            write_summary(self.folder, self.records)
        return self.records

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        return f"stopped; finished seeds are in {self.folder}. To go on:\n  rulax method --resume {self.folder}"
