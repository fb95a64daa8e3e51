"""Finds the experiments that `rulax method` is asked for, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rulax import own
from rulax.commands import resume as resuming
from rulax.commands.method.settings import MethodConfig
from rulax.commands.settings import assemble, configured, read_values, recorded
from rulax.errors import UserError, suggestion
from rulax.files.reading import blamed
from rulax.methods.base import Experiment
from rulax.methods.catalogue import METHODS, experiments_of
from rulax.records import folder as folders
from rulax.records.provenance import how_made

KIND = "method"
QUICK_MINUTES = 3  # of one seed of the full suite


def fresh(values: dict[str, Any]) -> tuple[MethodConfig, dict[str, Any]]:
    """A new configuration and what its config.json will say, once it is certain that everything named exists."""
    config = configured(MethodConfig, values)
    # Only for its errors, before a folder is made for something that cannot run.
    chosen(config)
    folders.check_free(config.out)
    return config, how_made(KIND, recorded(config, "platform"))


def resumed(values: dict[str, Any]) -> tuple[MethodConfig, dict[str, Any]]:
    """An earlier folder: other settings than its own would mix different experiments in one table."""
    folder = Path(values["resume"])
    record, given = resuming.read_record(folder, KIND), read_values(MethodConfig, values)
    with blamed(folder / folders.CONFIG):
        saved = read_values(MethodConfig, record["settings"], str(folder / folders.CONFIG))
        changes = resuming.accept(MethodConfig, given, saved, folder)
        return assemble(MethodConfig, {**saved, **changes, "out": str(folder)}), record


def chosen(config: MethodConfig) -> list[Experiment]:
    """The experiments that the configuration names."""
    name = config.method
    if not name:
        raise UserError(f"which method? one of {', '.join(METHODS)}, or `rulax method list`, or `rulax method all --suite quick`")
    if name == "all":
        if config.experiment:
            raise UserError("--experiment names one experiment of one method; with `all` leave it out")
        every = [experiment for method in METHODS for experiment in experiments_of(method)]
        return every if config.suite == "full" else [each for each in every if is_quick(each)]
    if name not in METHODS and not own.is_own(name):
        known = [*METHODS, "list", "all"]
        # MFEC and NEC are systems of their own to whoever looks for them, and experiments of one method here.
        if home := next((each for each in METHODS if name in [experiment.name for experiment in experiments_of(each)]), None):
            raise UserError(f"'{name}' is an experiment of the method {home}: rulax method {home} --experiment {name}")
        raise UserError(f"unknown method '{name}'{suggestion(name, known)}; there are {', '.join(known)}")
    experiments = experiments_of(name) if name in METHODS else own_experiments(name)
    found = [experiment for experiment in experiments if config.experiment in ("", experiment.name)]
    # What was named and cannot run is an error; one of several experiments is left out with a message instead.
    reasons = [experiment.unavailable() for experiment in found]
    if found and all(reasons):
        raise UserError(f"{name} cannot run: {reasons[0]}")
    if not found:
        names = [experiment.name for experiment in experiments]
        hint = suggestion(config.experiment, names)
        raise UserError(f"{name} has no experiment '{config.experiment}'{hint}; it has {', '.join(names)}")
    return found


def is_quick(experiment: Experiment) -> bool:
    """Whether an experiment belongs to the quick suite of all methods."""
    # What has a goal, but none that a minute could reach, would show nothing there; and what has none must at least be short.
    return experiment.quick_goal is not None or (experiment.goal is None and experiment.minutes <= QUICK_MINUTES)


def own_experiments(name: str) -> tuple[Experiment, ...]:
    """A user's own experiments: one, or several in a list or tuple."""
    found = own.get("method", name)
    several = (found,) if isinstance(found, Experiment) else tuple(found) if isinstance(found, list | tuple) else ()
    if not several or not all(isinstance(each, Experiment) for each in several):
        raise UserError(f"'{name}' must be an Experiment of rulax.methods.base, or a list of them")
    return several
