"""Delayed chains: the first action decides what the last step pays (Oh et al. 2020, appendix A.3). Pure credit assignment."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.types import Array


class ChainTask(NamedTuple):
    """How long the chain is and which of the two branches is good."""

    length: Array  # [] int32, steps per episode
    correct: Array  # [] int32, the first action that leads to +1
    noise: Array  # [] size of the random rewards on the way


class ChainState(NamedTuple):
    """How far along the chain, and on which branch."""

    steps: Array  # [] int32
    branch: Array  # [] int32: the first action, or -1 before it


@dataclasses.dataclass(frozen=True)
class DelayedChain(Environment):
    """The first of two actions picks a branch; the end of the branch pays +1 or -1. Later actions do nothing.

    The observation names the position, the branch and `distractors` random bits. `noise` is the size of a random +1 or
    -1 paid at every step between the first and the last: it averages to nothing but hides the signal.
    """

    shortest: int = 5
    longest: int = 30
    noise: float = 0.0
    distractors: int = 0

    num_actions = 2

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest or self.distractors < 0:
            raise ValueError(f"a chain needs 1 <= shortest <= longest and no negative number of distractors: {self}")

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((self.longest + 2 + self.distractors,), jnp.float32)

    def default_task(self) -> ChainTask:
        return ChainTask(jnp.int32(self.longest), jnp.int32(1), jnp.float32(self.noise))

    def sample_task(self, key: Array) -> ChainTask:
        key_length, key_correct = jax.random.split(key)
        return ChainTask(
            length=jax.random.randint(key_length, (), self.shortest, self.longest + 1, jnp.int32),
            correct=jax.random.randint(key_correct, (), 0, 2, jnp.int32),
            noise=jnp.float32(self.noise),
        )

    def reset(self, task: ChainTask, key: Array) -> tuple[ChainState, Array]:
        state = ChainState(jnp.int32(0), jnp.int32(-1))
        return state, self._observe(state, key)

    def step(self, task: ChainTask, state: ChainState, action: Array, key: Array) -> tuple[ChainState, Transition]:
        key_noise, key_observe = jax.random.split(key)
        branch = jnp.where(state.steps == 0, action, state.branch).astype(jnp.int32)
        state = ChainState(state.steps + 1, branch)
        done = state.steps >= task.length
        noise = task.noise * jax.random.rademacher(key_noise, (), jnp.float32)
        on_the_way = jnp.where(state.steps > 1, noise, 0.0)
        verdict = jnp.where(branch == task.correct, 1.0, -1.0)
        reward = jnp.where(done, verdict, on_the_way).astype(jnp.float32)
        return state, Transition(self._observe(state, key_observe), reward, done, jnp.bool_(False))

    def _observe(self, state: ChainState, key: Array) -> Array:
        # one_hot of an index outside its range is zero: no branch before the first action, no position after the last.
        position = jax.nn.one_hot(state.steps, self.longest, dtype=jnp.float32)
        branch = jax.nn.one_hot(state.branch, 2, dtype=jnp.float32)
        distractors = jax.random.bernoulli(key, 0.5, (self.distractors,)).astype(jnp.float32)
        return jnp.concatenate([position, branch, distractors])
