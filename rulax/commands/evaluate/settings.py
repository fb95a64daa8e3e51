"""What a user may choose for `rulax evaluate`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rulax.commands.settings import LARGEST_SEED, Computing, assemble, check_bounds, read_values
from rulax.errors import UserError
from rulax.settings import STEP_LIMIT, setting

WHAT, HOW = "which agents", "how to play"
EXAMPLE = "runs/catch-ppo-001 (`rulax runs` lists all runs) or agent.safetensors"


@dataclasses.dataclass(frozen=True)
class AgentsConfig(Computing):
    """Commands that take trained agents."""

    what: str = setting("", WHAT, positional=True, metavar="RUN|AGENT")
    """Folder of a training run, or a file that `run.agent.save(...)` has written."""
    env: str = setting("", WHAT, metavar="ENV")
    """Another environment with the same observations and actions, perhaps with options (catch:tasks=2)
    [default: the one that it was trained in]."""
    env_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the environment that differ from training."""
    randomise: dict[str, Any] = setting(dict, WHAT, metavar="NAME=LOW:HIGH")
    """Constants to draw anew for every episode, instead of the ranges of training, if it had any: force=1:5|15:20."""
    seed: int = setting(0, HOW, at_least=0, at_most=LARGEST_SEED)
    """Seed of all random numbers; they are never those of training."""
    step_limit: float = setting(STEP_LIMIT, HOW, at_least=0, metavar="SECONDS")
    """How long one step or reset of an environment that steps on the CPU may take; 0 means for ever."""


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(AgentsConfig):
    """Let trained agents play whole episodes: mean return with its interval, for each seed."""

    episodes: int = setting(100, HOW, at_least=1)
    """Episodes of each agent, and of each kind."""
    greedy: bool = setting(False, HOW)
    """Only by the most likely actions; without this and --sampled, both kinds."""
    sampled: bool = setting(False, HOW)
    """Only with actions drawn from the policy, as in training."""
    json: bool = setting(False, "run")
    """Print all numbers as JSON, every episode included."""


def build_evaluate(values: Mapping[str, Any]) -> EvaluateConfig:
    """A configuration from what the user gave."""
    config = assemble(EvaluateConfig, with_ranges(read_values(EvaluateConfig, values)))
    check(config, "evaluate")
    return config


def with_ranges(given: dict[str, Any]) -> dict[str, Any]:
    """What was given, with `randomise` as an option of the environment; its name is known only once the agents are found."""
    ranges = given.pop("randomise", None)
    return given | {"env_options": {**given.get("env_options", {}), "randomise": ranges}} if ranges else given


def check(config: AgentsConfig, command: str) -> None:
    """The command's own numbers, and that an agent is named."""
    check_bounds(config)
    if not config.what:
        raise UserError(f"which agent? for example: rulax {command} {EXAMPLE}")
