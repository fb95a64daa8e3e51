"""Builds all that `rulax discover` needs from a configuration, before anything is written: every mistake is found here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from rulax.commands import build
from rulax.commands.build import user_errors, with_options
from rulax.commands.discover.settings import DEFAULT, DiscoverConfig, whole_specs
from rulax.commands.fields import changeable
from rulax.commands.names import read_spec
from rulax.commands.settings import assemble, check_bounds, override, read_values, recorded
from rulax.discovery.memory import ONE_PASS
from rulax.discovery.settings import PERTURBING, Discovery
from rulax.envs.identity import same
from rulax.errors import UserError
from rulax.files import jsonable
from rulax.metanet.sizes import ABLATIONS
from rulax.records import earlier
from rulax.records import folder as folders
from rulax.records.provenance import fingerprint, how_made
from rulax.rules.kinds import KINDS

if TYPE_CHECKING:
    from rulax.discovery.discover import Discoverer
    from rulax.envs.base import Environment, HostEnvironment
    from rulax.parallel.mesh import Layout
    from rulax.rules.base import Recipe
    from rulax.rules.pretrained import RuleFile

KIND = "discover"


Families = dict[str, "Environment | HostEnvironment"]


class PreparedDiscovery(NamedTuple):
    """A discovery that could start now."""

    config: DiscoverConfig
    recipe: Recipe
    sizes: Any  # of the class that the kind of rule has
    training: Families  # by the name of their family
    validation: Families
    discoverer: Discoverer
    record: dict[str, Any]  # the content of config.json


def prepare_discovery(config: DiscoverConfig) -> PreparedDiscovery:
    """Check and build."""
    check_bounds(config)
    settings = override(Discovery(), config.overrides)
    check_bounds(settings)
    # Before the recipe is made, which a hand-designed rule would pass.
    check_start(config.init)
    kind = config.rule or DEFAULT
    if config.init not in ("", DEFAULT):
        settings = dataclasses.replace(settings, rule_init="open")  # only random weights are adjusted, never those of a file
    # The length of a schedule that the rule recommends is for training; that of discovery is the lifetime.
    overrides = {"schedule_steps": 0} | config.overrides
    recipe = build.make_recipe(config.init or kind, config.rule_options, overrides)
    check_first_step(config, kind, settings)
    check_keep(config, kind, settings)
    # Before JAX starts, since it needs no more than the settings.
    check_passes(settings, recipe)
    check_schedule(recipe)
    check_plain(recipe)
    build.start_jax(config.platform, config.precision)
    build.allow(config.step_limit)
    with user_errors():
        sizes = sizes_of(config)
    training = make_families(config.envs)
    validation = make_families(config.validation)
    if not training:
        raise UserError("discover in which environments? for example: rulax discover grids")
    check_held_out(training, validation)
    layout = make_layout(training, recipe, settings, config)
    return PreparedDiscovery(
        config,
        recipe,
        sizes,
        training,
        validation,
        make_discoverer(training, recipe, settings, config, layout),
        make_record(config, recipe, settings, sizes),
    )


def make_layout(training: Families, recipe: Recipe, settings: Discovery, config: DiscoverConfig) -> Layout:
    """On which devices the agents of all families live."""
    from rulax.envs.base import HostEnvironment

    on_host = any(isinstance(environment, HostEnvironment) for environment in training.values())
    return build.make_layout(config, {"agents": settings.agents, "streams": recipe.learning.streams}, on_host)


def make_discoverer(training: Families, recipe: Recipe, settings: Discovery, config: DiscoverConfig, layout: Layout) -> Discoverer:
    """The machinery of discovery, once it is certain that its parts fit together."""
    from rulax.discovery.discover import Discoverer
    from rulax.discovery.population import Family

    with user_errors():
        families = [Family(name, environment, recipe, settings) for name, environment in training.items()]
        discoverer = Discoverer(families, config.steps, config.most_restarts, layout)
        # Traces one whole state: network, rule and environments that do not fit together fail here, before there is a folder.
        discoverer.skeleton()
    return discoverer


def check_start(name: str) -> None:
    """Only what has parameters can be discovered, or discovered further."""
    from rulax.rules.registry import RULES, STORED

    # A file, or an unknown name, is left to the registry, whose error names the nearest rule.
    if name in RULES and name not in (*KINDS, *STORED):
        raise UserError(
            f"init: rule '{name}' is hand-designed and has no parameters to discover; give disco103 or a rule file, or leave "
            "--init out to start from a random rule"
        )


def check_first_step(config: DiscoverConfig, kind: str, settings: Discovery) -> None:
    """Refuse a start from which the first meta-gradient, and so every other, would be zero."""
    fresh, differentiated = config.init in ("", kind), settings.estimator not in PERTURBING
    if kind == "lpo" and fresh and differentiated and not loss_constants(config).first_std:
        raise UserError(
            f"rule lpo starts exactly as PPO, where estimator {settings.estimator} finds a gradient of zero: give --estimator "
            "evolution, or --rule-options first_std=0.1"
        )
    if settings.handover and kind != "epg":
        raise UserError(f"handover is from PPO's loss to a learned one, which rule {kind} does not have; rule epg does")
    if kind != DEFAULT and settings.rule_init != "open":
        raise UserError(f"rule_init {settings.rule_init} is about the weights of a meta-network, which rule {kind} does not have")


def check_keep(config: DiscoverConfig, kind: str, settings: Discovery) -> None:
    """Refuse to keep a rule near one that is not there, or by a loss that is never made."""
    if not settings.keep_cost:
        return
    if config.init in ("", kind):
        raise UserError("keep_cost keeps a rule near the one of --init, and this discovery starts from random weights")
    if kind != DEFAULT:
        raise UserError(f"keep_cost compares the targets of meta-networks, which rule {kind} does not have")
    if settings.estimator in PERTURBING:
        raise UserError(f"keep_cost is part of a loss, which estimator {settings.estimator} does not make; use backprop")


def check_schedule(recipe: Recipe) -> None:
    """A schedule ends with the lifetime of each agent: no other length is possible, and one that is given would do nothing."""
    if recipe.learning.schedule_steps:
        raise UserError(
            "schedule_steps is for training: in discovery a schedule ends with the lifetime of each agent; leave it out"
        )


def check_plain(recipe: Recipe) -> None:
    """Refuse agents that normalise: a rule would be discovered for them alone, and the critic would not see what they see."""
    for name in ("normalise_observations", "normalise_rewards"):
        if getattr(recipe.learning, name):
            raise UserError(f"discover does not support --{name.replace('_', '-')}; train and compare do")


def check_passes(settings: Discovery, recipe: Recipe) -> None:
    """Two strategies of memory know only one gradient per update."""
    passes = recipe.learning.epochs * recipe.learning.minibatches
    if passes > 1 and settings.memory in ONE_PASS:
        raise UserError(
            f"memory {settings.memory} differentiates one gradient per update, but epochs x minibatches is {passes}; use "
            "--memory plain, remat or segments"
        )


def sizes_of(config: DiscoverConfig) -> Any:
    """The sizes of the rule: a file's own, or those that the options ask for."""
    from rulax.rules.registry import split_ablations

    stored = stored_rule(config)
    sizes = stored.sizes if stored else with_options(KINDS[config.rule or DEFAULT].sizes(), config.rule_options)
    # An ablated rule is discovered further without its missing parts, and its file has to say so.
    without: dict[str, Any] = {ABLATIONS[each]: False for each in split_ablations(config.init)[1]}
    return dataclasses.replace(sizes, **without)


