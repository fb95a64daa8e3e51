"""MountainCar: swing up a hill with too weak an engine. Gymnasium's MountainCar-v0, with its constants as the task."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.envs.classic.physics import Constant, as_numbers, vary
from rulax.types import Array


class MountainCarTask(NamedTuple):
    """Physical constants, each []."""

    force: Constant = 0.001
    gravity: Constant = 0.0025
    speed_limit: Constant = 0.07
    left_end: Constant = -1.2
    right_end: Constant = 0.6
    goal: Constant = 0.5
    goal_speed: Constant = 0.0


RANGES = {"force": (0.9, 1.2), "gravity": (0.9, 1.1)}
# what Packer et al. (2018) call the mass is the pull of the hill
SHORT_NAMES = {"mass": ("gravity",)}


@dataclasses.dataclass(frozen=True)
class MountainCar(Environment):
    """Push left, not at all, or right; -1 for every step until the goal. State: position, speed."""

    num_actions = 3
    observation = jax.ShapeDtypeStruct((2,), jnp.float32)
    short_names = SHORT_NAMES

    def default_task(self) -> MountainCarTask:
        return as_numbers(MountainCarTask())

    def sample_task(self, key: Array) -> MountainCarTask:
        return vary(key, MountainCarTask(), RANGES)

    def reset(self, task: MountainCarTask, key: Array) -> tuple[Array, Array]:
        state = jnp.stack([jax.random.uniform(key, (), jnp.float32, -0.6, -0.4), jnp.float32(0)])
        return state, state

    def step(self, task: MountainCarTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        position, speed = state
        push = (action - 1).astype(jnp.float32) * task.force
        speed = speed + push - jnp.cos(3 * position) * task.gravity
        speed = jnp.clip(speed, -task.speed_limit, task.speed_limit)
        position = jnp.clip(position + speed, task.left_end, task.right_end)
        # The wall on the left is inelastic, as in Gymnasium.
        speed = jnp.where((position <= task.left_end) & (speed < 0), 0.0, speed)
        arrived = (position >= task.goal) & (speed >= task.goal_speed)
        state = jnp.stack([position, speed])
        return state, Transition(state, jnp.float32(-1), arrived, jnp.bool_(False))
