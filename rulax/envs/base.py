"""The environment contract. Everything in `envs/` either implements it or wraps it.

**An environment** is a pair of pure functions on one stream, without batching and without resetting itself:

    state, observation = environment.reset(task, key)
    state, transition = environment.step(task, state, action, key)

A *task* is a pytree of numbers (physical constants, a layout, arm probabilities): a distribution of tasks is `sample_task`
under `vmap`, and the same compiled program serves all of them.

**Termination and truncation** are different. `terminated` means that no more reward follows: the value of what comes next is zero.
`truncated` means that the episode was cut off (a time limit): what comes next has a value, and learning bootstraps from it.

**Auto-reset** happens in one place, `wrappers.AutoReset`, and turns an environment into an endless stream of `Timestep`s:
* After a *terminated* step the stream shows the first observation of the next episode at once (`first`, and `discount` 0
  for the step that ended): no rule needs the last observation.
* After a *truncated* step it shows the true last observation (`discount` 1), so that its value can be bootstrapped. The
  following step is a dummy: its action does nothing, its reward is 0, it is marked `valid = False`, and it leads to the
  first observation of the next episode.
* A host environment may fail. A step in which an environment raised and was replaced (`adapters/restart.py`) is a dummy too: its
  episode has no end, and it leads to the first observation of another.

Rules need just one sentence of this: an invalid step teaches nothing and no return reaches across it.

**Starts have levels** (`types.Level`). `first` is 0 inside of an episode, 1 where an episode starts, 2 where a trial or a task
starts, and 3 at the first observation of a stream. Trials (`tasks.py`) consist of several episodes: to returns a trial is one
episode (it terminates once, at its end), and `first` shows where the episodes inside of it begin.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from rulax.types import Array, Level, PyTree


class Transition(NamedTuple):
    """What one action led to, as the environment reports it."""

    observation: PyTree
    reward: Array  # [] float32
    terminated: Array  # [] bool: no reward follows
    truncated: Array  # [] bool: the episode was cut off
    # A NumPy scalar: a `jnp` default would initialise a JAX backend as soon as this module is imported.
    first: Any = np.int8(Level.NOTHING)  # [] int8: what starts at `observation` although the episode goes on, see `tasks.Trial`


class Episode(NamedTuple):
    """Statistics of the episode that ended with this step; only meaningful where `ended`."""

    ended: Array  # [] bool
    total: Array  # [] float32, undiscounted sum of rewards
    length: Array  # [] int32


class Timestep(NamedTuple):
    """One step of an endless stream. `observation` and `first` describe the present, the rest the action before."""

    observation: PyTree
    first: Array  # [] int8: `Level` of what starts at the observation
    reward: Array  # [] float32
    discount: Array  # [] float32: 0 where the action ended the episode by termination
    valid: Array  # [] bool: False for a dummy step or a cut-off
    episode: Episode


class Environment(abc.ABC):
    """A jittable environment. Subclasses are final, frozen dataclasses: their fields fix shapes, their task holds numbers."""

    # Annotated rather than abstract: subclasses may give it as a class attribute, a field or a property.
    num_actions: int  # an action is one of that many choices, int32 []
    action_dimensions: int = 0  # unless this is D > 0: then it is D such choices at once, int32 [D]
    # If this is D > 0, an action may also be D real numbers, float32 [D]: -1 and 1 are the bounds, and what is beyond is clipped.
    real_dimensions: int = 0
    observation: Any  # shape and dtype of one observation: a jax.ShapeDtypeStruct, or a dictionary of them
    one_task: bool = False  # whether `sample_task` always returns the default task
    # The usual names of constants that the task calls otherwise, or has several of which change together; see `tasks.randomised`.
    short_names: Mapping[str, tuple[str, ...]] = {}
    positive: tuple[str, ...] = ()  # constants of the task that make no sense at 0 or below, such as a mass

    @abc.abstractmethod
    def default_task(self) -> PyTree:
        """The task that the environment is known for."""

    @abc.abstractmethod
    def sample_task(self, key: Array) -> PyTree:
        """A random task of the same family, with the structure and shapes of the default one."""

    @abc.abstractmethod
    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        """Start an episode: the state, and the first observation."""

    @abc.abstractmethod
    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        """Take one action, int32 [] or [D], or float32 [D]. `AutoReset` discards what happens after the end of an episode.

        Args:
            task: the numbers that make this one of its family.
            state: where the episode is.
            action: int32 [] or [D], or float32 [D].
            key: randomness of the step.
        """

    def next_episode(self, task: PyTree, state: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        """Start the episode after the one that ended in `state`: the new state, and its first observation.

        Most environments carry nothing over from one episode to the next and simply reset; `tasks.py` has some that do.
        """
        del state
        return self.reset(task, key)

    def next_level(self, task: PyTree, state: PyTree) -> Array | int:
        """The `Level` of what `next_episode` starts after `state`: an episode, unless it is also a new trial or task."""
        del task, state
        return Level.EPISODE

    def native_action(self, action: np.ndarray) -> np.ndarray:
        """An agent's actions [B] or [B, D] as those of the library behind an adapter, [B, ...]; elsewhere the same."""
        return action

    def preprocess(self, observation: PyTree) -> PyTree:
        """An observation of the library behind an adapter as agents see it, for one observation or a batch; elsewhere the same."""
        return observation


