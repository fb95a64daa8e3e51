"""A point in the plane that has to find a goal it cannot see: the navigation task of MAML, as its code defines it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.envs.wrappers import Binned, Continuous
from rulax.types import Array

REACH = 0.01  # how near, in each coordinate, ends the episode


class PointTask(NamedTuple):
    """Where to go."""

    goal: Array  # [2]


@dataclasses.dataclass(frozen=True)
class Point(Environment):
    """Starts at the origin; the reward is minus the distance to the goal after each step, which moves at most 0.1 per axis.

    Actions are two real numbers in units of the largest step: beyond [-1, 1] they are clipped. Goals are uniform in a square of
    side 2 `span`. The paper's text says squared distance; its code and its results (about -40 before adaptation) say distance.
    """

    span: float = 0.5
    stride: float = 0.1

    num_actions = 2  # dimensions of an action
    horizon = 100
    observation = jax.ShapeDtypeStruct((2,), jnp.float32)

    def default_task(self) -> PointTask:
        return PointTask(jnp.full(2, self.span, jnp.float32))

    def sample_task(self, key: Array) -> PointTask:
        return PointTask(jax.random.uniform(key, (2,), jnp.float32, -self.span, self.span))

    def reset(self, task: PointTask, key: Array) -> tuple[Array, Array]:
        return jnp.zeros(2, jnp.float32), jnp.zeros(2, jnp.float32)

    def step(self, task: PointTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        state = (state + self.stride * jnp.clip(action, -1.0, 1.0)).astype(jnp.float32)
        away = state - task.goal
        reward = -jnp.sqrt(jnp.sum(jnp.square(away)))
        return state, Transition(state, reward, jnp.all(jnp.abs(away) < REACH), jnp.bool_(False))


@dataclasses.dataclass(frozen=True)
class Box(Point):
    """The same between walls at distance `span` of the origin: the unit box in which DIAYN finds skills (Eysenbach et al. 2018).

    A step into a wall ends at it, and nothing but time ends an episode.
    """

    horizon = 50

    def step(self, task: PointTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        state = jnp.clip(super().step(task, state, action, key)[0], -self.span, self.span)
        reward = -jnp.sqrt(jnp.sum(jnp.square(state - task.goal)))
        return state, Transition(state, reward, jnp.bool_(False), jnp.bool_(False))


@dataclasses.dataclass(frozen=True)
class HalfCircle(Point):
    """The same with goals at distance `span` on the upper half circle; within `radius` of its goal a step is paid 1 - distance.

    Elsewhere nothing is paid, so an agent that has not yet met its goal learns nothing from where it went. `dense` pays minus the
    distance everywhere instead, as for the meta-training of MAESN (Gupta et al. 2018). Nothing but time ends an episode.
    """

    span: float = 1.0
    radius: float = 0.2
    dense: bool = False

    horizon = 20

    def default_task(self) -> PointTask:
        return self.task_at(jnp.pi / 2)

    def sample_task(self, key: Array) -> PointTask:
        return self.task_at(jax.random.uniform(key, (), jnp.float32, 0.0, jnp.pi))

    def task_at(self, angle: Array | float) -> PointTask:
        """The goal at an angle, in radians from the first axis."""
        return PointTask(self.span * jnp.stack([jnp.cos(angle), jnp.sin(angle)]).astype(jnp.float32))

    def step(self, task: PointTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        state, transition = super().step(task, state, action, key)
        reward = transition.reward if self.dense else self.pay(-transition.reward)
        return state, transition._replace(reward=reward, terminated=jnp.bool_(False))

    def pay(self, distance: Array) -> Array:
        """The sparse reward of a step that ends at a distance from the goal."""
        return jnp.where(distance < self.radius, 1.0 - distance, 0.0)


@dataclasses.dataclass(frozen=True)
class Directed(Point):
    """The same without a goal: a step is paid by how far it went in a direction that cannot be seen, `PointTask.goal` of length 1.

    Directions are drawn from three quarters of the circle, so that the fourth one is left for tests. Only time ends an episode.
    """

    horizon = 20

    def default_task(self) -> PointTask:
        return self.task_at(0.0)

    def sample_task(self, key: Array) -> PointTask:
        return self.task_at(jax.random.uniform(key, (), jnp.float32, 0.0, 1.5 * jnp.pi))

    def sample_unseen(self, key: Array) -> PointTask:
        """A direction of the quarter that `sample_task` leaves out."""
        return self.task_at(jax.random.uniform(key, (), jnp.float32, 1.5 * jnp.pi, 2 * jnp.pi))

    def task_at(self, angle: Array | float) -> PointTask:
        """The direction at an angle, in radians from the first axis."""
        return PointTask(jnp.stack([jnp.cos(angle), jnp.sin(angle)]).astype(jnp.float32))

    def step(self, task: PointTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        after = super().step(task, state, action, key)[0]
        return after, Transition(after, jnp.dot(after - state, task.goal), jnp.bool_(False), jnp.bool_(False))


def directed() -> Continuous:
    """The directed point for agents that act by real numbers, or by a choice of strides along each axis."""
    return Continuous(Directed())


def half_circle(radius: float = 0.2, dense: bool = False) -> Continuous:
    """The half circle for agents that act by real numbers, or by a choice of strides along each axis."""
    return Continuous(HalfCircle(radius=radius, dense=dense))


def box() -> Continuous:
    """The box for agents that act by real numbers, or by a choice of strides along each axis."""
    return Continuous(Box())


def binned_point() -> Binned:
    """The same with five strides to choose from along each axis: from a full one back to a full one ahead."""
    return Binned(Point())


def best_return(environment: Point, task: PointTask) -> Array:
    """The best return for an agent that knows the goal: full steps along both axes, which shorten every later distance."""
    return -jnp.sum(_shortest_distances(environment, task))


def best_sparse_return(environment: HalfCircle, task: PointTask) -> Array:
    """The best sparse return on the half circle for an agent that knows the goal, by the same steps."""
    return jnp.sum(environment.pay(_shortest_distances(environment, task)))


def _shortest_distances(environment: Point, task: PointTask) -> Array:
    """How far the goal is after each step [steps] of full strides along both axes."""
    taken = environment.stride * jnp.arange(1, environment.horizon + 1)
    left = jnp.maximum(jnp.abs(task.goal)[:, None] - taken, 0.0)  # [2, steps]
    return jnp.sqrt(jnp.sum(jnp.square(left), 0))
