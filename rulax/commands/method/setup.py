"""Finds the experiments that `rulax method` is asked for, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rulax import own
from rulax.commands import resume as resuming
from rulax.commands.build import start_jax, user_errors
from rulax.commands.method.settings import MethodConfig
from rulax.commands.settings import assemble, configured, read_values, recorded
from rulax.errors import UserError, suggestion
from rulax.files.reading import blamed
from rulax.methods.base import Experiment
from rulax.methods.catalogue import METHODS, experiments_of
from rulax.records import folder as folders
from rulax.records.provenance import how_made
from rulax.text import convert_like

KIND = "method"
QUICK_MINUTES = 3  # of one seed of the full suite


def fresh(values: dict[str, Any]) -> tuple[MethodConfig, dict[str, Any]]:
    """A new configuration and what its config.json will say, once it is certain that everything named exists."""
    config = configured(MethodConfig, values)
    # Only for their errors, before a folder is made for something that cannot run.
    experiments = chosen(config)
    if config.options:
        start_jax(config.platform)  # an environment that is made may already need it
        with user_errors():
            for experiment in experiments:
                experiment.check()
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
        if config.options:
            raise UserError("--options are of one experiment of one method; with `all` leave them out")
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
    return [with_options(each, config.options, experiments) for each in found]


def with_options(experiment: Experiment, options: Mapping[str, Any], others: Iterable[Experiment]) -> Experiment:
    """An experiment with what the user says of its options; `others` are those of its method, one of which may be meant."""
    for option in options:
        if option not in experiment.options:
            meant = [each.name for each in others if option in each.options]
            hint = f"; --experiment {meant[0]} has" if meant else suggestion(option, experiment.options, listed(experiment))
            raise UserError(f"{experiment.method} {experiment.name} has no option '{option}'{hint}")
    label = f"{experiment.method} {experiment.name}"
    read = {name: convert_like(f"{label}: {name}", experiment.options[name], value) for name, value in options.items()}
    return experiment.given(read) if read else experiment


def listed(experiment: Experiment) -> str:
    """Its options, in words."""
    return f"it has {', '.join(experiment.options)}" if experiment.options else "it has none"


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
