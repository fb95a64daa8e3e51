"""A world in which the agent is told something about itself: numbers that are part of the task and end every observation."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Transition
from rulax.envs.wrappers import Wrapped
from rulax.types import Array, PyTree


class ToldTask(NamedTuple):
    """A world's own task, and what the agent is told."""

    world: PyTree
    told: Array  # [n]


@dataclasses.dataclass(frozen=True)
class Told(Wrapped):
    """The same world, in which every observation ends with `number` more numbers, such as the parameters of the agent's rule.

    What a value should be depends on the discount, so a value function that does not know it would be wrong after each change.
    """

    number: int

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((math.prod(self.world.observation.shape) + self.number,), jnp.float32)

    def default_task(self) -> ToldTask:
        return ToldTask(self.world.default_task(), jnp.zeros(self.number))

    def sample_task(self, key: Array) -> ToldTask:
        return ToldTask(self.world.sample_task(key), jnp.zeros(self.number))

    def reset(self, task: ToldTask, key: Array) -> tuple[PyTree, Array]:
        state, observation = self.world.reset(task.world, key)
        return state, self._show(task, observation)

    def again(self, task: ToldTask, state: PyTree, key: Array) -> tuple[PyTree, Array]:
        state, observation = self.world.again(task.world, state, key)
        return state, self._show(task, observation)

    def step(self, task: ToldTask, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        state, transition = self.world.step(task.world, state, action, key)
        return state, transition._replace(observation=self._show(task, transition.observation))

    def retell(self, observation: Array, told: Array) -> Array:
        """Observations [..., D] as they look after what is told has changed."""
        return observation.at[..., -self.number :].set(told)

    def _show(self, task: ToldTask, observation: PyTree) -> Array:
        return jnp.concatenate([observation.astype(jnp.float32).reshape(-1), task.told])
