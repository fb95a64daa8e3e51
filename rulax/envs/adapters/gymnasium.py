"""Gymnasium environments as `HostEnvironment`s: they step on the CPU, outside of JAX, and fill numpy timesteps.

Gymnasium resets an ended episode in one of two ways, and `valid` makes both correct; `streams.Streams` says how.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import Actions
from rulax.envs.adapters.streams import Autoreset, Outcome, Streams
from rulax.envs.adapters.surviving import FAILED, Surviving
from rulax.envs.base import HostEnvironment

AUTORESET_NAMES = {"next_step": "NextStep", "same_step": "SameStep"}  # ours, and the value of gymnasium's AutoresetMode


def ids() -> list[str]:
    """Every id that Gymnasium registers. `make` refuses many of them, and says why (actions without bounds, a missing package)."""
    return sorted(adapters.load("gymnasium", "gymnasium").registry)


def make(
    id: str,
    *,
    autoreset: Autoreset = "next_step",
    flatten: bool = False,
    processes: bool = False,
    bins: int | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    **options: Any,
) -> GymnasiumEnvironment:
    """The Gymnasium environment of that id; options go to `gymnasium.make` (`max_episode_steps=...` is its time limit).

    `flatten` turns observations of any kind into one vector; `processes` gives every stream a process of its own, which pays
    only where one step takes longer than sending it (not for CartPole). `bins` is how many evenly spaced numbers there are to
    choose from in each dimension of a continuous action, 11 unless given. `wrappers` are put around every copy, in this order.
    """
    gymnasium = adapters.load("gymnasium", "gymnasium")
    if autoreset not in AUTORESET_NAMES:
        raise ValueError(f"unknown autoreset {autoreset!r}; known: {', '.join(AUTORESET_NAMES)}")
    worn = (*wrappers, *([gymnasium.wrappers.FlattenObservation] if flatten else []))
    probe = _make_one(id, options)
    try:
        for wrapper in worn:
            probe = wrapper(probe)
        actions = adapters.read_actions("Gymnasium", id, probe.action_space, bins)
        observations = probe.observation_space
    finally:
        probe.close()
    if not isinstance(observations, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
        kind, advice = type(observations).__name__, "" if flatten else "; flatten=True turns them into one vector"
        raise ValueError(f"Gymnasium environment {id!r} has observations of kind {kind}, which no agent reads{advice}")
    categories = int(observations.n) if isinstance(observations, gymnasium.spaces.Discrete) else 0
    shape = (categories,) if categories else observations.shape
    return GymnasiumEnvironment(
        id=id,
        observation=jax.ShapeDtypeStruct(shape, np.uint8 if observations.dtype == np.uint8 else np.float32),
        categories=categories,
        first_category=int(observations.start) if categories else 0,
        actions=actions,
        autoreset=autoreset,
        wrappers=worn,
        processes=processes,
        options=options,
    )


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: its options may be anything
class GymnasiumEnvironment(HostEnvironment):
    """One Gymnasium environment: how to make it, and what its streams look like."""

    id: str
    observation: jax.ShapeDtypeStruct
    categories: int  # of a Discrete observation, shown as a one-hot vector; 0 for any other
    first_category: int  # Gymnasium's Discrete may start at any integer, ours at 0
    actions: Actions  # what the agent's choices mean
    autoreset: Autoreset
    wrappers: Sequence[Callable[[Any], Any]]
    processes: bool
    options: dict[str, Any]

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.actions.number

    @property
    def action_dimensions(self) -> int:  # type: ignore[override]
        return self.actions.dimensions

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
            wrappers=[*self.wrappers, Surviving],
            **self.options,
        )
        return GymnasiumStreams(self, vector, num_streams)

    def native(self, action: np.ndarray) -> np.ndarray:
        return self.actions.native(action)

    def read(self, observation: np.ndarray) -> np.ndarray:
        """What an agent reads of a batch of observations: uint8 images as they are, indices one-hot, all else float32."""
        if self.categories:
            return np.eye(self.categories, dtype=np.float32)[observation - self.first_category]
        return np.asarray(observation, self.observation.dtype)


class GymnasiumStreams(Streams):
    """Open streams, which Gymnasium's vector environment steps and resets."""

    def __init__(self, environment: GymnasiumEnvironment, vector: Any, num_streams: int):
        super().__init__(num_streams, environment.num_actions, environment.action_dimensions)
        self.environment, self.vector, self.autoreset = environment, vector, environment.autoreset

    def reset_all(self, seeds: np.ndarray) -> np.ndarray:
        observation, info = self.vector.reset(seed=[int(one) for one in seeds])
        self._note_failures(info)
        return self.environment.read(observation)

    def step_all(self, action: np.ndarray) -> Outcome:
        try:
            observation, reward, terminated, truncated, info = self.vector.step(self.environment.native(action))
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise RuntimeError(self._who_died()) from error
        self._note_failures(info)
        return Outcome(self.environment.read(observation), reward, terminated, truncated)

    def close_all(self) -> None:
        self.vector.close()

    def abandon(self) -> None:
        if not self.environment.processes:
            return self.close()
        self.closed = self.vector.closed = True  # its own `close` would wait for an answer of the dead
        for process, pipe in zip(self.vector.processes, self.vector.parent_pipes, strict=True):
            process.kill()
            process.join()
            if pipe is not None:
                pipe.close()

    def _note_failures(self, info: dict[str, Any]) -> None:
        self.failed = {stream: text for stream, text in enumerate(info.get(FAILED, ())) if text is not None}

    def _who_died(self) -> str:
        ready = wait([process.sentinel for process in self.vector.processes], timeout=1)  # a pipe may end before its process
        for stream, process in enumerate(self.vector.processes):
            if process.sentinel in ready:
                process.join(1)
                return f"the process of stream {stream} died with exit code {process.exitcode}"
        return "a worker process closed its pipe"


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
