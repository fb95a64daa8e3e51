"""Gymnasium environments as `HostEnvironment`s: they step on the CPU, outside of JAX, and fill numpy timesteps.

In this process the copies are stepped and reset by our own loop, which loses no step after a termination and takes less time than
Gymnasium's vector environment. In worker processes that vector environment does it, and resets in one of two ways;
`streams.Streams` says how.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, Literal

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import Actions, ByTable
from rulax.envs.adapters.streams import Autoreset, CopiedStreams, Outcome, Streams
from rulax.envs.adapters.surviving import FAILED, Surviving
from rulax.envs.base import HostEnvironment
from rulax.types import PyTree

AUTORESET_NAMES = {"next_step": "NextStep", "same_step": "SameStep"}  # ours, and the value of gymnasium's AutoresetMode


def ids() -> list[str]:
    """Every id that Gymnasium registers. `make` refuses many of them, and says why (actions without bounds, a missing package)."""
    return sorted(adapters.load("gymnasium", "gymnasium").registry)


def make(
    id: str,
    *,
    autoreset: Literal["next_step", "same_step"] | None = None,
    flatten: bool = False,
    processes: bool = False,
    bins: int | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    **options: Any,
) -> GymnasiumEnvironment:
    """The Gymnasium environment of that id; options go to `gymnasium.make` (`max_episode_steps=...` is its time limit).

    `flatten` turns observations of any kind into one vector; `processes` gives every stream a process of its own, which pays
    only where one step takes longer than sending it (not for CartPole). `autoreset` asks for Gymnasium's own vector environment
    and its way of resetting, which processes have anyway (`next_step` unless given). `bins` is how many evenly spaced numbers
    there are to choose from in each dimension of a continuous action, 11 unless given. `wrappers` are put around every copy, in
    this order.
    """
    gymnasium = adapters.load("gymnasium", "gymnasium")
    if autoreset is not None and autoreset not in AUTORESET_NAMES:
        raise ValueError(f"unknown autoreset {autoreset!r}; known: {', '.join(AUTORESET_NAMES)}")
    worn = (*wrappers, *([gymnasium.wrappers.FlattenObservation] if flatten else []))
    probe = _make_one(id, options, worn)
    try:
        actions = adapters.read_actions("Gymnasium", id, probe.action_space, bins)
        observations = probe.observation_space
    finally:
        probe.close()
    parts = _read_observations(id, observations, "" if flatten else "; flatten=True turns all of it into one vector")
    return GymnasiumEnvironment(
        id=id,
        observation=jax.tree.map(lambda part: part.shown, parts),
        parts=parts,
        actions=actions,
        autoreset=autoreset or ("next_step" if processes else "when_needed"),
        wrappers=worn,
        processes=processes,
        options=options,
    )


@dataclasses.dataclass(frozen=True)
class Part:
    """How one array of an observation is read: images as they are, an index one-hot, several indices as symbols, else numbers."""

    shown: jax.ShapeDtypeStruct
    categories: int = 0  # of a Discrete space
    first: Any = 0  # its first index: Gymnasium's may start at any integer, ours at 0

    def read(self, observation: np.ndarray) -> np.ndarray:
        """A batch of them."""
        if self.categories:
            return adapters.one_hot(observation, self.categories, self.first)
        if np.any(self.first):
            observation = observation - self.first
        return np.asarray(observation, self.shown.dtype)


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: its options may be anything
class GymnasiumEnvironment(ByTable, HostEnvironment):  # type: ignore[override]
    """One Gymnasium environment: how to make it, and what its streams look like."""

    id: str
    observation: PyTree  # an array, or a dictionary of them
    parts: Any  # how each is read
    actions: Actions  # what the agent's choices mean
    autoreset: Autoreset
    wrappers: Sequence[Callable[[Any], Any]]
    processes: bool
    options: dict[str, Any]

    def open(self, num_streams: int) -> Streams:
        if self.autoreset == "when_needed":
            return CopiedStreams(self, num_streams)
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

    def make_one(self) -> GymnasiumCopy:
        return GymnasiumCopy(_make_one(self.id, {"disable_env_checker": True, **self.options}, self.wrappers))

    def stacked(self, observations: list[Any]) -> PyTree:
        if isinstance(self.parts, dict):
            return self.seen({name: np.stack([one[name] for one in observations]) for name in self.parts})
        return self.seen(np.stack(observations))

    def seen(self, observation: Any) -> PyTree:
        if isinstance(self.parts, dict):
            return {name: part.read(observation[name]) for name, part in self.parts.items()}
        return self.parts.read(observation)


class GymnasiumCopy:
    """One environment, as `streams.Copy` wants it."""

    def __init__(self, world: Any):
        self.world, self.step, self.close = world, world.step, world.close

    def reset(self, seed: int | None) -> PyTree:
        return self.world.reset(seed=seed)[0]


class GymnasiumStreams(Streams):
    """Open streams, which Gymnasium's vector environment steps and resets."""

    def __init__(self, environment: GymnasiumEnvironment, vector: Any, num_streams: int):
        super().__init__(num_streams, environment.num_actions, environment.action_dimensions)
        self.environment, self.vector, self.autoreset = environment, vector, environment.autoreset

    def reset_all(self, seeds: np.ndarray) -> PyTree:
        observation, info = self.vector.reset(seed=[int(one) for one in seeds])
        self._note_failures(info)
        return self.environment.seen(observation)

    def step_all(self, action: np.ndarray) -> Outcome:
        try:
            observation, reward, terminated, truncated, info = self.vector.step(self.environment.native(action))
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise RuntimeError(self._who_died()) from error
        self._note_failures(info)
        return Outcome(self.environment.seen(observation), reward, terminated, truncated)

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


def _read_observations(id: str, space: Any, advice: str) -> Any:
    """A `Part`, or a dictionary of them."""
    spaces = adapters.load("gymnasium", "gymnasium").spaces
    if isinstance(space, spaces.Dict):
        return {name: _read_part(id, spaces, part, f" in '{name}'{advice}") for name, part in space.items()}
    return _read_part(id, spaces, space, advice)


def _read_part(id: str, spaces: Any, space: Any, advice: str) -> Part:
    if isinstance(space, spaces.Discrete):
        return Part(jax.ShapeDtypeStruct((int(space.n),), np.float32), int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return Part(jax.ShapeDtypeStruct(space.shape, np.int32), first=space.start)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return Part(jax.ShapeDtypeStruct(space.shape, np.uint8 if space.dtype == np.uint8 else np.float32))
    kind = type(space).__name__
    raise ValueError(f"Gymnasium environment {id!r} has observations of kind {kind}, which no agent reads{advice}")


def _make_one(id: str, options: dict[str, Any], wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    """One copy in its wrappers; what can go wrong in making it is said in one sentence."""
    gymnasium = adapters.load("gymnasium", "gymnasium")
    try:
        world = gymnasium.make(id, **options)
    except gymnasium.error.UnregisteredEnv as error:
        hint = "; an id that another package registers is written 'package:Id-v0'"
        raise adapters.unknown_id("Gymnasium", id, list(gymnasium.registry), hint) from error
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"Gymnasium environment {id!r} cannot be made: {error}") from error
    for wrapper in wrappers:
        world = wrapper(world)
    return world
