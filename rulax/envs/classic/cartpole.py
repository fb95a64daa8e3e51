"""CartPole: balance a pole on a cart. Gymnasium's CartPole-v1, with its constants as the task."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.envs.classic.physics import Constant, as_numbers, vary
from rulax.types import Array


class CartPoleTask(NamedTuple):
    """Physical constants, each []."""

    gravity: Constant = 9.8
    cart_mass: Constant = 1.0
    pole_mass: Constant = 0.1
    half_length: Constant = 0.5  # half of the pole's length
    force: Constant = 10.0
    time_step: Constant = 0.02
    position_limit: Constant = 2.4
    angle_limit: Constant = 12 * 2 * math.pi / 360


RANGES = {
    "gravity": (0.8, 1.2),
    "cart_mass": (0.5, 2.0),
    "pole_mass": (0.5, 2.0),
    "half_length": (0.5, 2.0),
    "force": (0.8, 1.2),
}
# as Gymnasium, and papers after it, call them
SHORT_NAMES = {"length": ("half_length",), "mass": ("pole_mass",)}


@dataclasses.dataclass(frozen=True)
class CartPole(Environment):
    """Push left or right; +1 for every step until the pole falls or the cart leaves. State: x, its speed, angle, its speed."""

    num_actions = 2
    observation = jax.ShapeDtypeStruct((4,), jnp.float32)
    short_names = SHORT_NAMES
    positive = ("cart_mass", "pole_mass", "half_length", "time_step")

    def default_task(self) -> CartPoleTask:
        return as_numbers(CartPoleTask())

    def sample_task(self, key: Array) -> CartPoleTask:
        return vary(key, CartPoleTask(), RANGES)

    def reset(self, task: CartPoleTask, key: Array) -> tuple[Array, Array]:
        state = jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05)
        return state, state

    def step(self, task: CartPoleTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        _, speed, angle, turning = state
        force = jnp.where(action == 1, task.force, -task.force)
        mass = task.cart_mass + task.pole_mass
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        push = (force + task.pole_mass * task.half_length * turning**2 * sine) / mass
        angular = (task.gravity * sine - cosine * push) / (task.half_length * (4 / 3 - task.pole_mass * cosine**2 / mass))
        linear = push - task.pole_mass * task.half_length * angular * cosine / mass
        # Explicit Euler with the speeds before the step, as Gymnasium does by default.
        state = state + task.time_step * jnp.stack([speed, linear, turning, angular])
        fallen = (jnp.abs(state[0]) > task.position_limit) | (jnp.abs(state[2]) > task.angle_limit)
        return state, Transition(state, jnp.float32(1), fallen, jnp.bool_(False))
