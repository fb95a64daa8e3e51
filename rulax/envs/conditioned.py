"""An environment in which the agent is told something about itself: numbers that are part of the task and end every observation."""

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
    """An environment's own task, and what the agent is told."""

    inner: PyTree
    context: Array  # [n]


@dataclasses.dataclass(frozen=True)
class Conditioned(Wrapped):
    """The same environment, in which every observation ends with `number` more numbers, such as the parameters of the agent's rule.

    What a value should be depends on the discount, so a value function that does not know it would be wrong after each change.
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

    def step(self, task: ConditionedTask, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        state, transition = self.environment.step(task.inner, state, action, key)
        return state, transition._replace(observation=self._show(task, transition.observation))

    def recondition(self, observation: Array, context: Array) -> Array:
        """Observations [..., D] as they look after what is told has changed."""
        return observation.at[..., -self.number :].set(context)

    def _show(self, task: ConditionedTask, observation: PyTree) -> Array:
        return jnp.concatenate([observation.astype(jnp.float32).reshape(-1), task.context])
