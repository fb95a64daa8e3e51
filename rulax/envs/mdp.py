"""Random tabular MDPs: environments that are nothing but a table, and whose optimal values can be computed."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.types import Array


class MDPTask(NamedTuple):
    """A tabular MDP with S states and A actions."""

    transition: Array  # [S, A, S] probability of each next state
    reward: Array  # [S, A] expected reward
    initial: Array  # [S] probability of starting there
    termination: Array  # [] probability that a step is the last
    noise: Array  # [] standard deviation of rewards


class MDPState(NamedTuple):
    """Where the agent is, and since when."""

    place: Array  # [] int32
    steps: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class RandomMDP(Environment):
    """Rewards N(1, 1), transitions Dirichlet(1), start in state 0 (the family of RL², Duan et al. 2016, section 3.2).

    An episode ends with probability `termination` at each step and, if `horizon` is not 0, after `horizon` steps. With a
    horizon the observation is not the whole state (it lacks the time); without, it is.
    """

    states: int = 10
    actions: int = 5
    horizon: int = 0
    termination: float = 0.1
    noise: float = 0.1

    def __post_init__(self) -> None:
        if self.states < 1 or self.actions < 1 or self.horizon < 0 or not 0 <= self.termination <= 1:
            raise ValueError(f"sizes must be positive and termination a probability: {self}")

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.actions

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((self.states,), jnp.float32)

    def default_task(self) -> MDPTask:
        return self.sample_task(jax.random.key(0))

    def sample_task(self, key: Array) -> MDPTask:
        key_transition, key_reward = jax.random.split(key)
        table = (self.states, self.actions)
        # Normalised exponentials are Dirichlet(1), and much quicker than the general sampler.
        odds = jax.random.exponential(key_transition, (*table, self.states), jnp.float32)
        return MDPTask(
            transition=odds / odds.sum(-1, keepdims=True),
            reward=1 + jax.random.normal(key_reward, table, jnp.float32),
            initial=jax.nn.one_hot(0, self.states, dtype=jnp.float32),
            termination=jnp.float32(self.termination),
            noise=jnp.float32(self.noise),
        )

    def reset(self, task: MDPTask, key: Array) -> tuple[MDPState, Array]:
        state = MDPState(_draw(key, task.initial), jnp.int32(0))
        return state, self._observe(state)

    def step(self, task: MDPTask, state: MDPState, action: Array, key: Array) -> tuple[MDPState, Transition]:
        key_place, key_reward, key_end = jax.random.split(key, 3)
        noise = task.noise * jax.random.normal(key_reward, (), jnp.float32)
        reward = task.reward[state.place, action] + noise
        state = MDPState(_draw(key_place, task.transition[state.place, action]), state.steps + 1)
        terminated = jax.random.uniform(key_end, (), jnp.float32) < task.termination
        if self.horizon:
            # A termination, not a truncation: the horizon belongs to the task, and nothing is earned after it.
            terminated |= state.steps >= self.horizon
        return state, Transition(self._observe(state), reward, terminated, jnp.bool_(False))

    def expected_reward(self, task: MDPTask, state: MDPState, action: Array) -> Array:
        """The mean reward of an action."""
        return task.reward[state.place, action]

    def _observe(self, state: MDPState) -> Array:
        return jax.nn.one_hot(state.place, self.states, dtype=jnp.float32)


def _draw(key: Array, probabilities: Array) -> Array:
    # log 0 = -inf is right here: `categorical` never draws such a state.
    return jax.random.categorical(key, jnp.log(probabilities)).astype(jnp.int32)


def _look_ahead(task: MDPTask, values: Array, discount: float | Array) -> Array:
    """Action values [S, A] if the future is worth `values` [S]."""
    # Whatever the action, a step is the last one with probability `termination`, and then no value follows.
    return task.reward + discount * (1 - task.termination) * task.transition @ values


def optimal_values(task: MDPTask, discount: float | Array, tolerance: float = 1e-5, limit: int = 10_000) -> Array:
    """Action values [S, A] of the best policy by value iteration, as if there were no horizon.

    Stops when no value moves by more than `tolerance`, or after `limit` sweeps: without discounting and without
    termination there is nothing to converge to.
    """

    def moving(carry: tuple[Array, Array, Array]) -> Array:
        _, change, sweeps = carry
        return (change > tolerance) & (sweeps < limit)

    def sweep(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        values, _, sweeps = carry
        improved = _look_ahead(task, values.max(-1), discount)
        return improved, jnp.abs(improved - values).max(), sweeps + 1

    # An infinite change, so that the first sweep is always made.
    start = (jnp.zeros_like(task.reward), jnp.asarray(jnp.inf, task.reward.dtype), jnp.int32(0))
    return jax.lax.while_loop(moving, sweep, start)[0]


def optimal_values_to_go(task: MDPTask, discount: float | Array, horizon: int) -> Array:
    """Action values [horizon, S, A] of the best policy when the episode ends after `horizon` steps; entry t is for step t."""

    def back_up(values: Array, _: None) -> tuple[Array, Array]:
        action_values = _look_ahead(task, values, discount)
        return action_values.max(-1), action_values

    # Reversed, so that entry t of the stacked outputs belongs to step t although values are computed from the end.
    return jax.lax.scan(back_up, jnp.zeros_like(task.initial), None, length=horizon, reverse=True)[1]


def ten_steps() -> RandomMDP:
    """The setting of RL²: ten steps, unit noise. The start is always state 0."""
    return RandomMDP(horizon=10, termination=0.0, noise=1.0)
