"""The two-step task: does a learner understand which way led to the reward, or does it only repeat what was rewarded?"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.types import Array


class TwoStepTask(NamedTuple):
    """The chances."""

    common: Array  # [] probability that action i leads to place i
    pays: Array  # [2] probability of a reward of 1 in each place


class TwoStepState(NamedTuple):
    """Where the agent is: 0 at the start, 1 or 2 in one of the two places."""

    place: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class TwoStep(Environment):
    """Choose one of two places; the way misses it with probability 1 - `common`; there, whatever is done, a reward or none.

    One place pays with probability `high`, the other with 1 - `high`; which one is the task (Daw et al. 2011; Wang et al. 2016,
    without their reversals within an episode). Knowing it, common * high + (1 - common) * (1 - high) per choice can be earned.
    """

    common: float = 0.75
    high: float = 0.9
    num_actions = 2

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((3,), jnp.float32)

    def default_task(self) -> TwoStepTask:
        return self._task(jnp.bool_(True))

    def sample_task(self, key: Array) -> TwoStepTask:
        return self._task(jax.random.bernoulli(key))

    def _task(self, first: Array) -> TwoStepTask:
        high = jnp.where(first, self.high, 1 - self.high)
        return TwoStepTask(jnp.float32(self.common), jnp.stack([high, 1 - high]).astype(jnp.float32))

    def reset(self, task: TwoStepTask, key: Array) -> tuple[TwoStepState, Array]:
        state = TwoStepState(jnp.int32(0))
        return state, self._observe(state)

    def step(self, task: TwoStepTask, state: TwoStepState, action: Array, key: Array) -> tuple[TwoStepState, Transition]:
        # One draw serves the way and the payment, since a step is only ever one of the two.
        chance = jax.random.uniform(key, (), jnp.float32)
        started = state.place == 0
        aimed = jnp.where(chance < task.common, action, 1 - action).astype(jnp.int32)
        # Clamped: at the start there is no place yet, and the payment is not used.
        paid = chance < task.pays[jnp.maximum(state.place - 1, 0)]
        after = TwoStepState(jnp.where(started, 1 + aimed, state.place))
        reward = jnp.where(started, 0.0, paid).astype(jnp.float32)
        return after, Transition(self._observe(after), reward, ~started, jnp.bool_(False))

    def expected_reward(self, task: TwoStepTask, state: TwoStepState, action: Array) -> Array:
        """The mean reward of a choice, credited where the choice is made."""
        aimed, other = task.pays[action], task.pays[1 - action]
        return jnp.where(state.place == 0, task.common * aimed + (1 - task.common) * other, 0.0)

    def _observe(self, state: TwoStepState) -> Array:
        return jax.nn.one_hot(state.place, 3, dtype=jnp.float32)
