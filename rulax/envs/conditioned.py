"""Environments whose observations end with numbers from the task, such as the parameters of the agent's own rule."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Transition
from rulax.envs.wrappers import Wrapped
from rulax.types import Array, PyTree


class ConditionedTask(NamedTuple):
    """An environment's own task, and the numbers that are added to every observation."""

    inner: PyTree
    context: Array  # [n]


@dataclasses.dataclass(frozen=True)
class Conditioned(Wrapped):
    """The same environment with `number` more numbers at the end of every observation, such as the parameters of the agent's rule.

    The right value of a state depends on the discount, so a value function that cannot see it is wrong after every change.
    """

    number: int

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((math.prod(self.environment.observation.shape) + self.number,), jnp.float32)

    def default_task(self) -> ConditionedTask:
        return ConditionedTask(self.environment.default_task(), jnp.zeros(self.number))

    def sample_task(self, key: Array) -> ConditionedTask:
        return ConditionedTask(self.environment.sample_task(key), jnp.zeros(self.number))

    def reset(self, task: ConditionedTask, key: Array) -> tuple[PyTree, Array]:
        state, observation = self.environment.reset(task.inner, key)
        return state, self._show(task, observation)

    def next_episode(self, task: ConditionedTask, state: PyTree, key: Array) -> tuple[PyTree, Array]:
        state, observation = self.environment.next_episode(task.inner, state, key)
        return state, self._show(task, observation)

    def next_level(self, task: ConditionedTask, state: PyTree) -> Array | int:
        return self.environment.next_level(task.inner, state)

    def step(self, task: ConditionedTask, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        state, transition = self.environment.step(task.inner, state, action, key)
        return state, transition._replace(observation=self._show(task, transition.observation))

    def recondition(self, observation: Array, context: Array) -> Array:
        """Observations [..., F] with the added numbers replaced by `context` [number]."""
        return observation.at[..., -self.number :].set(context)

    def _show(self, task: ConditionedTask, observation: PyTree) -> Array:
        return jnp.concatenate([observation.astype(jnp.float32).reshape(-1), task.context])
