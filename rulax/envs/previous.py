"""Shows an agent what it did last: the previous action and its reward, of the same episode, as part of the observation."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.envs.wrappers import Wrapped, as_vector, vector_size
from rulax.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class WithPrevious(Wrapped):
    """The same environment; its observation (flattened) is followed by the previous action (one-hot) and its reward.

    Both are 0 at the start of an episode: what happened before it belongs to another one, and a memory that is cleared there could
    not tell. `Trial` (tasks.py) is for memories that are not. The reward of the last action is never seen.
    """

    real_dimensions = 0  # type: ignore[assignment]  # the action that an observation shows is a choice

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        size = vector_size(self.environment.observation) + self._choices() + 1
        return jax.ShapeDtypeStruct((size,), jnp.float32)

    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, Array]:
        return self._begin(*self.environment.reset(task, key))

    def next_episode(self, task: PyTree, state: PyTree, key: Array) -> tuple[PyTree, Array]:
        return self._begin(*self.environment.next_episode(task, state, key))

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        state, transition = self.environment.step(task, state, action, key)
        chosen = jax.nn.one_hot(action, self.num_actions).reshape(-1)
        return state, transition._replace(observation=as_vector((transition.observation, chosen, transition.reward)))

    def expected_reward(self, task: PyTree, state: PyTree, action: Array) -> Array:
        """The mean reward of an action, if the environment knows it."""
        return self.environment.expected_reward(task, state, action)  # type: ignore[attr-defined]

    def _begin(self, state: PyTree, observation: PyTree) -> tuple[PyTree, Array]:
        return state, as_vector((observation, jnp.zeros(self._choices()), jnp.zeros(())))

    def _choices(self) -> int:
        return self.num_actions * max(1, self.action_dimensions)


def with_previous(environment: Environment) -> WithPrevious:
    """An environment that shows the previous action and its reward; see `WithPrevious`."""
    return WithPrevious(environment)
