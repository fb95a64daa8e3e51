"""A mass that has to move at a speed that it cannot see: a stand-in for MAML's half-cheetah with goal velocities."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment, Transition
from rulax.types import Array


class VelocityTask(NamedTuple):
    """How fast to move."""

    speed: Array  # []


@dataclasses.dataclass(frozen=True)
class Velocity(Environment):
    """The actuator follows the action with a lag, the mass follows the actuator against friction:

        u <- u + (a - u) lag,      v <- v + dt (gain u - damping v),      reward -|v - speed| - 0.05 a²

    with a clipped to [-1, 1]. The fastest it can go is gain / damping = 3; speeds asked for are uniform in [0, 2].
    """

    lag: float = 0.3
    gain: float = 3.0
    damping: float = 1.0
    time_step: float = 0.05
    effort: float = 0.05
    fastest: float = 2.0

    num_actions = 1  # dimensions of an action
    horizon = 200
    observation = jax.ShapeDtypeStruct((2,), jnp.float32)

    def default_task(self) -> VelocityTask:
        return VelocityTask(jnp.float32(self.fastest / 2))

    def sample_task(self, key: Array) -> VelocityTask:
        return VelocityTask(jax.random.uniform(key, (), jnp.float32, 0.0, self.fastest))

    def reset(self, task: VelocityTask, key: Array) -> tuple[Array, Array]:
        return jnp.zeros(2, jnp.float32), jnp.zeros(2, jnp.float32)

    def step(self, task: VelocityTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        push, speed = state
        force = jnp.clip(action[0], -1.0, 1.0)
        push = push + self.lag * (force - push)
        speed = speed + self.time_step * (self.gain * push - self.damping * speed)
        state = jnp.stack([push, speed]).astype(jnp.float32)
        reward = -jnp.abs(speed - task.speed) - self.effort * jnp.square(force)
        return state, Transition(state, reward, jnp.bool_(False), jnp.bool_(False))


def best_return(environment: Velocity, speed: float, smooth: float = 1e-5) -> float:
    """The best return for an agent that knows the speed, by convex optimisation over actions, in which speeds are linear.

    |x| is rounded off to sqrt(x² + smooth²), so the optimum of what is solved lies within horizon * smooth of the true one; what
    is returned is the true return of the actions found.
    """
    from scipy.optimize import minimize

    steps = environment.horizon
    response = np.zeros(steps)  # of the speed to one unit of action
    push = moved = 0.0
    for t in range(steps):
        push += environment.lag * ((t == 0) - push)
        moved += environment.time_step * (environment.gain * push - environment.damping * moved)
        response[t] = moved
    ages = np.arange(steps)[:, None] - np.arange(steps)[None, :]
    matrix = np.where(ages >= 0, response[np.maximum(ages, 0)], 0.0)

    def cost(actions: np.ndarray) -> tuple[float, np.ndarray]:
        error = matrix @ actions - speed
        size = np.sqrt(error**2 + smooth**2)
        value = np.sum(size) + environment.effort * np.sum(actions**2)
        return float(value), matrix.T @ (error / size) + 2 * environment.effort * actions

    actions = np.full(steps, min(speed * environment.damping / environment.gain, 1.0))
    for rounded in (1e-1, 1e-2, 1e-3, 1e-4, smooth):  # from rounded to sharp, each from where the last one ended
        smooth = rounded
        actions = minimize(cost, actions, jac=True, method="L-BFGS-B", bounds=[(-1, 1)] * steps, options={"maxiter": 2000}).x
    return -float(np.sum(np.abs(matrix @ actions - speed)) + environment.effort * np.sum(actions**2))
