"""Builds what `rulax explain` needs: the life to look at, and what is inside the rule if it was discovered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rulax.commands import build
from rulax.commands.build import with_options
from rulax.commands.explain.settings import ExplainConfig, check, train_config
from rulax.commands.train.setup import Prepared, prepare
from rulax.errors import UserError
from rulax.metanet.sizes import ABLATIONS, Constants, Sizes

if TYPE_CHECKING:
    from rulax.evaluation.explain.record import Values
    from rulax.metanet.network import MetaNetwork
    from rulax.types import PyTree

UNSEEN = "agents are watched inside of compiled programs, so the environment must be one written in JAX; `rulax envs` lists them"


class Inside(NamedTuple):
    """What a discovered rule is made of."""

    network: MetaNetwork
    sizes: Sizes
    constants: Constants
    about: dict[str, str]


class Subject(NamedTuple):
    """A rule that is about to be explained."""

    config: ExplainConfig
    prepared: Prepared
    inside: Inside | None  # None for a hand-designed rule
    values: Values  # predictions -> value of each state


def set_up(config: ExplainConfig) -> Subject:
    """Check and build; every mistake of the user is found here."""
    check(config)
    from rulax.envs.base import HostEnvironment

    build.start_jax(config.platform)
    # Made once more by `prepare`; here it only shows whether it can be used, before a trainer opens streams for a host environment.
    environment = build.make_environment(config.env, config.env_options)
    if isinstance(environment, HostEnvironment):
        raise UserError(f"'{config.env}' cannot be used here: {UNSEEN}")
    build.check_one_choice(config.env, environment, "explain")
    prepared = prepare(train_config(config))
    from rulax.evaluation.explain.record import values_of

    inside = look_inside(config, prepared.trainer.rule_params)
    largest = inside.sizes.largest_value if inside else None
    return Subject(config, prepared, inside, values_of(prepared.trainer, largest))


def look_inside(config: ExplainConfig, params: PyTree) -> Inside | None:
    """The meta-network of a discovered rule with its sizes and constants; None for a hand-designed rule."""
    from rulax.metanet.network import MetaNetwork
    from rulax.rules.pretrained import RuleFile, load_rule, path_of, without
    from rulax.rules.registry import split_ablations

    if not isinstance(params, MetaNetwork):
        return None
    name, ablations = split_ablations(config.rule)
    # Random weights have no file that would tell their sizes, so these are built as the rule itself was.
    if name == "disco":
        switches: dict[str, Any] = {ABLATIONS[each]: False for each in ablations}
        loaded = RuleFile(params, Sizes(**switches), {})
    else:
        loaded = without(load_rule(path_of(name)), ablations)
    sizes, constants, about = loaded.sizes, loaded.rule_settings.constants, dict(loaded.about)
    # The network is that of the trainer, not the file's: it is what the agent is really taught by.
    return Inside(params, with_options(sizes, config.rule_options), with_options(constants, config.rule_options), about)
