"""Five environments that each expose one kind of bug, from the value loss alone to a policy that reads its observation.

After Andy Jones' probe environments (and rejax). Each can be learned in seconds, and each says what must have been
learned: `expectations(discount)` lists, for the default task, what is worth how much and what to do.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment, Transition
from rulax.types import Array


class Expectation(NamedTuple):
    """What a correct rule ends up with at one observation."""

    observation: np.ndarray  # [1] float32
    value: float  # discounted return of the best policy from there
    action: int | None  # the best action, or None if there is no choice


class ProbeTask(NamedTuple):
    """How much there is to earn."""

    reward: Array  # [] 1 by default; sampled uniformly from [0.5, 2]


@dataclasses.dataclass(frozen=True)
class Probe(Environment):
    """What the probes share: one number to see and a reward of known size. The state is that number."""

    num_actions = 1
    observation = jax.ShapeDtypeStruct((1,), jnp.float32)

    def default_task(self) -> ProbeTask:
        return ProbeTask(jnp.float32(1))

    def sample_task(self, key: Array) -> ProbeTask:
        return ProbeTask(jax.random.uniform(key, (), jnp.float32, 0.5, 2.0))

    def reset(self, task: ProbeTask, key: Array) -> tuple[Array, Array]:
        sight = self._first_sight(key)
        return sight, sight[None]

    def step(self, task: ProbeTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        sight, earned, terminated = self._act(state, action)
        reward = (earned * task.reward).astype(jnp.float32)
        return sight, Transition(sight[None], reward, terminated, jnp.bool_(False))

    def _first_sight(self, key: Array) -> Array:
        return jnp.float32(0)

    @abc.abstractmethod
    def _act(self, sight: Array, action: Array) -> tuple[Array, Array, Array]:
        """From what is seen to what is seen next, what is earned and whether this was the end."""

    @abc.abstractmethod
    def expectations(self, discount: float) -> list[Expectation]:
        """Values and actions of the best policy in the default task."""


def _expect(sight: float, value: float, action: int | None = None) -> Expectation:
    return Expectation(np.array([sight], np.float32), value, action)


def _random_sign(key: Array) -> Array:
    return jax.random.rademacher(key, (), jnp.float32)


@dataclasses.dataclass(frozen=True)
class ValueProbe(Probe):
    """One action, one step, reward 1: v(0) = 1. If this fails, the value loss or its optimiser is broken."""

    def _act(self, sight: Array, action: Array) -> tuple[Array, Array, Array]:
        return sight, jnp.float32(1), jnp.bool_(True)

    def expectations(self, discount: float) -> list[Expectation]:
        return [_expect(0, 1)]


@dataclasses.dataclass(frozen=True)
class ObservationProbe(Probe):
    """One action, one step, the reward is the observation, +1 or -1: v(x) = x. If only this fails, the torso is broken."""

    def _first_sight(self, key: Array) -> Array:
        return _random_sign(key)

    def _act(self, sight: Array, action: Array) -> tuple[Array, Array, Array]:
        return sight, sight, jnp.bool_(True)

    def expectations(self, discount: float) -> list[Expectation]:
        return [_expect(-1, -1), _expect(1, 1)]


@dataclasses.dataclass(frozen=True)
class DiscountProbe(Probe):
    """One action, two steps: 0, then 1, then reward 1: v(0) = discount, v(1) = 1. If only this fails, bootstrapping is."""

    def _act(self, sight: Array, action: Array) -> tuple[Array, Array, Array]:
        return jnp.float32(1), sight, sight > 0

    def expectations(self, discount: float) -> list[Expectation]:
        return [_expect(0, discount), _expect(1, 1)]


@dataclasses.dataclass(frozen=True)
class PolicyProbe(Probe):
    """Two actions, one step: action 1 earns 1, action 0 earns -1: best action 1, v(0) = 1. Tests the policy's loss."""

    num_actions = 2

    def _act(self, sight: Array, action: Array) -> tuple[Array, Array, Array]:
        return sight, jnp.where(action == 1, 1.0, -1.0), jnp.bool_(True)

    def expectations(self, discount: float) -> list[Expectation]:
        return [_expect(0, 1, 1)]


@dataclasses.dataclass(frozen=True)
class ContextProbe(Probe):
    """Two actions, one step, observation +1 or -1: action 1 is right at +1 and action 0 at -1; 1 if right, else -1.

    Best action 1 at +1 and 0 at -1; v(x) = 1 at both. Tests a policy that depends on what it sees.
    """

    num_actions = 2

    def _first_sight(self, key: Array) -> Array:
        return _random_sign(key)

    def _act(self, sight: Array, action: Array) -> tuple[Array, Array, Array]:
        return sight, jnp.where((action == 1) == (sight > 0), 1.0, -1.0), jnp.bool_(True)

    def expectations(self, discount: float) -> list[Expectation]:
        return [_expect(-1, 1, 0), _expect(1, 1, 1)]
