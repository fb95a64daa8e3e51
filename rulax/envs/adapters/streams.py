"""What the adapters of host environments share: seeds, auto-reset, episode statistics, closing.

An adapter of a library that steps many copies at once (ale-py, EnvPool, Gymnasium's vector environment) subclasses
`ResettingStreams` and implements how to reset and step them. An adapter of a library of single environments (Crafter, NetHack,
dm_env, Gymnasium) only implements a `Copy`, and `CopiedStreams` do the rest; `workers.py` distributes such copies over processes.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np

from rulax.envs.actions import Actions, ByTable
from rulax.envs.adapters import is_an_environments, limit, quietly, said
from rulax.envs.adapters.checking import shown_instead
from rulax.envs.base import EnvironmentFailed, Episode, HostEnvironment, HostStreams, Timestep
from rulax.types import Level, PyTree

HostArray = Any  # `Timestep` is annotated with JAX arrays; host environments fill it with numpy arrays
Autoreset = Literal["next_step", "same_step", "when_needed"]


class Outcome(NamedTuple):
    """What one action per stream led to, each with a leading axis [B]."""

    observation: PyTree
    reward: HostArray
    terminated: HostArray
    truncated: HostArray
    lost: HostArray | None = None  # a life was lost: worth nothing from here on, although the game goes on


class CheckedStreams(HostStreams):
    """Open streams with a seed each, which refuse invalid actions, and any call once they are closed."""

    def __init__(self, num_streams: int, num_actions: int, action_dimensions: int = 0, real_dimensions: int = 0):
        self.num_streams, self.num_actions = num_streams, num_actions
        self.real_shape = (num_streams, real_dimensions)
        self.action_shape = (num_streams, action_dimensions) if action_dimensions else (num_streams,)
        self.closed = False

    @abc.abstractmethod
    def start_each(self, seeds: np.ndarray) -> Timestep:
        """Reset every stream with a seed of its own, uint32 [B]."""

    @abc.abstractmethod
    def step_each(self, action: np.ndarray) -> Timestep:
        """One action in every stream, int64 [B] or [B, D], or float [B, D]."""

    @abc.abstractmethod
    def close_all(self) -> None:
        """Release what the library holds. Called once."""

    def start(self, seed: int) -> Timestep:
        self._check_open()
        # Not seed, seed + 1, ...: then neighbouring seeds would share all of their streams but one.
        return self.start_each(np.random.SeedSequence(seed).generate_state(self.num_streams))

    def step(self, action: np.ndarray) -> Timestep:
        self._check_open()
        if self.real_shape[1] and np.issubdtype(np.asarray(action).dtype, np.floating):
            if action.shape != self.real_shape:
                raise ValueError(f"an action must be {' x '.join(map(str, self.real_shape))} real numbers, not {action}")
            return self.step_each(action)
        actions = np.asarray(action, np.int64)
        if actions.shape != self.action_shape or actions.min() < 0 or actions.max() >= self.num_actions:
            # Checked here, because ale-py hangs on an action that it does not have.
            wanted = " x ".join(map(str, self.action_shape))
            raise ValueError(f"an action must be {wanted} numbers from 0 to {self.num_actions - 1}, not {action}")
        return self.step_each(actions)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.close_all()

    def _check_open(self) -> None:
        if self.closed:  # some libraries silently step closed environments
            raise ValueError("these streams are closed; open new ones")


class ResettingStreams(CheckedStreams):
    """Open streams. Which steps teach something depends on when an ended episode is reset:

    * `next_step`: a step that ends an episode shows the true last observation. The step after it is a dummy: its action is
      ignored and it resets (reward 0, `valid` False, `first` 1).
    * `same_step`: a step that ends an episode shows the first observation of the next one at once. For a terminated episode
      that is all that is needed. A truncated one should bootstrap from its last observation, which the stream does not show,
      so this step teaches nothing: `valid` False. Its reward is real and counts in the episode's statistics.
    * `when_needed`: as `wrappers.AutoReset` does it, which loses nothing: a terminated episode like `same_step`, a truncated
      one like `next_step`.
    """

    autoreset: Autoreset = "next_step"

    def __init__(self, num_streams: int, num_actions: int, action_dimensions: int = 0, real_dimensions: int = 0):
        super().__init__(num_streams, num_actions, action_dimensions, real_dimensions)
        self.clear()

    @abc.abstractmethod
    def reset_all(self, seeds: np.ndarray) -> PyTree:
        """First observations [B] of streams that are reset with one seed each (uint32)."""

    @abc.abstractmethod
    def step_all(self, action: np.ndarray) -> Outcome:
        """Take one action [B] (or [B, D]), and reset what has ended according to `autoreset`.

        `failed` may name streams whose environment raised and was replaced: they show a first observation.
        """

    def clear(self) -> None:
        """Forget everything about the episodes under way."""
        self.dummy: HostArray = np.zeros(self.num_streams, bool)  # the next step only resets
        # In float64: rounding would add up over the many thousands of rewards of a long game.
        self.total: HostArray = np.zeros(self.num_streams, np.float64)
        self.length: HostArray = np.zeros(self.num_streams, np.int32)

    def start_each(self, seeds: np.ndarray) -> Timestep:
        self.clear()
        zeros: HostArray = np.zeros(self.num_streams, np.float32)
        first: HostArray = np.full(self.num_streams, Level.LIFE, np.int8)
        return Timestep(
            observation=self.reset_all(seeds),
            first=first,
            reward=zeros,
            discount=zeros + 1,
            valid=zeros == 0,
            episode=Episode(ended=zeros > 0, total=zeros.copy(), length=zeros.astype(np.int32)),
        )

    def step_each(self, action: np.ndarray) -> Timestep:
        self.failed = {}
        observation, reward, terminated, truncated, lost = self.step_all(action)
        dummy, ended = self.dummy, terminated | truncated
        if self.autoreset == "same_step":
            # Where both flags are set the termination counts, and no last observation is needed.
            first, valid = ended, terminated | ~truncated
        else:
            # `when_needed` postpones the reset only after a truncation: no rule needs what a terminated episode showed last.
            self.dummy = ended if self.autoreset == "next_step" else truncated & ~terminated
            first, valid = dummy | (ended & ~self.dummy), ~dummy
        worthless = terminated
        if lost is not None:
            # To the learner a lost life ends an episode; statistics still count whole games. Where the game itself ended, `first`
            # comes with its reset.
            first, worthless = first | (lost & ~ended), terminated | lost
        discount: HostArray = np.where(worthless, 0, 1).astype(np.float32)
        # `dummy` is the mark of this step; `self.dummy` may by now be that of the next one.
        self.total = self.total + reward
        self.length = self.length + ~dummy
        episode = Episode(ended, self.total.astype(np.float32), self.length)
        over = ended
        if self.failed:
            anew = np.isin(np.arange(self.num_streams), list(self.failed))
            # A step that terminated did happen: then it was the reset after it that raised, and it can be learned from.
            over, first, valid = ended | anew, first | anew, valid & ~(anew & ~terminated)
        # New arrays, not changes in place: the timestep still holds the old `self.length`.
        self.total = np.where(over, 0, self.total)
        self.length = np.where(over, 0, self.length)
        paid: HostArray = np.asarray(reward, np.float32)
        return Timestep(observation, first.astype(np.int8), paid, discount, valid, episode)


class Copy(Protocol):
    """One environment, stepped by us."""

    def reset(self, seed: int | None) -> PyTree:
        """Start an episode; a seed restarts the whole sequence of episodes, None continues it."""

    def step(self, action: Any) -> tuple[Any, ...]:
        """Observation, reward, terminated, truncated; further values are ignored. The action is the environment's own: a number
        or an array."""

    def close(self) -> None:
        """Release it."""


class MadeOfCopies(Protocol):
    """What `CopiedStreams` need from their environment."""

    @property
    def num_actions(self) -> int: ...

    @property
    def action_dimensions(self) -> int: ...

    @property
    def real_dimensions(self) -> int: ...

    @property
    def observation(self) -> PyTree: ...

    @property
    def make_one(self) -> Callable[[], Copy]: ...

    def native_action(self, action: np.ndarray) -> np.ndarray:
        """The environment's own actions."""

    def stacked(self, observations: list[PyTree]) -> PyTree:
        """One observation per stream, batched: an array [B, ...] or a dictionary of arrays."""


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: a function has no useful hash
class CopiedEnvironment(ByTable, HostEnvironment):  # type: ignore[override]
    """An environment of which every stream is a copy of its own, stepped one after the other."""

    one_copy_per_stream = True
    name: str
    actions: Actions  # from the agent's choices to the environment's actions
    observation: Any
    make_one: Callable[[], Copy]

    def open(self, num_streams: int) -> CopiedStreams:
        return CopiedStreams(self, num_streams)

    def stacked(self, observations: list[PyTree]) -> PyTree:
        return jax.tree.map(lambda spec, *parts: np.stack(parts).astype(spec.dtype), self.observation, *observations)


