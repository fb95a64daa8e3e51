"""Gymnasium environments as `HostEnvironment`s: they step on the CPU, outside of JAX, and fill numpy timesteps.

Gymnasium resets an ended episode in one of two ways, and `valid` makes both correct; `GymnasiumStreams` says how.
"""

from __future__ import annotations

import dataclasses
from multiprocessing.connection import wait
from typing import Any, Literal

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.adapters.surviving import FAILED, Surviving
from rulax.envs.base import Episode, HostEnvironment, HostStreams, Timestep

HostArray = Any  # `Timestep` names the arrays of JAX; a host environment fills it with those of numpy
Autoreset = Literal["next_step", "same_step"]
AUTORESET_NAMES = {"next_step": "NextStep", "same_step": "SameStep"}  # ours, and the value of gymnasium's AutoresetMode


def ids() -> list[str]:
    """Every id that Gymnasium registers. `make` refuses many of them, and says why (continuous actions, a missing package)."""
    return sorted(adapters.load("gymnasium", "gymnasium").registry)


def make(
    id: str, *, autoreset: Autoreset = "next_step", flatten: bool = False, processes: bool = False, **options: Any
) -> GymnasiumEnvironment:
    """The Gymnasium environment of that id; options go to `gymnasium.make` (`max_episode_steps=...` is its time limit).

    `flatten` turns observations of any kind into one vector; `processes` gives every stream a process of its own, which pays
    only where one step takes longer than sending it (not for CartPole).
    """
    gymnasium = adapters.load("gymnasium", "gymnasium")
    if autoreset not in AUTORESET_NAMES:
        raise ValueError(f"unknown autoreset {autoreset!r}; known: {', '.join(AUTORESET_NAMES)}")
    probe = _make_one(id, options)
    try:
        actions = probe.action_space
        observations = gymnasium.spaces.flatten_space(probe.observation_space) if flatten else probe.observation_space
    finally:
        probe.close()
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise adapters.only_discrete("Gymnasium", id, actions)
    if not isinstance(observations, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
        kind, advice = type(observations).__name__, "" if flatten else "; flatten=True turns them into one vector"
        raise ValueError(f"Gymnasium environment {id!r} has observations of kind {kind}, which no agent reads{advice}")
    categories = int(observations.n) if isinstance(observations, gymnasium.spaces.Discrete) else 0
    shape = (categories,) if categories else observations.shape
    return GymnasiumEnvironment(
        id=id,
        num_actions=int(actions.n),
        observation=jax.ShapeDtypeStruct(shape, np.uint8 if observations.dtype == np.uint8 else np.float32),
        categories=categories,
        first_category=int(observations.start) if categories else 0,
        first_action=int(actions.start),
        autoreset=autoreset,
        flatten=flatten,
        processes=processes,
        options=options,
    )


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: its options may be anything
class GymnasiumEnvironment(HostEnvironment):
    """One Gymnasium environment: how to make it, and what its streams look like."""

    id: str
    num_actions: int
    observation: jax.ShapeDtypeStruct
    categories: int  # of a Discrete observation, shown as a one-hot vector; 0 for any other
    first_category: int  # Gymnasium's Discrete may start at any integer, ours at 0
    first_action: int
    autoreset: Autoreset
    flatten: bool
    processes: bool
    options: dict[str, Any]

    def open(self, num_streams: int) -> GymnasiumStreams:
        gymnasium = adapters.load("gymnasium", "gymnasium")
        vector_options = {"autoreset_mode": AUTORESET_NAMES[self.autoreset]}
        if self.processes:
            vector_options["context"] = "spawn"  # JAX runs threads, and a process that is forked beside them may hang
        vector = gymnasium.make_vec(
            self.id,
            num_envs=num_streams,
            # Named, for else Gymnasium may pick a vector implementation of its own, without a choice of autoreset.
            vectorization_mode="async" if self.processes else "sync",
            vector_kwargs=vector_options,
            wrappers=[*([gymnasium.wrappers.FlattenObservation] if self.flatten else []), Surviving],
            **self.options,
        )
        return GymnasiumStreams(self, vector, num_streams)

    def read(self, observation: np.ndarray) -> np.ndarray:
        """What an agent reads of a batch of observations: uint8 images as they are, indices one-hot, all else float32."""
        if self.categories:
            return np.eye(self.categories, dtype=np.float32)[observation - self.first_category]
        return np.asarray(observation, self.observation.dtype)


class GymnasiumStreams(HostStreams):
    """Open streams. Which steps teach something depends on when Gymnasium resets:

    * `next_step`: a step that ends an episode shows the true last observation. The step after it is a dummy: Gymnasium ignores
      the action and resets (reward 0, `valid` False, `first` True).
    * `same_step`: a step that ends an episode shows the first observation of the next one at once. For a terminated episode
      that is all that is needed. A truncated one should bootstrap from its last observation, which the stream does not show,
      so this step teaches nothing: `valid` False. Its reward is real and counts in the episode's statistics.
    """

    def __init__(self, environment: GymnasiumEnvironment, vector: Any, num_streams: int):
        self.environment = environment
        self.vector = vector
        self.num_streams = num_streams
        self.clear()

    def clear(self) -> None:
        """Forget everything about the episodes under way."""
        self.dummy: HostArray = np.zeros(self.num_streams, bool)  # the next step only resets
        self.total: HostArray = np.zeros(self.num_streams, np.float64)
        self.length: HostArray = np.zeros(self.num_streams, np.int32)

    def start(self, seed: int) -> Timestep:
        self._check_open()
        self.clear()
        # Gymnasium would take seed, seed + 1, ...: then neighbouring seeds would share all of their streams but one.
        seeds = np.random.SeedSequence(seed).generate_state(self.num_streams)
        observation, info = self.vector.reset(seed=[int(one) for one in seeds])
        self._note_failures(info)
        zeros: HostArray = np.zeros(self.num_streams, np.float32)
        return Timestep(
            observation=self.environment.read(observation),
            first=zeros == 0,
            reward=zeros,
            discount=zeros + 1,
            valid=zeros == 0,
            episode=Episode(ended=zeros > 0, total=zeros.copy(), length=zeros.astype(np.int32)),
        )

    def step(self, action: np.ndarray) -> Timestep:
        self._check_open()
        actions = np.asarray(action, np.int64) + self.environment.first_action
        try:
            observation, reward, terminated, truncated, info = self.vector.step(actions)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise RuntimeError(self._who_died()) from error
        failed = self._note_failures(info)
        dummy, ended = self.dummy, terminated | truncated
        if self.environment.autoreset == "next_step":
            first, valid, self.dummy = dummy, ~dummy, ended
        else:
            first, valid = ended, terminated | ~truncated
        first, valid = first | failed, valid & ~failed
        discount: HostArray = np.where(terminated, 0, 1).astype(np.float32)
        self.total = self.total + reward
        self.length = self.length + ~dummy
        timestep = Timestep(
            observation=self.environment.read(observation),
            first=first,
            reward=reward.astype(np.float32),
            discount=discount,
            valid=valid,
            episode=Episode(ended, self.total.astype(np.float32), self.length),
        )
        self.total = np.where(ended | failed, 0, self.total)
        self.length = np.where(ended | failed, 0, self.length)
        return timestep

    def close(self) -> None:
        self.vector.close()

    def abandon(self) -> None:
        if not self.environment.processes:
            return self.close()
        self.vector.closed = True  # its own `close` would wait for an answer of the dead
        for process, pipe in zip(self.vector.processes, self.vector.parent_pipes, strict=True):
            process.kill()
            process.join()
            if pipe is not None:
                pipe.close()

    def _note_failures(self, info: dict[str, Any]) -> HostArray:
        """Which environments raised and were made anew, [B]."""
        texts = info.get(FAILED, ())
        self.failed = {stream: text for stream, text in enumerate(texts) if text is not None}
        failed: HostArray = np.zeros(self.num_streams, bool)
        failed[list(self.failed)] = True
        return failed

    def _who_died(self) -> str:
        ready = wait([process.sentinel for process in self.vector.processes], timeout=1)  # a pipe may end before its process
        for stream, process in enumerate(self.vector.processes):
            if process.sentinel in ready:
                process.join(1)
                return f"the process of stream {stream} died with exit code {process.exitcode}"
        return "a worker process closed its pipe"

    def _check_open(self) -> None:
        if self.vector.closed:  # Gymnasium itself would step some closed environments without a word
            raise ValueError("these streams are closed; open new ones")


def _make_one(id: str, options: dict[str, Any]) -> Any:
    """One copy, to see what it is like; what can go wrong in making it goes wrong here, and is said in one sentence."""
    gymnasium = adapters.load("gymnasium", "gymnasium")
    try:
        return gymnasium.make(id, **options)
    except gymnasium.error.UnregisteredEnv as error:
        hint = "; an id that another package registers is written 'package:Id-v0'"
        raise adapters.unknown_id("Gymnasium", id, list(gymnasium.registry), hint) from error
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"Gymnasium environment {id!r} cannot be made: {error}") from error
