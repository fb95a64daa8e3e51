"""Builds all that `rulax discover` needs from a configuration, before anything is written: every mistake is found here."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, NamedTuple

from rulax.commands.bounds import check_bounds, override
from rulax.commands.config import assemble, read_values
from rulax.commands.discover.settings import DiscoverConfig, joined, read_family
from rulax.commands.train.setup import check_one_choice, make_environment, make_recipe, start_jax, user_errors
from rulax.discovery.memory import ONE_PASS
from rulax.discovery.settings import Discovery
from rulax.errors import UserError
from rulax.metanet.sizes import ABLATIONS, Constants, Sizes
from rulax.records import folder as folders

NOT_RECORDED = ("out", "resume", "preset", "quiet", "overrides")
FIXES_THE_RESULT = (
    "envs",
    "validation",
    "seed",
    "init",
    "rule_options",
    "evaluate_every",
    "evaluation_seeds",
    "evaluation_updates",
    "precision",
)


class PreparedDiscovery(NamedTuple):
    """A discovery that could start now."""

    config: DiscoverConfig
    recipe: Any
    sizes: Sizes
    training: dict[str, Any]  # environments by the name of their family
    validation: dict[str, Any]
    discoverer: Any
    record: dict[str, Any]  # the content of config.json


def prepare_discovery(config: DiscoverConfig) -> PreparedDiscovery:
    """Check and build."""
    check_bounds(config)
    settings = override(Discovery(), config.overrides)
    check_bounds(settings)
    check_start(config.init)
    if config.init not in ("", "disco"):
        settings = dataclasses.replace(settings, rule_init="open")  # only random weights are adjusted, never those of a file
    recipe = make_recipe(config.init or "disco", config.rule_options, config.overrides)
    check_passes(settings, recipe)
    start_jax(config.platform, config.precision)
    with user_errors():
        sizes = sizes_of(config)
    training = make_families(config.envs)
    validation = make_families(config.validation)
    if not training:
        raise UserError("discover in which environments? for example: rulax discover grids")
    check_held_out(training, validation)
    return PreparedDiscovery(
        config,
        recipe,
        sizes,
        training,
        validation,
        make_discoverer(training, recipe, settings, config.steps),
        make_record(config, recipe, settings, sizes),
    )


def make_discoverer(training: dict[str, Any], recipe: Any, settings: Discovery, steps: int) -> Any:
    """The machinery of discovery, once it is certain that its parts fit together."""
    from rulax.discovery.discover import Discoverer
    from rulax.discovery.population import Family

    with user_errors():
        families = [Family(name, environment, recipe, settings) for name, environment in training.items()]
        discoverer = Discoverer(families, steps)
        discoverer.skeleton()
    return discoverer


def check_start(name: str) -> None:
    """Only a meta-network can be discovered, or discovered further."""
    from rulax.rules.registry import RULES, STORED

    if name in RULES and name not in ("disco", *STORED):
        raise UserError(
            f"init: rule '{name}' was written by people and has no parameters to discover; give disco103 or a rule file, or leave "
            "--init out to start from a random rule"
        )


def check_passes(settings: Discovery, recipe: Any) -> None:
    """Two strategies of memory know only one gradient per update."""
    passes = recipe.learning.epochs * recipe.learning.minibatches
    if passes > 1 and settings.memory in ONE_PASS:
        raise UserError(
            f"memory {settings.memory} differentiates one gradient per update, but epochs x minibatches is {passes}; use "
            "--memory plain, remat or segments"
        )


def sizes_of(config: DiscoverConfig) -> Sizes:
    """The sizes of the rule: a file's own, or those that the options ask for."""
    from rulax.rules.pretrained import load_rule, path_of
    from rulax.rules.registry import split_ablations

    init, ablations = split_ablations(config.init)
    stored = init and init != "disco"
    sizes = load_rule(path_of(init)).sizes if stored else of_options(Sizes(), config.rule_options)
    without: dict[str, Any] = {ABLATIONS[each]: False for each in ablations}
    return dataclasses.replace(sizes, **without)


