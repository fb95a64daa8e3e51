"""Meta-gradients with a table of values: a discount or a trace per state, in Markov reward processes whose values are known.

The table learns by lambda-returns, G_t = r_t + discount_t ((1 - lambda_t) V_{t+1} + lambda_t G_{t+1}), with a discount or a lambda
that belongs to the state arrived at. Each episode also validates the update before it, against the plain sum of its rewards.
An agent with a network learns its constants in `meta_gradient.py`; a table is simple enough for an update of its own.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.types import Array, PyTree
from rulax.values.returns import lambda_returns

GRID = tuple(float(x) for x in np.linspace(0, 1, 21))  # fixed constants to compare with


@dataclasses.dataclass(frozen=True)
class Process:
    """A chain of states, each with the mean and standard deviation of the reward for leaving it; after the last, the end."""

    tuned: Literal["discount", "trace"]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    entry: tuple[int, ...]  # each state's entry in the table; states with the same entry look the same
    wanted_high: tuple[int, ...]  # states at which the tuned constant should be high
    wanted_low: tuple[int, ...]

    @property
    def values(self) -> np.ndarray:
        """The value of each state, [T]: the sum of all mean rewards from there on."""
        return np.cumsum(np.asarray(self.mean)[::-1])[::-1]

    @property
    def unique(self) -> np.ndarray:
        """Whether each state has an entry of its own, [T], so that its value can be right."""
        entry = np.asarray(self.entry)
        return (entry[:, None] == entry[None, :]).sum(1) == 1

    def rewards(self, key: Array) -> Array:
        """The rewards of one episode, [T]."""
        noise = jax.random.normal(key, (len(self.mean),))
        return jnp.asarray(self.mean) + jnp.asarray(self.deviation) * noise

    def returns(self, table: Array, rewards: Array, constants: Array | float, trace: Array | float = 1.0) -> Array:
        """The targets of all states [T]. Each state's constant, in `constants` [T] or one for all, applies on arrival there."""
        values = jnp.append(table[jnp.asarray(self.entry)], 0.0)
        # Entry t is for the step from t to t + 1, hence the shift; after the last step nothing is arrived at.
        arriving = jnp.append(jnp.broadcast_to(constants, rewards.shape)[1:], 0.0)
        goes_on = jnp.ones_like(rewards).at[-1].set(0.0)
        if self.tuned == "discount":
            return lambda_returns(rewards, arriving, values, trace=trace)
        return lambda_returns(rewards, goes_on, values, trace=arriving)

    def sums(self, rewards: Array) -> Array:
        """Unbiased returns, [T]: the plain sums of rewards, without discount or bootstrapping."""
        return lambda_returns(rewards, jnp.ones_like(rewards), jnp.zeros(rewards.shape[0] + 1))

    def learn(self, table: Array, rewards: Array, constants: Array | float, rate: float) -> Array:
        """Move every visited entry of the table by `rate` towards its target."""
        entry = jnp.asarray(self.entry)
        # `add` accumulates where several states share an entry; `set` would keep just one of them.
        return table.at[entry].add(rate * (self.returns(table, rewards, constants) - table[entry]))

    def error(self, table: Array) -> Array:
        """Mean squared error of the values of the states that have entries of their own, []."""
        wrong = jnp.square(table[jnp.asarray(self.entry)] - jnp.asarray(self.values, jnp.float32))
        return jnp.sum(jnp.where(jnp.asarray(self.unique), wrong, 0)) / self.unique.sum()


def validation_loss(process: Process, rate: float, params: Array, table: Array, before: Array, after: Array) -> Array:
    """Half the squared error, on the next episode, of the table as updated by this one, [] (Xu et al. 2018, eq. 7).

    Args:
        process: where the rewards come from.
        rate: the step size of the table.
        params: logits of the states' constants, [T].
        table: the values before the update, [entries].
        before: rewards of the episode to learn from, [T].
        after: rewards of the next episode, [T].
    """
    updated = process.learn(table, before, jax.nn.sigmoid(params), rate)
    return 0.5 * jnp.sum(jnp.square(process.sums(after) - updated[jnp.asarray(process.entry)]))


class TabularState(NamedTuple):
    """One learner, and beside it learners with fixed constants that receive the same rewards."""

    params: Array  # [T] logits of the states' constants
    optimiser_state: PyTree
    table: Array  # [entries]
    constant: Array  # [grid, entries] tables learned with fixed constants
    rewards: Array  # [T] of the episode to learn from
    episodes: Array  # [] int32
    error: Array  # [] sum of errors over the second half of the lifetime
    constant_error: Array  # [grid]
    key: Array


@dataclasses.dataclass(frozen=True)
class TabularMetaGradient:
    """A process, the length of a lifetime in it, and the step sizes."""

    process: Process
    episodes: int
    rate: float = 0.1
    meta_learning_rate: float = 0.01
    start: float = 0.0  # logit: every constant begins at one half

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam on the logits of the constants."""
        return optax.adam(self.meta_learning_rate)


def init_tabular(method: TabularMetaGradient, key: Array) -> TabularState:
    """A new learner whose values are zero."""
    process, grid = method.process, len(GRID)
    key_life, key_rewards = jax.random.split(key)
    params, table = jnp.full(len(process.mean), method.start), jnp.zeros(max(process.entry) + 1)
    constant, zero = jnp.zeros((grid, *table.shape)), jnp.zeros(())
    memory = method.optimiser.init(params)
    rewards = process.rewards(key_rewards)
    return TabularState(params, memory, table, constant, rewards, jnp.int32(0), zero, jnp.zeros(grid), key_life)


def meta_update(method: TabularMetaGradient, state: TabularState) -> TabularState:
    """Learn from the last episode, play the next, and move the constants along the gradient of its validation loss."""
    process, rate = method.process, method.rate
    key, key_rewards = jax.random.split(state.key)
    following = process.rewards(key_rewards)
    loss = functools.partial(validation_loss, process, rate)
    grads = jax.grad(loss)(state.params, state.table, state.rewards, following)
    table = process.learn(state.table, state.rewards, jax.nn.sigmoid(state.params), rate)
    constant = jax.vmap(lambda table, c: process.learn(table, state.rewards, c, rate))(state.constant, jnp.asarray(GRID))
    changes, memory = method.optimiser.update(grads, state.optimiser_state)
    counts = state.episodes >= method.episodes // 2  # by then the constants have settled
    return TabularState(
        params=optax.apply_updates(state.params, changes),  # type: ignore[arg-type]
        optimiser_state=memory,
        table=table,
        constant=constant,
        rewards=following,
        episodes=state.episodes + 1,
        error=state.error + jnp.where(counts, process.error(table), 0),
        constant_error=state.constant_error + jnp.where(counts, jax.vmap(process.error)(constant), 0),
        key=key,
    )
