"""Sooner or later: a small reward now, or a larger one after a delay that every episode draws anew and shows.

The classical experiment on delay discounting. An agent with discount d waits for delays up to log(small / large) / log d, so each
delay has a discount from which on waiting looks right: with the defaults 0.6 is indifferent even to one step, 0.99 waits for 50
and 0.9966 for 150.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment, Transition
from rulax.types import Array

SCALES = (1.0, 3.0, 10.0, 30.0, 100.0)  # of the clocks in an observation, in steps


class ChoiceTask(NamedTuple):
    """What there is to choose from."""

    small: Array  # [] paid at once
    large: Array  # [] paid at the end
    later: Array  # [] int32, the action that waits


class ChoiceState(NamedTuple):
    """How long it still takes, and what was chosen."""

    left: Array  # [] int32, steps after the choice
    chosen: Array  # [] int32: the first action, or -1 before it


@dataclasses.dataclass(frozen=True)
class DelayedChoice(Environment):
    """The first action chooses; nothing that is done after it matters. Whatever is chosen, the episode lasts as long.

    The delay is 1 + (longest - 1) u^2 steps, u uniform: short ones are more frequent, so every horizon has something to learn.
    """

    longest: int = 150
    small: float = 0.6

    num_actions = 2
    observation = jax.ShapeDtypeStruct((3 + len(SCALES),), jnp.float32)

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise ValueError(f"the longest delay must be at least one step, not {self.longest}")

    def default_task(self) -> ChoiceTask:
        return ChoiceTask(jnp.float32(self.small), jnp.float32(1), jnp.int32(1))

    def sample_task(self, key: Array) -> ChoiceTask:
        key_small, key_later = jax.random.split(key)
        small = self.small * jax.random.uniform(key_small, (), jnp.float32, 0.75, 1.25)
        return self.default_task()._replace(small=small, later=jax.random.randint(key_later, (), 0, 2, jnp.int32))

    def reset(self, task: ChoiceTask, key: Array) -> tuple[ChoiceState, Array]:
        drawn = jnp.square(jax.random.uniform(key, (), jnp.float32))
        state = ChoiceState(1 + jnp.floor((self.longest - 1) * drawn + 0.5).astype(jnp.int32), jnp.int32(-1))
        return state, self._observe(task, state)

    def step(self, task: ChoiceTask, state: ChoiceState, action: Array, key: Array) -> tuple[ChoiceState, Transition]:
        choosing = state.chosen < 0
        chosen = jnp.where(choosing, action, state.chosen).astype(jnp.int32)
        left = jnp.where(choosing, state.left, state.left - 1)
        waits, over = chosen == task.later, left == 0
        reward = jnp.where(choosing & ~waits, task.small, 0.0) + jnp.where(over & waits, task.large, 0.0)
        state = ChoiceState(left, chosen)
        return state, Transition(self._observe(task, state), reward.astype(jnp.float32), over, jnp.bool_(False))

    def ideal_return(self, discount: float) -> float:
        """The mean return, in the default task, of an agent that knows everything and maximises its own discounted return."""
        edges = np.sqrt(np.minimum((np.arange(self.longest) + 0.5) / max(self.longest - 1, 1), 1.0))
        chances = np.diff(edges, prepend=0.0)  # of the delays 1, 2, ...
        waits = discount ** np.arange(1, self.longest + 1) > self.small
        return float(np.sum(chances * np.where(waits, 1.0, self.small)))

    def _observe(self, task: ChoiceTask, state: ChoiceState) -> Array:
        # Clocks on several scales: a single one would be flat for delays much longer or shorter than itself.
        clocks = jnp.exp(-state.left / jnp.asarray(SCALES, jnp.float32))
        sooner = (state.chosen >= 0) & (state.chosen != task.later)
        stages = jnp.stack([state.chosen < 0, sooner, state.chosen == task.later])
        return jnp.concatenate([stages.astype(jnp.float32), clocks])