def is_symbols(leaf: jax.ShapeDtypeStruct) -> bool:
    """Whether an array of an observation holds symbols, such as NetHack's glyphs: any integers except bytes, which are pixels."""
    return np.issubdtype(leaf.dtype, np.integer) and leaf.dtype != np.uint8


def is_image(leaf: jax.ShapeDtypeStruct) -> bool:
    """Whether it is an image [H, W, C], or a map of symbols [H, W] or [H, W, C]."""
    return len(leaf.shape) == 3 or (is_symbols(leaf) and len(leaf.shape) == 2)


class Streams(Protocol):
    """Endless streams of a jittable environment, side by side: what an agent acts in. `wrappers.streams` makes them."""

    def start(self, task: PyTree, key: Array) -> tuple[PyTree, Timestep]:
        """Begin every stream: their state and the first timestep, leaves [B, ...]."""

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Timestep]:
        """One action per stream, [B] or [B, D]: the state and the timestep after it.

        Args:
            task: the one task of all streams.
            state: of all streams, leaves [B, ...].
            action: one per stream, int32 [B] or [B, D], or float32 [B, D].
            key: randomness of the step.
        """


class EnvironmentFailed(RuntimeError):
    """An environment raised more often than is allowed, or does what no restart mends; the text is a sentence for the user."""

    def __init__(self, message: str, restarts: int = 0, limits: Mapping[str, float] | None = None):
        super().__init__(message)
        self.restarts = restarts  # of all streams together, so far
        self.limits = dict(limits or {})  # settings that ended it: with a larger value of one, it may be worth another try


class HostEnvironment(abc.ABC):
    """An environment that steps on the CPU, outside of JAX: a recipe from which streams are opened."""

    num_actions: int
    action_dimensions: int = 0
    real_dimensions: int = 0  # as in `Environment`
    observation: Any  # shape and dtype of one observation: a jax.ShapeDtypeStruct, or a dictionary of them
    one_task: bool = True
    frames: int = 1  # if more, all images [H, W, frames x colours] are stacks, oldest frame first: replay stores each frame once
    one_copy_per_stream: bool = False  # whether each stream is a copy that we step, so that copies can live in processes

    @abc.abstractmethod
    def open(self, num_streams: int) -> HostStreams:
        """Open `num_streams` (B) streams."""

    def native_action(self, action: np.ndarray) -> np.ndarray:
        """An agent's actions [B] or [B, D] as those of the library behind an adapter, [B, ...]; elsewhere the same."""
        return action

    def preprocess(self, observation: PyTree) -> PyTree:
        """An observation of the library behind an adapter as agents see it, for one observation or a batch; elsewhere the same."""
        return observation


class Around:
    """What compiled and host environments around another one share: its actions and its observations, unchanged."""

    environment: Any  # of the same kind; subclasses say which

    @property
    def num_actions(self) -> int:
        return self.environment.num_actions

    @property
    def action_dimensions(self) -> int:
        return self.environment.action_dimensions

    @property
    def real_dimensions(self) -> int:
        return self.environment.real_dimensions

    @property
    def observation(self) -> PyTree:
        return self.environment.observation

    def native_action(self, action: np.ndarray) -> np.ndarray:
        return self.environment.native_action(action)

    def preprocess(self, observation: PyTree) -> PyTree:
        return self.environment.preprocess(observation)


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity, like the environment inside
class WrappedHost(Around, HostEnvironment):  # type: ignore[override]  # attributes there, properties here
    """A host environment around another one; subclasses change something about it."""

    environment: HostEnvironment


class HostStreams(abc.ABC):
    """Open streams of a host environment. Timesteps hold numpy arrays with a leading axis [B]; same contract as `AutoReset`."""

    # One mapping for all instances, so implementations replace it and never change it in place.
    failed: Mapping[int, str] = {}  # streams whose environment raised in the last call and was replaced, with the error's text

    @abc.abstractmethod
    def start(self, seed: int) -> Timestep:
        """Reset every stream; all that follows is determined by `seed` and the actions."""

    @abc.abstractmethod
    def step(self, action: np.ndarray) -> Timestep:
        """One action in every stream: choices [B] or [B, D], or real numbers [B, D]."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release what the streams hold; they cannot be used afterwards."""

    def abandon(self) -> None:
        """Release streams that are broken and may hang: like `close`, but by force where that is possible."""
        self.close()


class WrappedStreams(HostStreams):
    """Streams around others; subclasses change what they show."""

    def __init__(self, streams: HostStreams):
        self.streams = streams

    @property
    def failed(self) -> Mapping[int, str]:  # type: ignore[override]
        return self.streams.failed

    @abc.abstractmethod
    def show(self, timestep: Timestep) -> Timestep:
        """A timestep of the streams inside, as these show it."""

    def start(self, seed: int) -> Timestep:
        return self.show(self.streams.start(seed))

    def step(self, action: np.ndarray) -> Timestep:
        return self.show(self.streams.step(action))

    def close(self) -> None:
        self.streams.close()

    def abandon(self) -> None:
        self.streams.abandon()