class CopiedStreams(ResettingStreams):
    """Streams of single copies, which we reset ourselves, so that no step is lost: `when_needed`."""

    autoreset: Autoreset = "when_needed"

    def __init__(self, environment: MadeOfCopies, num_streams: int):
        super().__init__(num_streams, environment.num_actions, environment.action_dimensions, environment.real_dimensions)
        self.environment = environment
        self.copies: list[Copy] = []
        for stream in range(num_streams):
            limit.place.value = stream
            self.copies.append(environment.make_one())

    def reset_all(self, seeds: np.ndarray) -> PyTree:
        self.seeds, self.failed, self.replaced = seeds, {}, [0] * self.num_streams
        return self._stacked([self._reset_one(stream, int(seed)) for stream, seed in enumerate(seeds)])

    def step_all(self, action: np.ndarray) -> Outcome:
        shown, rewards, terminations, truncations = [], [], [], []
        own, dummy, place = self.environment.native_action(action), self.dummy.tolist(), limit.place
        for stream, one in enumerate(own.tolist() if own.ndim == 1 else own):  # speed matters here: every step waits for this loop
            place.value = stream
            reward, terminated, truncated = 0.0, False, False
            if dummy[stream]:
                observation = self._reset_one(stream)
            else:
                try:
                    observation, reward, terminated, truncated, *_ = self.copies[stream].step(one)
                except BaseException as error:
                    observation = self._replace(stream, error)
                if terminated:
                    observation = self._reset_one(stream)
            shown.append(observation)
            rewards.append(reward)
            terminations.append(terminated)
            truncations.append(truncated)
        ended = np.array(terminations, bool)
        return Outcome(self._stacked(shown), np.array(rewards, np.float64), ended, np.array(truncations, bool) & ~ended)

    def _reset_one(self, stream: int, seed: int | None = None) -> PyTree:
        limit.place.value = stream
        try:
            return self.copies[stream].reset(seed)
        except BaseException as error:
            return self._replace(stream, error)

    def _stacked(self, observations: list[PyTree]) -> PyTree:
        try:
            return self.environment.stacked(observations)
        except Exception as error:
            raise EnvironmentFailed(shown_instead(self.environment, observations, error)) from error

    def _replace(self, stream: int, error: BaseException) -> PyTree:
        """The first observation of a new copy, in the place of one that raised."""
        if not is_an_environments(error):
            raise error
        self.failed = {**self.failed, stream: said(error)}
        self.replaced[stream] += 1  # counted per stream, so that a stream's seeds depend on no other stream or process
        # A copy that raised may fail to close as well.
        quietly(self.copies[stream].close)
        self.copies[stream] = self.environment.make_one()
        # Another seed: the old one might lead to the same error again.
        seed = np.random.SeedSequence([int(self.seeds[stream]), self.replaced[stream]]).generate_state(1)[0]
        return self.copies[stream].reset(int(seed))

    def close_all(self) -> None:
        for stream, copy in enumerate(self.copies):
            limit.place.value = stream
            quietly(copy.close)  # the others are to be closed as well
