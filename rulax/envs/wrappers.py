"""From an environment to the streams that an agent acts in: time limit, auto-reset, episode statistics, batching.

`streams(environment, num_streams)` applies all of them in the right order. The auto-reset contract is in `base.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.actions import BINS, Actions, evenly_spaced
from rulax.envs.base import Around, Environment, Episode, Timestep, Transition
from rulax.types import Array, Level, PyTree


def select(condition: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Choose between two trees of equal structure by one boolean."""
    # `lax.cond` would gain nothing: under `vmap` with a batched condition it becomes the same select.
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def beside(observation: PyTree, name: str, part: Any) -> dict[str, Any]:
    """An observation with one more part, as a dictionary; any arrays, or their shapes."""
    own = dict(observation) if isinstance(observation, Mapping) else {"observation": observation}
    if name in own:
        raise ValueError(f"the environment's observation already has a part '{name}'")
    return {**own, name: part}


def as_vector(observation: PyTree) -> Array:
    """All numbers of one observation, float32 [vector_size]."""
    return jnp.concatenate([leaf.astype(jnp.float32).reshape(-1) for leaf in jax.tree.leaves(observation)])


def vector_size(observation: PyTree) -> int:
    """How many numbers an observation of these shapes has."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(observation))


@dataclasses.dataclass(frozen=True)
class Wrapped(Around, Environment):  # type: ignore[override]  # attributes there, properties here
    """An environment as it is; subclasses change something about it."""

    environment: Environment

    @property
    def one_task(self) -> bool:  # type: ignore[override]
        return self.environment.one_task

    @property
    def short_names(self) -> Mapping[str, tuple[str, ...]]:  # type: ignore[override]
        return self.environment.short_names

    @property
    def positive(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.environment.positive

    def default_task(self) -> PyTree:
        return self.environment.default_task()

    def sample_task(self, key: Array) -> PyTree:
        return self.environment.sample_task(key)

    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        return self.environment.reset(task, key)

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        return self.environment.step(task, state, action, key)

    def next_episode(self, task: PyTree, state: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        return self.environment.next_episode(task, state, key)

    def next_level(self, task: PyTree, state: PyTree) -> Array | int:
        return self.environment.next_level(task, state)


@dataclasses.dataclass(frozen=True)
class Binned(Wrapped):
    """An environment whose action is a vector of real numbers in [-1, 1], with `bins` evenly spaced values to choose from per
    dimension. Such an environment declares its number of dimensions as `num_actions` (point.py).
    """

    bins: int = 5

    def __post_init__(self) -> None:
        self.actions()  # raises if `bins` makes no sense

    def actions(self) -> Actions:
        """What each choice means."""
        ends = np.ones(self.environment.num_actions, np.float32)
        return evenly_spaced(-ends, ends, self.bins)

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.bins

    @property
    def action_dimensions(self) -> int:  # type: ignore[override]
        return self.actions().dimensions

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        # `jnp`, because the choice is traced here; on the host the same table is read with NumPy.
        return self.environment.step(task, state, self.actions().native_action(action, jnp), key)

    def native_action(self, action: np.ndarray) -> np.ndarray:
        return self.actions().native_action(action)


@dataclasses.dataclass(frozen=True)
class Continuous(Binned):
    """The same for agents that act by real numbers, or by 11 bins where their rule needs choices; `bins` leaves only those."""

    bins: int = 0

    def actions(self) -> Actions:
        ends = np.ones(self.environment.num_actions, np.float32)
        return evenly_spaced(-ends, ends, self.bins or BINS, real=not self.bins)

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.bins or BINS

    @property
    def real_dimensions(self) -> int:  # type: ignore[override]
        return self.actions().real_dimensions


@dataclasses.dataclass(frozen=True)
class MoreActions(Wrapped):
    """The same environment with more actions to choose from; the additional ones do what its last one does. For benchmarks."""

    actions: int

    def __post_init__(self) -> None:
        if self.actions < self.environment.num_actions:
            raise ValueError(f"actions must be at least the environment's own {self.environment.num_actions}, not {self.actions}")

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.actions

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        return self.environment.step(task, state, jnp.minimum(action, self.environment.num_actions - 1), key)


class LimitedState(NamedTuple):
    """An environment and how long its episode has lasted."""

    env_state: PyTree
    steps: Array  # [] int32, in this episode


@dataclasses.dataclass(frozen=True)
class TimeLimit(Wrapped):
    """Truncates an episode after `limit` steps, unless it terminates at that very step."""

    limit: int

    def reset(self, task: PyTree, key: Array) -> tuple[LimitedState, PyTree]:
        env_state, observation = self.environment.reset(task, key)
        return LimitedState(env_state, jnp.int32(0)), observation

    def step(self, task: PyTree, state: LimitedState, action: Array, key: Array) -> tuple[LimitedState, Transition]:
        env_state, transition = self.environment.step(task, state.env_state, action, key)
        steps = state.steps + 1
        # Termination wins: where no reward follows there is nothing to bootstrap from.
        truncated = (transition.truncated | (steps >= self.limit)) & ~transition.terminated
        return LimitedState(env_state, steps), transition._replace(truncated=truncated)

    def next_episode(self, task: PyTree, state: LimitedState, key: Array) -> tuple[LimitedState, PyTree]:
        # Not `reset`: the environment inside may carry something over to its next episode.
        env_state, observation = self.environment.next_episode(task, state.env_state, key)
        return LimitedState(env_state, jnp.int32(0)), observation

    def next_level(self, task: PyTree, state: LimitedState) -> Array | int:
        return self.environment.next_level(task, state.env_state)


class StreamState(NamedTuple):
    """An environment's state, and what the next step needs to know about the last one."""

    env_state: PyTree
    cut: Array  # [] bool: the last step was truncated, so the next one is a dummy


