"""Pendulum: swing up and hold. Gymnasium's Pendulum-v1, with any torque or a few to choose from, and its constants as the task."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.envs.classic.physics import Constant, as_numbers, vary, wrap_angle
from rulax.envs.wrappers import Continuous
from rulax.types import Array


class PendulumTask(NamedTuple):
    """Physical constants, each []."""

    gravity: Constant = 10.0
    mass: Constant = 1.0
    length: Constant = 1.0
    torque: Constant = 2.0  # the largest
    speed_limit: Constant = 8.0
    time_step: Constant = 0.05


RANGES = {"gravity": (0.8, 1.2), "mass": (0.8, 1.2), "length": (0.8, 1.2)}


@dataclasses.dataclass(frozen=True)
class Pendulum(Environment):
    """`torques` equally spaced torques from full left to full right; the cost is angle² + speed²/10 + torque²/1000.

    Never terminates. State: angle from upright, speed.
    """

    torques: int = 5

    observation = jax.ShapeDtypeStruct((3,), jnp.float32)
    positive = ("mass", "length", "time_step")

    def __post_init__(self) -> None:
        if self.torques < 2:
            raise ValueError(f"Pendulum needs at least 2 torques, not {self.torques}")

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.torques

    def default_task(self) -> PendulumTask:
        return as_numbers(PendulumTask())

    def sample_task(self, key: Array) -> PendulumTask:
        return vary(key, PendulumTask(), RANGES)

    def reset(self, task: PendulumTask, key: Array) -> tuple[Array, Array]:
        state = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0) * jnp.array([jnp.pi, 1.0], jnp.float32)
        return state, _observe(state)

    def step(self, task: PendulumTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        torque = jnp.linspace(-1.0, 1.0, self.torques, dtype=jnp.float32)[action] * task.torque
        return swing(task, state, torque)


@dataclasses.dataclass(frozen=True)
class RealPendulum(Pendulum):
    """The same with any torque: an action is a share of the largest, and what is beyond [-1, 1] is clipped."""

    num_actions = 1  # type: ignore[assignment]  # dimensions of an action

    def step(self, task: PendulumTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        return swing(task, state, jnp.clip(action[0], -1.0, 1.0) * task.torque)


def continuous_pendulum() -> Continuous:
    """The one with any torque, or `bins` of them."""
    return Continuous(RealPendulum())


def swing(task: PendulumTask, state: Array, torque: Array) -> tuple[Array, Transition]:
    """One step with a torque []."""
    angle, speed = state
    # The cost is that of the state before the step, as in Gymnasium.
    cost = wrap_angle(angle) ** 2 + 0.1 * speed**2 + 0.001 * torque**2
    pull = 3 * task.gravity / (2 * task.length) * jnp.sin(angle) + 3 / (task.mass * task.length**2) * torque
    speed = jnp.clip(speed + pull * task.time_step, -task.speed_limit, task.speed_limit)
    # Gymnasium lets the angle grow; float32 would lose digits.
    state = jnp.stack([wrap_angle(angle + speed * task.time_step), speed])
    return state, Transition(_observe(state), -cost, jnp.bool_(False), jnp.bool_(False))


def _observe(state: Array) -> Array:
    angle, speed = state
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])
