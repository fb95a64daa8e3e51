"""Meta-gradients where everything is known: a discount or a trace per state, in two Markov reward processes of ten states.

A table of values learns by lambda-returns, G_t = r_t + discount_t ((1 - lambda_t) V_{t+1} + lambda_t G_{t+1}), with a discount or a
lambda that belongs to the state arrived at. Each episode also validates the update before it, against the plain sum of its rewards.
The processes are our own, after what is remembered of figure 1 of Xu et al. (2018).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, Study, Suite, Tested
from rulax.methods.loop import Loop
from rulax.types import Array, Metrics, PyTree
from rulax.values.returns import lambda_returns

SEEDS = 10  # lives side by side in one study
GRID = tuple(float(x) for x in np.linspace(0, 1, 21))  # constants to compare with


@dataclasses.dataclass(frozen=True)
class Process:
    """States that follow one another, each with a mean and a deviation of the reward for leaving it; then the end."""

    tuned: Literal["discount", "trace"]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    entry: tuple[int, ...]  # of the table, per state: states that share one look the same
    wanted_high: tuple[int, ...]  # states at which the tuned constant should be high
    wanted_low: tuple[int, ...]

    @property
    def values(self) -> np.ndarray:
        """What each state is worth: the sum of all means from there on."""
        return np.cumsum(np.asarray(self.mean)[::-1])[::-1]

    @property
    def unique(self) -> np.ndarray:
        """Whether a state has an entry of its own, so that its value can be right."""
        entry = np.asarray(self.entry)
        return (entry[:, None] == entry[None, :]).sum(1) == 1

    def rewards(self, key: Array) -> Array:
        """Those of one episode, [T]."""
        noise = jax.random.normal(key, (len(self.mean),))
        return jnp.asarray(self.mean) + jnp.asarray(self.deviation) * noise

    def returns(self, table: Array, rewards: Array, constants: Array | float, trace: Array | float = 1.0) -> Array:
        """The targets of all states [T]; `constants` [T] are those of the states, and belong to whoever arrives there."""
        values = jnp.append(table[jnp.asarray(self.entry)], 0.0)
        arriving = jnp.append(jnp.broadcast_to(constants, rewards.shape)[1:], 0.0)
        goes_on = jnp.ones_like(rewards).at[-1].set(0.0)
        if self.tuned == "discount":
            return lambda_returns(rewards, arriving, values, trace=trace)
        return lambda_returns(rewards, goes_on, values, trace=arriving)

    def sums(self, rewards: Array) -> Array:
        """What is learned about, [T]: the plain sums of rewards, without discount or bootstrap."""
        return lambda_returns(rewards, jnp.ones_like(rewards), jnp.zeros(rewards.shape[0] + 1))

    def learn(self, table: Array, rewards: Array, constants: Array | float, rate: float) -> Array:
        """One step of every visited entry towards its target."""
        entry = jnp.asarray(self.entry)
        return table.at[entry].add(rate * (self.returns(table, rewards, constants) - table[entry]))

    def error(self, table: Array) -> Array:
        """Mean squared error of the values of the states that can be told apart, []."""
        wrong = jnp.square(table[jnp.asarray(self.entry)] - jnp.asarray(self.values, jnp.float32))
        return jnp.sum(jnp.where(jnp.asarray(self.unique), wrong, 0)) / self.unique.sum()


def validation_loss(process: Process, rate: float, params: Array, table: Array, before: Array, after: Array) -> Array:
    """Half the squared error on the next episode of the table that was updated by this one, [] (Xu et al. 2018, eq. 7)."""
    updated = process.learn(table, before, jax.nn.sigmoid(params), rate)
    return 0.5 * jnp.sum(jnp.square(process.sums(after) - updated[jnp.asarray(process.entry)]))


class State(NamedTuple):
    """One life, and beside it those with constants, which see the same rewards."""

    params: Array  # [T] logits of the states' constants
    optimiser_state: PyTree
    table: Array  # [entries]
    constant: Array  # [grid, entries] tables learned with constants
    rewards: Array  # [T] of the episode to learn from
    episodes: Array  # [] int32
    error: Array  # [] sum of errors since half of the life was over
    constant_error: Array  # [grid]
    key: Array


@dataclasses.dataclass(frozen=True)
class Setting:
    """A process and how long it is lived in."""

    process: Process
    episodes: int
    rate: float = 0.1
    meta_learning_rate: float = 0.01
    start: float = 0.0  # logit: every constant begins at a half

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.meta_learning_rate)


def begin(setting: Setting, key: Array) -> State:
    """A life of which nothing is known."""
    process, grid = setting.process, len(GRID)
    key_life, key_rewards = jax.random.split(key)
    params, table = jnp.full(len(process.mean), setting.start), jnp.zeros(max(process.entry) + 1)
    constant, zero = jnp.zeros((grid, *table.shape)), jnp.zeros(())
    memory = setting.optimiser.init(params)
    rewards = process.rewards(key_rewards)
    return State(params, memory, table, constant, rewards, jnp.int32(0), zero, jnp.zeros(grid), key_life)


def one_episode(setting: Setting, state: State) -> State:
    """Learn from the last episode, live the next, and let it say how the constants should have been."""
    process, rate = setting.process, setting.rate
    key, key_rewards = jax.random.split(state.key)
    following = process.rewards(key_rewards)
    loss = functools.partial(validation_loss, process, rate)
    grads = jax.grad(loss)(state.params, state.table, state.rewards, following)
    table = process.learn(state.table, state.rewards, jax.nn.sigmoid(state.params), rate)
    constant = jax.vmap(lambda table, c: process.learn(table, state.rewards, c, rate))(state.constant, jnp.asarray(GRID))
    changes, memory = setting.optimiser.update(grads, state.optimiser_state)
    counts = state.episodes >= setting.episodes // 2  # by then the constants have been learned
    return State(
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


class Lives(Study):
    """Ten lives at once; each is held against the constant that was best in it, in hindsight."""

    def __init__(self, settings: dict[Suite, Setting], suite: Suite, seed: int):
        self.setting = settings[suite]
        self.loop = Loop(self._step, self.setting.episodes)
        keys = jax.random.split(jax.random.key(seed), SEEDS)
        self.state = jax.vmap(functools.partial(begin, self.setting))(keys)

    def _step(self, state: State) -> tuple[State, Metrics]:
        state = jax.vmap(functools.partial(one_episode, self.setting))(state)
        return state, {"error": jnp.mean(jax.vmap(self.setting.process.error)(state.table))}

    def advance(self) -> Progress:
        self.state, metrics = self.loop.advance(self.state)
        made = self.loop.made
        steps = made * SEEDS * len(self.setting.process.mean)
        return Progress(made / self.setting.episodes, made, steps, metrics["error"])

    def done(self) -> bool:
        return self.loop.done()

    def test(self) -> Tested:
        counted = max(self.loop.made - self.setting.episodes // 2, 1)
        ours = np.asarray(self.state.error, float) / counted  # [seeds]
        constants = np.asarray(self.state.constant_error, float) / counted  # [seeds, grid]
        process, learned = self.setting.process, np.asarray(jax.nn.sigmoid(self.state.params)).mean(0)
        low, high = learned[list(process.wanted_low)], learned[list(process.wanted_high)]
        best = constants.mean(0).argmin()
        details = {
            "mean squared error": float(ours.mean()),
            "that of the best constant of each life": float(constants.min(1).mean()),
            f"best constant {process.tuned}": GRID[best],
            f"mean {process.tuned} where it should be high": float(high.mean()),
            f"mean {process.tuned} where it should be low": float(low.mean()),
            "lowest of those that should be high": float(high.min()),
            "highest of those that should be low": float(low.max()),
            WORST_MARGIN: float(high.min() - low.max()),  # the order must be right in every state
        }
        names = {0: "constant 0", best: "best constant", len(GRID) - 1: "constant 1"}
        others = {f"error of {name}": float(constants[:, place].mean()) for place, name in names.items()}
        better = (ours < constants.min(1)).astype(float)
        return Tested(better, 0.0, Reference("every life", 1.0, "exact"), others, details)


def process_experiment(name: str, about: str, process: Process) -> Experiment:
    """One process as an experiment."""
    settings: dict[Suite, Setting] = {"quick": Setting(process, 10_000), "full": Setting(process, 50_000)}
    metric = "share of ten lives with a smaller error than the best of 21 constants"
    return Experiment("meta_gradient", name, about, metric, 0.9, 0.9, functools.partial(Lives, settings), minutes=1)


FIVE = (1.0,) * 5
SIGNAL_THEN_NOISE = Process(
    tuned="discount",
    mean=(*FIVE, *(0.0,) * 5),
    deviation=(*(0.0,) * 5, *(3.0,) * 5),
    entry=tuple(range(10)),
    wanted_high=(1, 2, 3, 4),  # nobody arrives at the first state
    wanted_low=(5, 6, 7, 8, 9),
)
LOOK_ALIKES = Process(
    tuned="trace",
    mean=(1.0,) * 10,
    deviation=(2.0,) * 10,
    entry=(0, 5, 1, 5, 2, 5, 3, 5, 4, 5),
    wanted_high=(1, 3, 7, 9),
    wanted_low=(2, 4, 5, 6, 8),  # 5 is worth just what those that look alike are worth on average: its value may be believed
)
MRP_EXPERIMENTS = (
    process_experiment("noise", "a discount per state: five rewards of 1, then five of mean 0 and deviation 3", SIGNAL_THEN_NOISE),
    process_experiment("look-alikes", "a trace per state: every second of ten states looks like the others", LOOK_ALIKES),
)
