"""The environment contract: where an agent lives. Everything in `envs/` either implements it or wraps it.

**An environment** is a pair of pure functions on one stream, without batching and without resetting itself:

    state, observation = environment.reset(task, key)
    state, transition = environment.step(task, state, action, key)

A *task* is a pytree of numbers (physical constants, a layout, arm probabilities): a distribution of tasks is `sample_task`
under `vmap`, and the same compiled program serves all of them.

**Termination and truncation** are different. `terminated` means that the future holds no more reward: its value is zero.
`truncated` means that somebody stopped watching (a time limit): the future has a value, and learning bootstraps from it.

**Auto-reset** happens in one place, `wrappers.AutoReset`, and turns an environment into an endless stream of `Timestep`s:
* After a *terminated* step the stream shows the first observation of the next episode at once (`first`, and `discount` 0
  for the step that ended): what the last observation looked like matters to nobody.
* After a *truncated* step it shows the true last observation (`discount` 1), so that its value can be bootstrapped. The
  following step is a dummy: its action does nothing, its reward is 0, it is marked `valid = False`, and it leads to the
  first observation of the next episode.

* A host environment may fail. A step in which an environment raised and was made anew (`adapters/restart.py`) is a dummy, too: its
  episode never ended, and it leads to the first observation of another.

Rules need just one sentence of this: an invalid step teaches nothing and no return reaches across it.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from rulax.types import Array, PyTree


class Transition(NamedTuple):
    """What one action led to, in the environment's own terms."""

    observation: PyTree
    reward: Array  # [] float32
    terminated: Array  # [] bool: the future is worth nothing
    truncated: Array  # [] bool: the future was not watched


class Episode(NamedTuple):
    """Statistics of the episode that ended with this step; only meaningful where `ended`."""

    ended: Array  # [] bool
    total: Array  # [] float32, undiscounted sum of rewards
    length: Array  # [] int32


class Timestep(NamedTuple):
    """One step of an endless stream. `observation` and `first` are about now, the rest about the action before."""

    observation: PyTree
    first: Array  # [] bool: the observation starts an episode
    reward: Array  # [] float32
    discount: Array  # [] float32: 0 where the action ended the episode by termination
    valid: Array  # [] bool: False for a dummy step or a cut-off
    episode: Episode


class Environment(abc.ABC):
    """A jittable environment. Subclasses are final, frozen dataclasses: their fields fix shapes, their task holds numbers."""

    num_actions: int  # an action is one of that many choices, int32 []
    action_dimensions: int = 0  # unless this is D > 0: then it is D such choices at once, int32 [D]
    observation: jax.ShapeDtypeStruct  # shape and dtype of one observation
    one_task: bool = False  # whether `sample_task` can only give the default one

    @abc.abstractmethod
    def default_task(self) -> PyTree:
        """The task that the environment is known for."""

    @abc.abstractmethod
    def sample_task(self, key: Array) -> PyTree:
        """A task of the same family, drawn at random; same structure and shapes as the default."""

    @abc.abstractmethod
    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        """Start an episode: state and first observation."""

    @abc.abstractmethod
    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        """Take one action. After an episode has ended the result is unspecified: `AutoReset` never asks."""

    def next_episode(self, task: PyTree, state: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        """Start the episode after the one that ended in `state`. Most environments remember nothing between two (see
        `tasks.py`)."""
        del state
        return self.reset(task, key)

    def native_action(self, action: np.ndarray) -> np.ndarray:
        """Actions [B, ...] as the environment itself writes them; an adapter's environment has numbers of its own for them."""
        return action

    def preprocess(self, observation: PyTree) -> PyTree:
        """What an agent sees of what the library shows, one observation or a batch, where an adapter knows (Gymnasium, gymnax)."""
        return observation


def is_symbols(leaf: jax.ShapeDtypeStruct) -> bool:
    """Whether an array of an observation holds names: whole numbers do; but bytes are brightness."""
    return np.issubdtype(leaf.dtype, np.integer) and leaf.dtype != np.uint8


def is_image(leaf: jax.ShapeDtypeStruct) -> bool:
    """Whether it is a picture [H, W, C], or a map of symbols [H, W] or [H, W, C]."""
    return len(leaf.shape) == 3 or (is_symbols(leaf) and len(leaf.shape) == 2)


class Streams(Protocol):
    """Endless streams of a jittable environment, side by side: what an agent acts in. `wrappers.streams` makes them."""

    def start(self, task: PyTree, key: Array) -> tuple[PyTree, Timestep]:
        """Begin every stream: their state and the first timestep, leaves [B, ...]."""

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Timestep]:
        """One action per stream, [B] or [B, D]: the state and the timestep after it."""


class EnvironmentFailed(RuntimeError):
    """An environment raised more often than is tolerated; the text is a sentence for the user."""

    def __init__(self, message: str, restarts: int = 0):
        super().__init__(message)
        self.restarts = restarts  # of all streams, until here


class HostEnvironment(abc.ABC):
    """An environment that steps on the CPU, outside of JAX: a recipe from which streams are opened."""

    num_actions: int
    action_dimensions: int = 0
    observation: Any  # of one observation: a jax.ShapeDtypeStruct, or a dictionary of them
    one_task: bool = True
    frames: int = 1  # of which all images [H, W, frames x colours] are stacks, the oldest first: replay stores each frame once
    one_copy_per_stream: bool = False  # whether each stream is a copy that we step, so that processes can share them out

    @abc.abstractmethod
    def open(self, num_streams: int) -> HostStreams:
        """Start `num_streams` copies."""

    def native_action(self, action: np.ndarray) -> np.ndarray:
        """Actions [B, ...] as the environment itself writes them."""
        return action

    def preprocess(self, observation: PyTree) -> PyTree:
        """What an agent sees of what the library shows, one observation or a batch, where an adapter knows (Gymnasium, gymnax)."""
        return observation


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity, as what it is around
class WrappedHost(HostEnvironment):
    """A host environment around another, which it looks like but for what a subclass says."""

    environment: HostEnvironment

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.environment.num_actions

    @property
    def action_dimensions(self) -> int:  # type: ignore[override]
        return self.environment.action_dimensions

    @property
    def observation(self) -> PyTree:  # type: ignore[override]
        return self.environment.observation

    def native_action(self, action: np.ndarray) -> np.ndarray:
        return self.environment.native_action(action)

    def preprocess(self, observation: PyTree) -> PyTree:
        return self.environment.preprocess(observation)


class HostStreams(abc.ABC):
    """Open streams of a host environment. Timesteps hold numpy arrays with a leading axis [B]; same contract as `AutoReset`."""

    failed: Mapping[int, str] = {}  # streams whose environment raised in the last call and was made anew, and what it said

    @abc.abstractmethod
    def start(self, seed: int) -> Timestep:
        """Reset every stream."""

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> Timestep:
        """One action in every stream, [B] or [B, D]."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release what the streams hold; they cannot be used after."""

    def abandon(self) -> None:
        """Release streams that are broken, and perhaps hang: `close`, with force where there is a way."""
        self.close()