def constants_of(config: DiscoverConfig) -> Constants:
    """The constants of its losses: a file's own or the usual ones, where the options do not say otherwise."""
    from rulax.rules.pretrained import load_rule, path_of
    from rulax.rules.registry import split_ablations

    init, _ = split_ablations(config.init)
    stored = init and init != "disco"
    return of_options(load_rule(path_of(init)).rule_settings.constants if stored else Constants(), config.rule_options)


def of_options(base: Any, options: dict[str, Any]) -> Any:
    """A copy of Sizes or Constants with those options that belong to it."""
    from rulax.envs.registry import as_option

    known = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    return dataclasses.replace(base, **{name: as_option(name, known[name], options[name]) for name in options if name in known})


# -- families ------------------------------------------------------------------------------------------------------------------


def make_families(specs: tuple[str, ...]) -> dict[str, Any]:
    """Environments by the name of their family, each of a kind that discovery can live in."""
    from rulax.envs.base import Environment
    from rulax.envs.registry import list_environments

    found: dict[str, Any] = {}
    for text in specs:
        spec = read_family(text)
        environment = make_environment(spec.env, spec.options)
        if not isinstance(environment, Environment):
            own = ", ".join(sorted({entry.family for entry in list_environments()}))
            raise UserError(
                f"discovery needs environments that JAX can compile, and '{spec.env}' steps outside of it; there are "
                f"gymnax/ID and the environments of rulax ({own}; `rulax envs` lists them)"
            )
        check_one_choice(spec.env, environment, "discover")
        same = next((name for name, other in found.items() if repr(other) == repr(environment)), None)
        if same is not None:
            raise UserError(f"'{text}' is the same environment as '{same}'; name it once (--agents says how many live in it)")
        found[text] = environment
    return found


def check_held_out(training: dict[str, Any], validation: dict[str, Any]) -> None:
    """A family that agents of discovery live in says nothing about others."""
    for name, environment in validation.items():
        for other, known in training.items():
            if repr(known) == repr(environment):
                raise UserError(
                    f"validation '{name}' is the same environment as '{other}', in which the rule is discovered: "
                    "it would not be held out"
                )


# -- what is written down --------------------------------------------------------------------------------------------------------


def make_record(config: DiscoverConfig, recipe: Any, settings: Discovery, sizes: Sizes) -> dict[str, Any]:
    """What config.json says: enough to repeat the run exactly, and to tell its checkpoints from others."""
    record = {
        "settings": {name: value for name, value in dataclasses.asdict(config).items() if name not in NOT_RECORDED},
        "discovery": dataclasses.asdict(settings),
        "learning": dataclasses.asdict(recipe.learning),
        "network": dataclasses.asdict(recipe.network),
        "sizes": dataclasses.asdict(sizes),
    }
    return record | {
        "constants": dataclasses.asdict(constants_of(config)),
        "fingerprint": folders.fingerprint(folders.without_new(fixed_part(record))),
        "command": " ".join(["rulax", *sys.argv[1:]]) if sys.argv[0].endswith(("rulax", "__main__.py")) else None,
        "versions": folders.versions(),
        "commit": folders.git_commit(),
    }


def fixed_part(record: dict[str, Any]) -> dict[str, Any]:
    """The settings that a resumed run must share, by name."""
    import json

    fixed = {name: record["settings"][name] for name in FIXES_THE_RESULT}
    for part in ("discovery", "learning", "network"):
        fixed |= record[part]
    return json.loads(json.dumps(fixed))  # tuples become lists, as in files


def saved_discovery(record: dict[str, Any], changes: dict[str, Any]) -> DiscoverConfig:
    """The configuration of an earlier run, with the changes that a resumed run may make."""
    resolved = {name: value for part in ("discovery", "learning", "network") for name, value in record[part].items()}
    values = read_values(DiscoverConfig, {**record["settings"], **resolved, **changes}, folders.CONFIG)
    values |= {name: joined(values[name]) for name in ("envs", "validation") if name in values}
    return assemble(DiscoverConfig, values)


def differences(wanted: dict[str, Any], saved: dict[str, Any]) -> str:
    """Which settings differ, as part of a sentence; empty if none does."""
    names = [name for name in wanted if name in saved and wanted[name] != saved[name]]
    return ", ".join(f"{name} is {saved[name]!r} there and not {wanted[name]!r}" for name in names)
