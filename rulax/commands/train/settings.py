"""What a user may choose for `rulax train`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from rulax.commands.preset_files import EXAMPLE, load_preset, merge, read_preset
from rulax.commands.settings import AGENTS, HostLoop, Running, assemble, check_bounds, read_values
from rulax.errors import UserError
from rulax.rules.registry import recommended_steps
from rulax.settings import setting

DEFAULT_RULE = "rulax5"
WHAT = "what to train"


@dataclasses.dataclass(frozen=True)
class TrainConfig(HostLoop, Running):
    """Train agents on one environment with one rule."""

    env: str = setting("", WHAT, positional=True, metavar="ENV")
    """Environment, for example catch; `rulax envs` lists them all."""
    rule: str = setting(DEFAULT_RULE, WHAT, metavar="NAME|FILE")
    """Update rule, by name (`rulax rules` lists them all) or from a rule file."""
    steps: int = setting(500_000, WHAT, at_least=1, on_resume=True)
    """Environment steps per seed; 200k, 1e6 and 1_000_000 are understood [default: what the rule recommends]."""
    seeds: int = setting(1, WHAT, at_least=1)
    """Agents trained side by side, each with its own random numbers."""
    task: Literal["default", "random"] = setting("default", WHAT)
    """Whether every seed gets the environment's own task or one drawn at random."""
    env_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the environment, for example rows=8 columns=8."""
    rule_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the rule, for example discount=0.95."""
    preset: str = setting("", "run", metavar="NAME|FILE")
    """Settings from a YAML or JSON file, or one of the presets named below; flags win over it."""
    wandb: str = setting("", "run", metavar="PROJECT")
    """Log to this project of Weights & Biases too; needs `pip install 'rulax[wandb]'`."""
    log_every: int = setting(0, "run", at_least=0)
    """Environment steps per point of the curve; 0 means a hundredth of the run."""
    overrides: dict[str, Any] = setting(dict, settings=AGENTS)
    """Fields of Learning and Network that differ from what the rule recommends."""


def build_train(values: Mapping[str, Any]) -> TrainConfig:
    """A configuration from what the user gave and the preset they named, if any."""
    given = read_values(TrainConfig, values)
    if given.get("preset"):
        # The example is for the error message of `check_train`, not a setting.
        given = merge(read_preset(TrainConfig, given["preset"], frozenset({EXAMPLE})), given)
    # After the preset, which may name the rule that this depends on, or the steps themselves.
    given.setdefault("steps", recommended_steps(given.get("rule", DEFAULT_RULE)))
    return assemble(TrainConfig, given)


def check_train(config: TrainConfig) -> None:
    """The command's own numbers, and that there is something to train."""
    check_bounds(config)
    if not config.env and config.preset:
        example = load_preset(config.preset).get(EXAMPLE, "ENV")
        line = f"rulax train {example} --preset {config.preset}"
        raise UserError(f"which environment? '{config.preset}' names none; for example: {line} (`rulax envs` lists them all)")
    if not config.env:
        raise UserError("which environment? for example: rulax train catch (`rulax envs` lists them all)")
