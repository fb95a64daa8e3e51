"""Bandits: environments without a state, in which an episode is one pull. The arms' means are the task."""

from __future__ import annotations

import abc
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.actions import several_of
from rulax.envs.base import Environment, Transition
from rulax.types import Array


class BernoulliTask(NamedTuple):
    """What the arms pay."""

    means: Array  # [arms] probability of a reward of 1


class FactoredTask(NamedTuple):
    """What the levers pay."""

    means: Array  # [D, A] expected payment of each choice, of each lever


class GaussianTask(NamedTuple):
    """What the arms pay."""

    means: Array  # [arms] expected reward
    noise: Array  # [] standard deviation of every arm


@dataclasses.dataclass(frozen=True)
class _Bandit(Environment):
    """What both bandits share: a constant observation, and an end after `pulls` pulls."""

    arms: int = 10
    pulls: int = 1

    def __post_init__(self) -> None:
        if self.arms < 1 or self.pulls < 1:
            raise ValueError(f"a bandit needs at least one arm and one pull, not arms={self.arms}, pulls={self.pulls}")

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.arms

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        # Constant, but not empty: a network needs at least one input.
        return jax.ShapeDtypeStruct((1,), jnp.float32)

    def reset(self, task: BernoulliTask | GaussianTask, key: Array) -> tuple[Array, Array]:
        return jnp.int32(0), jnp.ones((1,), jnp.float32)

    def step(self, task: BernoulliTask | GaussianTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        pulled = state + 1
        transition = Transition(
            observation=jnp.ones((1,), jnp.float32),
            reward=self._pay(task, action, key),
            terminated=pulled >= self.pulls,
            truncated=jnp.bool_(False),
        )
        return pulled, transition

    def expected_reward(self, task: BernoulliTask | GaussianTask, state: Array, action: Array) -> Array:
        """The mean reward of a pull. Scoring agents by it instead of by the rewards drawn takes far fewer tasks."""
        del state
        return task.means[action]

    @abc.abstractmethod
    def _pay(self, task, action: Array, key: Array) -> Array: ...


@dataclasses.dataclass(frozen=True)
class BernoulliBandit(_Bandit):
    """Each arm pays 1 with its own probability. By default from 0.1 (first arm) to 0.9 (last); sampled: uniform in [0, 1]."""

    def default_task(self) -> BernoulliTask:
        return BernoulliTask(jnp.linspace(0.1, 0.9, self.arms, dtype=jnp.float32))

    def sample_task(self, key: Array) -> BernoulliTask:
        return BernoulliTask(jax.random.uniform(key, (self.arms,), jnp.float32))

    def _pay(self, task: BernoulliTask, action: Array, key: Array) -> Array:
        return (jax.random.uniform(key, (), jnp.float32) < task.means[action]).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class GaussianBandit(_Bandit):
    """Each arm pays a normal number. By default means from -1 (first arm) to 1 (last) and noise 1; sampled: N(0, 1) means."""

    def default_task(self) -> GaussianTask:
        return GaussianTask(jnp.linspace(-1.0, 1.0, self.arms, dtype=jnp.float32), jnp.float32(1))

    def sample_task(self, key: Array) -> GaussianTask:
        return GaussianTask(jax.random.normal(key, (self.arms,), jnp.float32), jnp.float32(1))

    def _pay(self, task: GaussianTask, action: Array, key: Array) -> Array:
        return task.means[action] + task.noise * jax.random.normal(key, (), jnp.float32)


@dataclasses.dataclass(frozen=True)
class DependentArms(BernoulliBandit):
    """Two arms that pay with probabilities p and 1 - p (Wang et al. 2016): one pull says something about both.

    `low` 0.4 is hard (p is 0.4 or 0.6), 0.25 medium, 0.1 easy; below 0, p is uniform.
    """

    arms: int = 2
    low: float = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arms != 2 or self.low > 0.5:
            raise ValueError(f"dependent arms are two, and the worse one pays with at most 0.5: {self}")

    def sample_task(self, key: Array) -> BernoulliTask:
        # One draw serves both families: a uniform p, or a fair coin between the two values.
        chance = jax.random.uniform(key, (), jnp.float32)
        if self.low >= 0:
            chance = jnp.where(chance < 0.5, self.low, 1 - self.low)
        return BernoulliTask(jnp.stack([chance, 1 - chance]))


@dataclasses.dataclass(frozen=True)
class OneGoodArm(BernoulliBandit):
    """One arm pays 1 with probability `high`, all others with 1 - `high`. By default it is the last; sampled: any of them."""

    high: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 <= self.high <= 1:
            raise ValueError(f"the good arm must pay with a probability from 0.5 to 1, not {self.high}")

    def _task(self, good: Array | int) -> BernoulliTask:
        return BernoulliTask(jnp.where(jnp.arange(self.arms) == good, self.high, 1 - self.high).astype(jnp.float32))

    def default_task(self) -> BernoulliTask:
        return self._task(self.arms - 1)

    def sample_task(self, key: Array) -> BernoulliTask:
        return self._task(jax.random.randint(key, (), 0, self.arms))


class InformativeTask(NamedTuple):
    """Which arm is the good one."""

    means: Array  # [arms] what each arm pays


@dataclasses.dataclass(frozen=True)
class InformativeArm(_Bandit):
    """One arm of ten pays 5, the others 1; the eleventh pays a tenth of the good arm's number, counted from 1, and so tells it.

    Each arm always pays the same. Wang et al. (2016) give five pulls: `pulls=5`.
    """

    arms: int = 11
    pulls: int = 1

    def _task(self, good: Array | int) -> InformativeTask:
        number = jnp.arange(1, self.arms)
        pays = jnp.where(number == good, 5.0, 1.0)
        return InformativeTask(jnp.append(pays, jnp.asarray(good) / (self.arms - 1)).astype(jnp.float32))

    def default_task(self) -> InformativeTask:
        return self._task(1)

    def sample_task(self, key: Array) -> InformativeTask:
        return self._task(jax.random.randint(key, (), 1, self.arms))

    def _pay(self, task: InformativeTask, action: Array, key: Array) -> Array:
        return task.means[action]


@dataclasses.dataclass(frozen=True)
class FactoredBandit(Environment):
    """Several levers set at once, `sizes` positions each; the reward is the mean of what they pay, plus noise.

    By default a lever's positions pay from 0 to 1, the last most; sampled: uniform in [0, 1]. The best that can be had on average
    is the mean over levers of the largest payment, which `best_reward` says.
    """

    sizes: tuple[int, ...] = (3, 5, 4)
    noise: float = 0.1

    observation = jax.ShapeDtypeStruct((1,), jnp.float32)

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or min(self.sizes) < 1:
            raise ValueError(f"a factored bandit has at least two levers with at least one position each, not {self.sizes}")

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return max(self.sizes)

    @property
    def action_dimensions(self) -> int:  # type: ignore[override]
        return len(self.sizes)

    def default_task(self) -> FactoredTask:
        # Rows are padded to the longest lever; no choice leads to an entry beyond a lever's own positions.
        steps = jnp.arange(self.num_actions) / jnp.maximum(jnp.array(self.sizes)[:, None] - 1, 1)
        return FactoredTask(jnp.minimum(steps, 1).astype(jnp.float32))

    def sample_task(self, key: Array) -> FactoredTask:
        return FactoredTask(jax.random.uniform(key, (len(self.sizes), self.num_actions), jnp.float32))

    def reset(self, task: FactoredTask, key: Array) -> tuple[Array, Array]:
        return jnp.int32(0), jnp.ones((1,), jnp.float32)

    def step(self, task: FactoredTask, state: Array, action: Array, key: Array) -> tuple[Array, Transition]:
        reward = self.expected_reward(task, state, action) + self.noise * jax.random.normal(key, (), jnp.float32)
        return state, Transition(jnp.ones((1,), jnp.float32), reward, jnp.bool_(True), jnp.bool_(False))

    def expected_reward(self, task: FactoredTask, state: Array, action: Array) -> Array:
        """The mean reward of these choices."""
        del state
        position = several_of(self.sizes).native_action(action, jnp)
        return jnp.mean(task.means[jnp.arange(len(self.sizes)), position])

    def best_reward(self, task: FactoredTask) -> Array:
        """The mean over levers of what their best position pays."""
        # The padding must not win: in sampled tasks it holds random numbers.
        own = jnp.arange(self.num_actions) < jnp.array(self.sizes)[:, None]
        return jnp.mean(jnp.max(jnp.where(own, task.means, -jnp.inf), -1))
