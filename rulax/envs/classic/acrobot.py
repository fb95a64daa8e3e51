"""Acrobot: swing a two-link arm above a line. Gymnasium's Acrobot-v1 ("book" equations), with its constants as the task."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.envs.classic.physics import Constant, as_numbers, vary, wrap_angle
from rulax.types import Array


class AcrobotTask(NamedTuple):
    """Physical constants, each []; link 1 hangs from the fixed point, link 2 from link 1."""

    length_1: Constant = 1.0
    length_2: Constant = 1.0
    mass_1: Constant = 1.0
    mass_2: Constant = 1.0
    centre_1: Constant = 0.5  # distance of the centre of mass from the link's upper end
    centre_2: Constant = 0.5
    inertia: Constant = 1.0
    gravity: Constant = 9.8
    torque: Constant = 1.0
    time_step: Constant = 0.2
    speed_limit_1: Constant = 4 * math.pi
    speed_limit_2: Constant = 9 * math.pi
    height: Constant = 1.0  # the goal above the fixed point


RANGES = {"length_1": (0.8, 1.2), "length_2": (0.8, 1.2), "mass_1": (0.8, 1.2), "mass_2": (0.8, 1.2), "gravity": (0.9, 1.1)}
SHORT_NAMES = {"length": ("length_1", "length_2"), "mass": ("mass_1", "mass_2")}


@dataclasses.dataclass(frozen=True)
class Acrobot(Environment):
    """Torque -1, 0 or +1 at the elbow; -1 for every step until the tip is high enough. State: two angles, two speeds.

    With `by_angles` the goal is a matter of angles alone, those at which links of length 1 would reach it, whatever the lengths
    are. Gymnasium has it so; with its own lengths, both are the same.
    """

    by_angles: bool = False

    num_actions = 3
    observation = jax.ShapeDtypeStruct((6,), jnp.float32)
    short_names = SHORT_NAMES
    positive = ("length_1", "length_2", "mass_1", "mass_2", "inertia", "time_step")

    def default_task(self) -> AcrobotTask:
        return as_numbers(AcrobotTask())

    def sample_task(self, key: Array) -> AcrobotTask:
        return vary(key, AcrobotTask(), RANGES)

    def reset(self, task: AcrobotTask, key: Array) -> tuple[Array, Array]:
        state = jax.random.uniform(key, (4,), jnp.float32, -0.1, 0.1)
        return state, _observe(state)

    def step(self, task: AcrobotTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        torque = (action - 1).astype(jnp.float32) * task.torque
        state = _runge_kutta(task, state, torque)
        angles = wrap_angle(state[:2])
        limits = jnp.stack([task.speed_limit_1, task.speed_limit_2])
        state = jnp.concatenate([angles, jnp.clip(state[2:], -limits, limits)])
        lengths = (1.0, 1.0) if self.by_angles else (task.length_1, task.length_2)
        tip = -lengths[0] * jnp.cos(angles[0]) - lengths[1] * jnp.cos(angles[0] + angles[1])
        arrived = tip > task.height
        reward = jnp.where(arrived, 0.0, -1.0).astype(jnp.float32)
        return state, Transition(_observe(state), reward, arrived, jnp.bool_(False))


def _observe(state: Array) -> Array:
    first, second, *speeds = state
    return jnp.stack([jnp.cos(first), jnp.sin(first), jnp.cos(second), jnp.sin(second), *speeds])


def _runge_kutta(task: AcrobotTask, state: Array, torque: Array) -> Array:
    """One step of the classical fourth-order method."""
    step = task.time_step
    slope_1 = _slope(task, state, torque)
    slope_2 = _slope(task, state + step / 2 * slope_1, torque)
    slope_3 = _slope(task, state + step / 2 * slope_2, torque)
    slope_4 = _slope(task, state + step * slope_3, torque)
    return state + step / 6 * (slope_1 + 2 * slope_2 + 2 * slope_3 + slope_4)


def _slope(task: AcrobotTask, state: Array, torque: Array) -> Array:
    """Time derivative of the state (Sutton & Barto, section on the acrobot); d and phi as named there."""
    first, second, speed_1, speed_2 = state
    sine, cosine = jnp.sin(second), jnp.cos(second)
    coupling = task.mass_2 * task.length_1 * task.centre_2
    own_2 = task.mass_2 * task.centre_2**2
    d2 = own_2 + coupling * cosine + task.inertia
    d1 = task.mass_1 * task.centre_1**2 + own_2 + task.mass_2 * task.length_1**2 + 2 * coupling * cosine + 2 * task.inertia
    phi2 = task.mass_2 * task.centre_2 * task.gravity * jnp.sin(first + second)
    weight = (task.mass_1 * task.centre_1 + task.mass_2 * task.length_1) * task.gravity * jnp.sin(first)
    phi1 = -coupling * sine * speed_2 * (speed_2 + 2 * speed_1) + weight + phi2
    acceleration_2 = (torque + d2 / d1 * phi1 - coupling * speed_1**2 * sine - phi2) / (own_2 + task.inertia - d2**2 / d1)
    acceleration_1 = -(d2 * acceleration_2 + phi1) / d1
    return jnp.stack([speed_1, speed_2, acceleration_1, acceleration_2])