@dataclasses.dataclass(frozen=True)
class AutoReset:
    """One endless stream of timesteps from an environment that ends; see the contract in `base.py`."""

    environment: Environment

    def start(self, task: PyTree, key: Array) -> tuple[StreamState, Timestep]:
        env_state, observation = self.environment.reset(task, key)
        episode = Episode(jnp.bool_(False), jnp.float32(0), jnp.int32(0))
        # The highest level, so that whatever lasts for an episode, a trial or a life is drawn or cleared here.
        first = jnp.int8(Level.LIFE)
        timestep = Timestep(observation, first, jnp.float32(0), jnp.float32(1), jnp.bool_(True), episode)
        return StreamState(env_state, jnp.bool_(False)), timestep

    def step(self, task: PyTree, state: StreamState, action: Array, key: Array) -> tuple[StreamState, Timestep]:
        key_step, key_reset = jax.random.split(key)
        env_state, transition = self.environment.step(task, state.env_state, action, key_step)
        # Computed at every step and mostly discarded: which stream needs it is only known at run time.
        fresh_state, fresh_observation = self.environment.next_episode(task, env_state, key_reset)
        # After a cut-off the environment has already ended, so whatever this step reports is discarded.
        dummy = state.cut
        terminated = transition.terminated & ~dummy
        truncated = transition.truncated & ~transition.terminated & ~dummy
        restarts = terminated | dummy
        # Asked of the state that ended: a fresh one no longer tells whether a trial or a task was over.
        level = self.environment.next_level(task, env_state)
        timestep = Timestep(
            observation=select(restarts, fresh_observation, transition.observation),
            # Inside of a trial an episode may start although the stream's own goes on.
            first=jnp.where(restarts, level, transition.first).astype(jnp.int8),
            reward=jnp.where(dummy, 0.0, transition.reward).astype(jnp.float32),
            # A truncation keeps discount 1: its observation is the true last one, whose value is bootstrapped.
            discount=jnp.where(terminated, 0.0, 1.0).astype(jnp.float32),
            valid=~dummy,
            # Only the end is known here; `EpisodeStatistics` fills in return and length.
            episode=Episode(terminated | truncated, jnp.float32(0), jnp.int32(0)),
        )
        return StreamState(select(restarts, fresh_state, env_state), truncated), timestep


class CountedState(NamedTuple):
    """A stream and the episode's statistics so far."""

    stream: PyTree
    total: Array  # [] float32, reward so far in this episode
    length: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class EpisodeStatistics:
    """Fills in `Timestep.episode`: return and length of every episode, at the step that ends it."""

    stream: AutoReset

    def start(self, task: PyTree, key: Array) -> tuple[CountedState, Timestep]:
        stream, timestep = self.stream.start(task, key)
        return CountedState(stream, jnp.float32(0), jnp.int32(0)), timestep

    def step(self, task: PyTree, state: CountedState, action: Array, key: Array) -> tuple[CountedState, Timestep]:
        stream, timestep = self.stream.step(task, state.stream, action, key)
        # A dummy step has reward 0 and is not valid, so it enters neither number.
        total = state.total + timestep.reward
        length = state.length + timestep.valid
        ended = timestep.episode.ended
        state = CountedState(stream, jnp.where(ended, 0.0, total), jnp.where(ended, 0, length))
        return state, timestep._replace(episode=Episode(ended, total, length))


@dataclasses.dataclass(frozen=True)
class Batched:
    """`num_streams` independent streams of one task; every array gets a leading axis [B]."""

    stream: Any
    num_streams: int

    def start(self, task: PyTree, key: Array) -> tuple[PyTree, Timestep]:
        keys = jax.random.split(key, self.num_streams)
        return jax.vmap(self.stream.start, in_axes=(None, 0))(task, keys)

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Timestep]:
        keys = jax.random.split(key, self.num_streams)
        return jax.vmap(self.stream.step, in_axes=(None, 0, 0, 0))(task, state, action, keys)


def streams(environment: Environment, num_streams: int) -> Batched:
    """The streams that an agent acts in: auto-reset, with statistics, batched."""
    # Statistics outside of the auto-reset, which marks the dummy steps; batching last, so that all of it is written for one stream.
    return Batched(EpisodeStatistics(AutoReset(environment)), num_streams)
