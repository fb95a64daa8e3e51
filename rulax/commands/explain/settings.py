"""What a user may choose for `rulax explain`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rulax.commands.names import take_options
from rulax.commands.settings import AGENTS, LARGEST_SEED, Writing, assemble, check_bounds, read_values
from rulax.commands.train.settings import TrainConfig
from rulax.errors import UserError
from rulax.rules.registry import recommended_steps
from rulax.settings import setting

WHAT, HOW = "what to explain", "how to look"
LEAST_WATCH = 32  # the length of the trajectories that the analyses cut a recording into


@dataclasses.dataclass(frozen=True)
class ExplainConfig(Writing):
    """Show what a rule does, on one interactive page: its targets, what they rely on, what predictions know."""

    rule: str = setting("", WHAT, positional=True, metavar="RULE")
    """Update rule: a name (`rulax rules` lists them all), a rule file, or your own as file.py:name or module:name."""
    env: str = setting("catch", WHAT, metavar="ENV")
    """Environment in which that agent is trained; it must be one written in JAX."""
    steps: int = setting(250_000, WHAT, at_least=1)
    """Environment steps of its life [default: what the rule recommends]."""
    env_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the environment, for example rows=8 columns=8."""
    rule_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the rule, for example discount=0.95."""
    snapshots: int = setting(13, HOW, at_least=2)
    """Moments of its life at which the agent is looked at, beginning and end included."""
    watch: int = setting(256, HOW, at_least=LEAST_WATCH)
    """Steps for which it is watched at each of them, in every stream."""
    ablations: bool = setting(False, HOW)
    """Train two more agents, by the rule without y and z: in their own targets, and in all. This takes more than
    twice as long."""
    seed: int = setting(0, "run", at_least=0, at_most=LARGEST_SEED)
    """Seed of all random numbers."""
    overrides: dict[str, Any] = setting(dict, settings=AGENTS)
    """Fields of Learning and Network that differ from what the rule recommends."""


def build_explain(values: Mapping[str, Any]) -> ExplainConfig:
    """A configuration from what the user gave."""
    given = take_options(read_values(ExplainConfig, values))
    if given.get("rule"):
        # Without a rule there is nothing to recommend; `check` then asks for one.
        given.setdefault("steps", recommended_steps(given["rule"]))
    return assemble(ExplainConfig, given)


def check(config: ExplainConfig) -> None:
    """The command's own numbers."""
    check_bounds(config)
    if not config.rule:
        raise UserError("which rule? for example: rulax explain disco103 (`rulax rules` lists them all)")
    if config.overrides.get("action_distribution", "bins") != "bins":
        raise UserError(
            "explain looks at policies over choices: leave action_distribution out, and real numbers are chosen by bins"
        )


def train_config(config: ExplainConfig) -> TrainConfig:
    """The life that is looked at, as `rulax train` would live it."""
    shared = ("env", "rule", "steps", "seed", "env_options", "rule_options", "platform", "quiet", "overrides")
    life = TrainConfig(**{name: getattr(config, name) for name in shared})
    return dataclasses.replace(life, overrides=life.overrides | {"action_distribution": "bins"})
