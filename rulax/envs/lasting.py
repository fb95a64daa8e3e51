"""Randomness that lasts: noise or a skill, drawn where something starts and shown by every observation until it starts again.

    with_noise(environment, size, level)     standard normal numbers [size], in the observation as "noise"
    with_skill(environment, number, level)   one of `number` skills, one-hot [number], in the observation as "skill"

Observations become dictionaries: what the environment showed is in "observation" (a dictionary gets one more entry). So what was
drawn is part of the experience: nothing else has to be stored, acting needs no further key, and what an agent computes from it has
a gradient, for example a latent variable mu + sigma * noise. Both functions take compiled and host environments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import HostEnvironment, Transition
from rulax.envs.wrappers import Wrapped, beside
from rulax.types import Array, Level, PyTree, starts


@dataclasses.dataclass(frozen=True)
class Draw:
    """What is drawn: `size` numbers under `name`, anew wherever something of `level` or above starts."""

    name: Literal["noise", "skill"]
    size: int
    level: Level

    def __post_init__(self) -> None:
        # To Python `True` is an int; as a size it is a mistake.
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise ValueError(f"the size of {self.name} must be a whole number of at least 1, not {self.size!r}")
        if self.level == Level.NOTHING:
            raise ValueError(f"{self.name} is drawn where an episode, a trial or a life starts, not at every step")

    def sample(self, key: Array) -> Array:
        """One draw, float32 [size]."""
        if self.name == "skill":
            return jax.nn.one_hot(jax.random.randint(key, (), 0, self.size), self.size, dtype=jnp.float32)
        return jax.random.normal(key, (self.size,), jnp.float32)

    def sample_on_host(self, generator: np.random.Generator) -> np.ndarray:
        """The same from numpy's randomness."""
        if self.name == "skill":
            return np.eye(self.size, dtype=np.float32)[generator.integers(self.size)]
        return generator.standard_normal(self.size, np.float32)

    def show(self, observation: PyTree, drawn: Any) -> dict[str, Any]:
        """An observation with what was drawn beside it; any arrays, or their shapes."""
        return beside(observation, self.name, drawn)

    def shown(self, observation: PyTree) -> dict[str, Any]:
        """Shapes and dtypes of the observations, from the environment's own."""
        return self.show(observation, jax.ShapeDtypeStruct((self.size,), np.float32))


class Showing:
    """What compiled and host environments that show a draw share: their observations."""

    environment: Any  # of either kind
    draw: Draw

    @property
    def observation(self) -> PyTree:
        return self.draw.shown(self.environment.observation)

    def preprocess(self, observation: PyTree) -> PyTree:
        """An observation of the environment's library with the draw beside it, as agents see it. The caller has to draw."""
        draw = self.draw
        if not isinstance(observation, Mapping) or draw.name not in observation:
            raise ValueError(
                f"an observation must be a dictionary with '{draw.name}' ({draw.size} numbers), which lasts for "
                f"{'an' if draw.level == Level.EPISODE else 'a'} {draw.level.name.lower()}"
            )
        own = {name: part for name, part in observation.items() if name != draw.name}
        inner = own if isinstance(self.environment.observation, Mapping) else own["observation"]
        return draw.show(self.environment.preprocess(inner), observation[draw.name])


class LastingState(NamedTuple):
    """An environment's state, and what was drawn."""

    env_state: PyTree
    drawn: Array  # [size]


@dataclasses.dataclass(frozen=True)
class Lasting(Showing, Wrapped):  # type: ignore[override]  # as in `Wrapped`
    """The same environment, whose observations also show what was drawn."""

    draw: Draw

    def reset(self, task: PyTree, key: Array) -> tuple[LastingState, PyTree]:
        key_env, key_draw = jax.random.split(key)
        return self._show(*self.environment.reset(task, key_env), self.draw.sample(key_draw))

    def next_episode(self, task: PyTree, state: LastingState, key: Array) -> tuple[LastingState, PyTree]:
        key_env, key_draw = jax.random.split(key)
        # Asked of the state that ended, before it is replaced.
        drawn = self._renewed(state, self.environment.next_level(task, state.env_state), key_draw)
        return self._show(*self.environment.next_episode(task, state.env_state, key_env), drawn)

    def next_level(self, task: PyTree, state: LastingState) -> Array | int:
        return self.environment.next_level(task, state.env_state)

    def step(self, task: PyTree, state: LastingState, action: Array, key: Array) -> tuple[LastingState, Transition]:
        key_env, key_draw = jax.random.split(key)
        env_state, transition = self.environment.step(task, state.env_state, action, key_env)
        # An episode may start inside of a trial; elsewhere `first` is 0 here and nothing is drawn.
        state, shown = self._show(env_state, transition.observation, self._renewed(state, transition.first, key_draw))
        return state, transition._replace(observation=shown)

    def _renewed(self, state: LastingState, first: Array | int, key: Array) -> Array:
        # Drawn at every step and mostly discarded: under `vmap` a `lax.cond` would draw as well.
        return jnp.where(starts(first, self.draw.level), self.draw.sample(key), state.drawn)

    def _show(self, env_state: PyTree, observation: PyTree, drawn: Array) -> tuple[LastingState, PyTree]:
        return LastingState(env_state, drawn), self.draw.show(observation, drawn)


def with_noise(environment: Any, size: int, level: Level = Level.EPISODE) -> Any:
    """An environment that shows `size` standard normal numbers, drawn anew at every start of `level` or above.

    Args:
        environment: an `Environment` or a `HostEnvironment`; the result is of the same kind.
        size: how many numbers; they are in the observation as "noise", float32 [size].
        level: what has to start for them to be drawn again: an episode, a trial or a life.
    """
    return _wrap(environment, Draw("noise", size, Level(level)))


def with_skill(environment: Any, number: int, level: Level = Level.EPISODE) -> Any:
    """An environment that shows one of `number` skills, drawn uniformly at every start of `level` or above.

    Args:
        environment: an `Environment` or a `HostEnvironment`; the result is of the same kind.
        number: how many skills there are; the one drawn is in the observation as "skill", one-hot, float32 [number].
        level: what has to start for it to be drawn again: an episode, a trial or a life.
    """
    return _wrap(environment, Draw("skill", number, Level(level)))


def _wrap(environment: Any, draw: Draw) -> Any:
    draw.shown(environment.observation)  # raises if the name is taken
    if isinstance(environment, HostEnvironment):
        from rulax.envs.adapters.lasting import HostLasting  # here, because most environments are compiled

        return HostLasting(environment, draw)
    return Lasting(environment, draw)
