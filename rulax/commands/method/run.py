"""`rulax method`: the experiments of the meta-RL family, seed after seed, each with one record, and one table and picture over all.

A folder holds `config.json` and a record per experiment. A record is written after every seed, so whatever stops the command,
`--resume` goes on with the seeds that are missing.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from rulax.commands.bounds import check_bounds
from rulax.commands.config import assemble, read_values
from rulax.commands.method.record import Seed, make_record, read_record, seeds_of
from rulax.commands.method.settings import MethodConfig
from rulax.commands.method.show import list_methods, show, write_summary
from rulax.commands.progress import Silent, make_progress
from rulax.commands.signals import StopRequest
from rulax.errors import Interrupted, UserError, suggestion
from rulax.methods.catalogue import METHODS, experiments_of
from rulax.records import folder as folders
from rulax.text import duration, shown_return

KIND = "method"
MAY_CHANGE = ("out", "resume", "quiet", "platform")


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    if values.get("method") == "list":
        list_methods()
        return 0
    config, folder = resumed(values) if values.get("resume") else fresh(values)
    check_bounds(config)
    records = Driver(config, folder).drive()
    if config.quiet:
        print(folder)
    else:
        show(records, folder)
    return 0 if all(record["pass"] for record in records) else 1


# -- what was asked for -----------------------------------------------------------------------------------------------------------


def fresh(values: dict[str, Any]) -> tuple[MethodConfig, Path]:
    """A new folder, once it is certain that everything named exists."""
    config: MethodConfig = assemble(MethodConfig, read_values(MethodConfig, values))
    check_bounds(config)
    chosen(config)
    if config.out:
        folders.check_free(Path(config.out))
        folders.create(Path(config.out))
    folder = Path(config.out) if config.out else folders.create_numbered(KIND, config.method)
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in MAY_CHANGE}
    record = {
        "kind": KIND,
        "settings": settings,
        "command": " ".join(["rulax", *sys.argv[1:]]) if sys.argv[0].endswith(("rulax", "__main__.py")) else None,
        "versions": folders.versions(),
        "commit": folders.git_commit(),
    }
    folders.write_json(folder / folders.CONFIG, record)
    return config, folder


def resumed(values: dict[str, Any]) -> tuple[MethodConfig, Path]:
    """An earlier folder. Other settings than its own would mix different experiments in one table."""
    folder = Path(values["resume"])
    record = folders.read_config(folder)
    if record.get("kind") != KIND:
        raise UserError(f"{folder} holds no experiments of methods")
    given = read_values(MethodConfig, values)
    saved = record["settings"]
    others = [f"{name} is {saved[name]!r} there" for name, value in given.items() if name in saved and saved[name] != value]
    if others:
        raise UserError(f"{folder} was made with other settings: {', '.join(others)}; leave them out, or start anew with --out")
    free = {name: value for name, value in given.items() if name in MAY_CHANGE}
    return assemble(MethodConfig, {**saved, **free}), folder


def chosen(config: MethodConfig) -> list[Any]:
    """The experiments that the configuration names."""
    name = config.method
    if not name:
        raise UserError(f"which method? one of {', '.join(METHODS)}, or `rulax method list`, or `rulax method all --suite quick`")
    if name == "all":
        if config.experiment:
            raise UserError("--experiment names one experiment of one method; with `all` leave it out")
        return [experiment for method in METHODS for experiment in experiments_of(method)]
    if name not in METHODS:
        raise UserError(f"unknown method '{name}'{suggestion(name, [*METHODS, 'list', 'all'])}")
    experiments = experiments_of(name)
    if why := experiments[0].unavailable():
        raise UserError(f"{name} cannot run: {why}")
    if not config.experiment:
        return list(experiments)
    found = [experiment for experiment in experiments if experiment.name == config.experiment]
    if not found:
        names = [experiment.name for experiment in experiments]
        raise UserError(f"{name} has no experiment '{config.experiment}'{suggestion(config.experiment, names)}")
    return found


# -- running ----------------------------------------------------------------------------------------------------------------------


class Status(NamedTuple):
    """What the progress bar shows of one seed."""

    step: int
    total: int
    value: float
    seconds_left: float | None

    def facts(self) -> list[str]:
        """The numbers that matter."""
        shown = "-" if self.value != self.value else shown_return(self.value)
        return [f"value {shown}", f"{duration(self.seconds_left)} left"]


class Driver:
    """All experiments of one command."""

    def __init__(self, config: MethodConfig, folder: Path):
        self.config, self.folder = config, folder
        self.experiments = chosen(config)
        self.left_out = {each.method: why for each in self.experiments if (why := each.unavailable())}

    def drive(self) -> list[dict[str, Any]]:
        """Every seed of every experiment; the records."""
        from rulax.commands.train.setup import start_jax

        start_jax(self.config.platform, "default")
        progress = make_progress(self.config.quiet)
        with StopRequest(progress.message) as stop:
            progress.start(f"method {self.config.method}", Status(0, 1, float("nan"), None))
            try:
                for method, why in self.left_out.items():
                    progress.message(f"{method} is left out: {why}")
                able = [experiment for experiment in self.experiments if experiment.method not in self.left_out]
                records = [self.run(experiment, progress, stop) for experiment in able]
            finally:
                progress.stop()
        write_summary(self.folder, records)
        return records

    def path(self, experiment: Any) -> Path:
        """Where an experiment's record is."""
        return self.folder / f"{experiment.method}.{experiment.name}.json"

    def run(self, experiment: Any, progress: Silent, stop: StopRequest) -> dict[str, Any]:
        """The missing seeds of one experiment."""
        path = self.path(experiment)
        seeds = seeds_of(read_record(path))
        for seed in range(self.config.seed, self.config.seed + self.config.seeds):
            if any(done.seed == seed for done in seeds):
                continue
            progress.rename(f"{experiment.method} {experiment.name} · seed {seed}")
            result = self.one_seed(experiment, seed, progress, stop)
            if result is None:
                raise Interrupted(f"stopped; what is finished is in {self.folder}\ngo on with: rulax method --resume {self.folder}")
            seeds.append(result)
            folders.write_json(path, make_record(experiment, self.config, seeds))
        record = read_record(path)
        assert record is not None
        goal = "" if record["goal"] is None else f", goal {record['goal']:g} {'reached' if record['pass'] else 'missed'}"
        progress.message(f"{record['id']}: {record['value']:.4g} ± {record['ci95']:.2g}{goal}")
        return record

    def one_seed(self, experiment: Any, seed: int, progress: Silent, stop: StopRequest) -> Seed | None:
        """Train and test one seed; None if somebody asked to stop."""
        began, budget = time.perf_counter(), self.config.budget
        study, curve, latest = experiment.start(self.config.suite, seed), [], None
        while not study.done() and not (budget and time.perf_counter() - began >= budget):
            if stop.requested:
                return None
            latest = study.advance()
            spent = time.perf_counter() - began
            left = spent * (1 - latest.fraction) / latest.fraction if latest.fraction > 0 else None
            left = min(left, budget - spent) if budget and left is not None else left
            curve.append((latest.env_steps, latest.value))
            total = round(latest.meta_updates / max(latest.fraction, 1e-9))
            progress.update(Status(latest.meta_updates, total, latest.value, left))
        progress.phase("testing")
        tested = study.test()
        seconds = time.perf_counter() - began
        return Seed.of(seed, tested, latest, curve, seconds, study.done())
