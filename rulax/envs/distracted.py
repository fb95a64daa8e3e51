"""Pixels that mean nothing: an observation with as many random ones beside it, drawn anew at every step.

What an agent should do does not depend on them, but how alike two observations look does: the same situation never looks the same
twice. Whoever compares observations as they are (a random projection, say) is lost; whoever learns what matters is not.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, HostEnvironment, Transition, is_symbols
from rulax.envs.wrappers import Wrapped
from rulax.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class Distracted(Wrapped):
    """One more channel for images [H, W, C], as many numbers again for vectors [N]: each is 1 with probability `share`, else 0."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"the share of pixels that are lit by chance must be above 0 and below 1, not {self.share}")
        shown = self.environment.observation
        if not isinstance(shown, jax.ShapeDtypeStruct) or is_symbols(shown) or len(shown.shape) not in (1, 3):
            raise ValueError("distractors are for observations that are one vector or one image of numbers")

    @property
    def _lights(self) -> tuple[int, ...]:
        """Shape of what is drawn at every step."""
        shape = self.environment.observation.shape
        return shape if len(shape) == 1 else (*shape[:2], 1)

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        shown = self.environment.observation
        return jax.ShapeDtypeStruct((*shown.shape[:-1], shown.shape[-1] + self._lights[-1]), shown.dtype)

    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, Array]:
        key_env, key_lights = jax.random.split(key)
        state, observation = self.environment.reset(task, key_env)
        return state, self._show(observation, key_lights)

    def next_episode(self, task: PyTree, state: PyTree, key: Array) -> tuple[PyTree, Array]:
        key_env, key_lights = jax.random.split(key)
        state, observation = self.environment.next_episode(task, state, key_env)
        return state, self._show(observation, key_lights)

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        key_env, key_lights = jax.random.split(key)
        state, transition = self.environment.step(task, state, action, key_env)
        return state, transition._replace(observation=self._show(transition.observation, key_lights))

    def _show(self, observation: Array, key: Array) -> Array:
        lit = 255 if observation.dtype == jnp.uint8 else 1
        lights = lit * jax.random.bernoulli(key, self.share, self._lights).astype(observation.dtype)
        return jnp.concatenate([observation, lights], -1)


def with_distractors(environment: Any, share: float) -> Distracted:
    """An environment whose observations have random pixels beside them; see `Distracted`."""
    if isinstance(environment, HostEnvironment):
        raise ValueError("distractors are for environments that run inside of JAX, not on the host")
    assert isinstance(environment, Environment)
    return Distracted(environment, share)