def loss_constants(config: DiscoverConfig) -> Any:
    """The constants of its losses: a file's own or the usual ones, where the options do not say otherwise."""
    stored = stored_rule(config)
    usual = KINDS[config.rule or DEFAULT].constants()
    return with_options(stored.rule_settings.constants if stored else usual, config.rule_options)


def stored_rule(config: DiscoverConfig) -> RuleFile | None:
    """The rule file that discovery starts from, if it does."""
    from rulax.rules.pretrained import load_rule, path_of
    from rulax.rules.registry import split_ablations

    init, _ = split_ablations(config.init)
    return load_rule(path_of(init)) if init and init not in KINDS else None


# -- families ------------------------------------------------------------------------------------------------------------------


def make_families(specs: tuple[str, ...]) -> Families:
    """Environments by the name of their family."""
    found: Families = {}
    for text in specs:
        spec = read_spec(text)
        environment = build.make_environment(spec.env, spec.options)
        # Compared as objects and not as text: `catch` and `catch:rows=10` are the same environment.
        known = next((name for name, other in found.items() if name == text or same(other, environment)), None)
        if known is not None:
            raise UserError(f"'{text}' is the same environment as '{known}'; name it once (--agents says how many live in it)")
        found[text] = environment
    return found


def check_held_out(training: Families, validation: Families) -> None:
    """Refuse a validation family in which agents of discovery live: it would say nothing about others."""
    for name, environment in validation.items():
        for other, known in training.items():
            if name == other or same(known, environment):
                raise UserError(
                    f"validation '{name}' is the same environment as '{other}', in which the rule is discovered: "
                    "it would not be held out"
                )


# -- the record ----------------------------------------------------------------------------------------------------------------


def make_record(config: DiscoverConfig, recipe: Recipe, settings: Discovery, sizes: Any) -> dict[str, Any]:
    """What config.json says: enough to repeat the run exactly, and to tell its checkpoints from others."""
    parts: dict[str, Any] = {"discovery": settings, "learning": recipe.learning, "network": recipe.network}
    record = how_made(
        KIND,
        recorded(config),
        **{name: dataclasses.asdict(part) for name, part in parts.items()},
        sizes=dataclasses.asdict(sizes),
        constants=dataclasses.asdict(loss_constants(config)),
    )
    # Under the first names of all settings, so that a renamed one does not change the fingerprint of old runs.
    fixed = earlier.original(fixed_part(record), *earlier.PARTS.values())
    return record | {"fingerprint": fingerprint(fixed)}


def fixed_part(record: dict[str, Any]) -> dict[str, Any]:
    """The settings that a resumed run must share, by name."""
    # A suite and its scale are resolved: environments and settings fix the result, and not where they come from.
    free = (*changeable(DiscoverConfig), "suite", "scale", "scaled")
    fixed = {name: value for name, value in record["settings"].items() if name not in free}
    for part in earlier.PARTS:
        fixed |= record[part]
    # Runs from before there were several kinds name none.
    if not fixed.get("rule"):
        fixed.pop("rule", None)
    # As JSON has it, because it is compared with what was read from a checkpoint.
    return jsonable(fixed)


def saved_discovery(record: dict[str, Any], changes: dict[str, Any]) -> DiscoverConfig:
    """The configuration of an earlier run, with the changes that a resumed run may make."""
    resolved = {name: value for part in earlier.PARTS for name, value in record[part].items()}
    # Resolved settings replace the suite's: the suite's file may have changed since the run was begun. Hence not build_discover.
    values = read_values(DiscoverConfig, record["settings"] | resolved | changes, folders.CONFIG)
    return assemble(DiscoverConfig, values | whole_specs(values))
