"""`rulax method`: the experiments of the meta-RL family, seed after seed, each with one record, and one table and picture over all.

A folder holds `config.json` and a record per experiment. A record is written after every seed, and most seeds are saved on their
way (`SeedRun.kept`), so whatever stops the command, `--resume` goes on.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from rulax.commands.build import start_jax
from rulax.commands.driver import Driver, Job, Pace, drive
from rulax.commands.method.pages import write_story
from rulax.commands.method.record import Seed, experiment_record, read_experiment, seeds_of
from rulax.commands.method.seed import SeedInProgress
from rulax.commands.method.settings import MethodConfig
from rulax.commands.method.setup import KIND, chosen, fresh, resumed
from rulax.commands.method.show import list_methods, show, write_summary
from rulax.commands.progress import Status, make_progress
from rulax.commands.run_folder import at_work
from rulax.commands.signals import AGAIN, NOTICE, StopRequest
from rulax.files import write_json
from rulax.methods.base import Experiment
from rulax.records import folder as folders
from rulax.text import shown_return

LOST = "the current one cannot be saved on its way and begins again"


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
    config, record = resumed(values) if values.get("resume") else fresh(values)
    # Before JAX starts: a name that does not exist, in a folder of another version, is refused at once.
    experiments, progress = chosen(config), make_progress(config.quiet)
    folder = folders.create_new(config.out, KIND, config.method)
    with at_work(folder, KIND, fresh=not values.get("resume")):
        if not values.get("resume"):
            write_json(folder / folders.CONFIG, record)
        start_jax(config.platform)
        with StopRequest(progress.message) as stop:
            return folder, drive(MethodJob(config, folder, experiments), progress, stop)


class MethodJob(Job[list[dict[str, Any]]]):
    """All experiments of one command. A record is written after every seed; on its way a seed is saved where it can be."""

    checkpoint_minutes = 3.0

    def __init__(self, config: MethodConfig, folder: Path, experiments: list[Experiment]):
        self.config, self.folder, self.records, self.experiments = config, folder, list[dict[str, Any]](), experiments
        self.title = f"method {config.method}"
        self.latest = Status(0, 1, (), None)
        self.seed: SeedInProgress | None = None  # the current one

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
            self.forget()
        record = read_experiment(path)
        assert record is not None
        self.records.append(record)
        goal = "" if record["goal"] is None else f", goal {record['goal']:g} {'reached' if record['pass'] else 'missed'}"
        driver.message(f"{record['id']}: {record['value']:.4g} ± {record['ci95']:.2g}{goal}")

    def forget(self) -> None:
        """The current seed is in its record."""
        assert self.seed is not None
        self.seed.remove()
        self.seed = None

    def one_seed(self, experiment: Experiment, seed: int, driver: Driver) -> Generator[None, None, Seed]:
        """Train and test one seed, from where it was saved."""
        driver.stop.notice = f"stopping after this chunk… {AGAIN}"  # nothing is held yet
        name = f"{experiment.method}-{experiment.name}-seed{seed}"
        self.seed = current = SeedInProgress(self.folder / f"{name}.safetensors", experiment.start(self.config.suite, seed))
        study, budget, pace = current.study, self.config.budget, Pace()
        driver.stop.notice = NOTICE if study.kept else f"stopping after this chunk; {LOST} {AGAIN}"
        while not study.done() and not (budget and current.clock.seconds >= budget):
            yield
            latest = current.advance()
            _, left = pace.measure(latest.fraction, 1.0)
            pace.begin(latest.fraction)  # after the first piece, which compiles
            left = min(left, budget - current.clock.seconds) if budget and left is not None else left
            # At least 1, since a chunk may end before its first meta-update, and how far it came is a part of the total.
            total = max(1, round(latest.meta_updates / max(latest.fraction, 1e-9)))
            value = shown_return(None if math.isnan(latest.value) else latest.value)
            self.latest = Status(latest.meta_updates, total, [f"value {value}"], left)
        driver.progress.phase("testing")
        # Also when the budget ended it: a number for what was reached says more than none, and `complete` tells the two apart.
        tested = study.test()
        write_story(self.folder, name, study.story())
        return Seed.of(seed, tested, current.latest, current.curve, current.clock.seconds, study.done())

    def status(self) -> Status:
        """Where the current seed stands."""
        return self.latest

    def save(self) -> None:
        """The current seed, if it can be saved."""
        if self.seed is not None:
            self.seed.save()

    def conclude(self, finished: bool) -> list[dict[str, Any]]:
        """The records; when all of them are there, a table and a picture."""
        if finished:
            # Not before: listing/setup.py takes the table as the sign that a folder is finished.
            write_summary(self.folder, self.records)
        return self.records

    def how_to_go_on(self) -> str:
        """What an interrupted user reads."""
        unsaved = self.seed is not None and not self.seed.study.kept
        kept = f"finished seeds are saved; {LOST}" if unsaved else "finished seeds are saved, and the current one as far as it came"
        return f"stopped; {kept}. To go on:\n  rulax method --resume {self.folder}"
