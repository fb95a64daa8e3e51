"""Checks numbers that only make sense within bounds or together. Called before anything is built or written."""

from __future__ import annotations

import dataclasses
from typing import Any

from rulax.commands.config import EXAMPLE, TrainConfig, load_preset
from rulax.errors import UserError
from rulax.settings import Learning, Network

AT_LEAST_ONE = (
    "steps",
    "seeds",
    "streams",
    "unroll",
    "capacity",
    "epochs",
    "minibatches",
    "hidden",
    "channels",
    "core_size",
    "symbols",
    "embedding",
    "action_model",
    "action_hidden",
    "agents",
    "window",
    "validation_unroll",
    "lifetimes",
    "critic_hidden",
    "pairs",
    "bootstrap_updates",
    "evaluation_seeds",
    "evaluation_updates",
    "tune_seeds",
    "tune_steps",
    "port",
)
AT_LEAST_ZERO = (
    "seed",
    "actions",
    "log_every",
    "batch",
    "burn_in",
    "blocks",
    "warmup",
    "warmup_updates",
    "clip_gradient",
    "clip_update",
    "weight_decay",
    "agents_at_once",
    "meta_clip",
    "policy_entropy_cost",
    "prediction_entropy_cost",
    "target_kl_cost",
    "target_mean_cost",
    "critic_head_std",
    "evaluate_every",
    "memory_limit",
    "most_bad",
    "most_restarts",
)
NOT_EMPTY = ("hidden", "lifetimes", "critic_hidden")
ABOVE_ZERO = (
    "checkpoint_minutes",
    "seconds",
    "learning_rate",
    "reward_scale",
    "adam_eps",
    "meta_learning_rate",
    "critic_learning_rate",
    "noise",
    "bootstrap_rate",
)
FRACTIONS = ("replay", "slow_decay", "critic_discount", "critic_trace")  # [0, 1]
DECAYS = ("adam_b1", "adam_b2")  # [0, 1)
LARGEST_SEED = 2**32 - 1


def check_bounds(settings: Any) -> None:
    """Each field of one dataclass on its own."""
    for name, value in vars(settings).items():
        if name in NOT_EMPTY and value == ():
            raise UserError(f"{name} needs at least one number, for example 64")
        for number in value if isinstance(value, tuple) else (value,):
            check_number(name, number)


def check_number(name: str, number: Any) -> None:
    """One number against the bounds of its field."""
    if name in AT_LEAST_ONE and number < 1:
        raise UserError(f"{name} must be at least 1, not {number}")
    if name in AT_LEAST_ZERO and number < 0:
        raise UserError(f"{name} must not be negative, not {number}")
    if name in ABOVE_ZERO and number <= 0:
        raise UserError(f"{name} must be greater than 0, not {number:g}")
    if name in FRACTIONS and not 0 <= number <= 1:
        raise UserError(f"{name} must lie between 0 and 1, not {number:g}")
    if name in DECAYS and not 0 <= number < 1:
        raise UserError(f"{name} must be at least 0 and less than 1, not {number:g}")
    if name == "seed" and number > LARGEST_SEED:
        raise UserError(f"seed must be at most {LARGEST_SEED}, not {number}")


def check_settings(learning: Learning, network: Network) -> None:
    """What the trainer is about to be built from: each number, and numbers that must fit together."""
    check_bounds(learning)
    check_bounds(network)
    size, name = (learning.batch, "batch") if learning.batch else (learning.streams, "streams")
    if size % learning.minibatches:
        raise UserError(f"{name} ({size}) must be divisible by minibatches ({learning.minibatches})")
    if learning.burn_in >= learning.unroll:
        raise UserError(f"burn_in ({learning.burn_in}) must leave something of a trajectory of {learning.unroll} steps (unroll)")
    if learning.burn_in and network.core == "none":
        raise UserError("burn_in refreshes the memory of a recurrent agent, and this one has none: --core lstm, or leave it out")
    fresh = size - round(size * learning.replay)
    if fresh > learning.streams:
        raise UserError(
            f"batch ({size}) with replay {learning.replay:g} needs {fresh} fresh trajectories per update, but there are only "
            f"{learning.streams} streams"
        )
    held = -(-learning.capacity // learning.streams) * learning.streams
    if learning.replay > 0 and learning.warmup > held:
        raise UserError(f"warmup ({learning.warmup}) must not exceed the capacity of the replay buffer ({held})")


def check_train(config: TrainConfig) -> None:
    """The command's own numbers, and that there is something to train."""
    check_bounds(config)
    if not config.env and config.preset:
        example = load_preset(config.preset).get(EXAMPLE, "ENV")
        line = f"rulax train {example} --preset {config.preset}"
        raise UserError(f"which environment? '{config.preset}' names none; for example: {line} (`rulax envs` lists them all)")
    if not config.env:
        raise UserError("which environment? for example: rulax train catch (`rulax envs` lists them all)")


def override(settings: Any, overrides: dict[str, Any]) -> Any:
    """A copy of Learning or Network with those overrides that belong to it."""
    own = {field.name for field in dataclasses.fields(settings)}
    return dataclasses.replace(settings, **{name: value for name, value in overrides.items() if name in own})
