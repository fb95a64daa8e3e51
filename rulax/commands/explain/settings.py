"""What a user may choose for `rulax explain`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from rulax.commands.bounds import check_bounds
from rulax.commands.config import SETTINGS, TrainConfig, setting
from rulax.errors import UserError


@dataclasses.dataclass(frozen=True)
class ExplainConfig:
    """Show what a rule does: train one agent with it, look at it over its life, and write one interactive page."""

    rule: str = setting("", "what to explain", positional=True, metavar="RULE")
    """Update rule, by name (`rulax rules` lists them all) or from a rule file."""
    env: str = setting("catch", "what to explain", metavar="ENV")
    """Environment in which the agent lives that is looked at; it must be one written in JAX."""
    steps: int = setting(250_000, "what to explain")
    """Environment steps of its life [default: what the rule recommends]."""
    seed: int = setting(0, "what to explain")
    """Where all randomness starts."""
    env_options: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"group": "what to explain", "metavar": "KEY=VALUE"}
    )
    """Options of the environment, for example rows=8 columns=8."""
    rule_options: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"group": "what to explain", "metavar": "KEY=VALUE"}
    )
    """Options of the rule, for example discount=0.95."""
    snapshots: int = setting(13, "how to look")
    """Moments of its life at which the agent is looked at, birth and end included."""
    watch: int = setting(256, "how to look")
    """Steps for which it is watched at each of them, in every stream."""
    ablations: bool = setting(True, "how to look")
    """Whether two more agents are trained, by the rule without y and z: in their own targets, and in all. Most of the time."""
    out: str = setting("", "run", metavar="DIR")
    """Folder for the page and the numbers [default: runs/explain-RULE-NUMBER]."""
    platform: Literal["auto", "cpu", "gpu", "tpu"] = setting("auto", "run")
    """Where to compute; auto takes an accelerator if there is one."""
    quiet: bool = setting(False, "run")
    """Show no progress; print only the folder."""
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict, metadata={"settings": SETTINGS})
    """Fields of Learning and Network that differ from what the rule recommends."""


LEAST_WATCH = 32  # the length of the trajectories that the analyses cut a recording into


def check(config: ExplainConfig) -> None:
    """The command's own numbers."""
    check_bounds(config)
    if not config.rule:
        raise UserError("which rule? for example: rulax explain disco103 (`rulax rules` lists them all)")
    if config.snapshots < 2:
        raise UserError(f"snapshots must be at least 2 (birth and end), not {config.snapshots}")
    if config.watch < LEAST_WATCH:
        raise UserError(f"watch must be at least {LEAST_WATCH} steps, not {config.watch}")


def train_config(config: ExplainConfig) -> TrainConfig:
    """The life that is looked at, as `rulax train` would live it."""
    shared = ("env", "rule", "steps", "seed", "env_options", "rule_options", "platform", "quiet", "overrides")
    return TrainConfig(**{name: getattr(config, name) for name in shared})
