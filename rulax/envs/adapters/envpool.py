"""EnvPool's environments as host environments: Atari, ProcGen, Sokoban on levels of Boxoban and others, stepped in C++ threads.

EnvPool takes its seeds when a pool is made, so every `start` makes a new one. It resets an ended episode at the next step.
"""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import Actions, ByTable
from rulax.envs.adapters.streams import Outcome, ResettingStreams
from rulax.envs.base import HostEnvironment
from rulax.types import PyTree

QT = "libqt5gui5 libqt5core5a"
OWN = ("num_envs", "batch_size", "seed", "env_seed", "max_num_players", "base_path", "gym_reset_return_info")  # ours to set
MODES = {0: "Easy", 1: "Hard", 2: "Extreme", 10: "Memory", 20: "Exploration"}  # ProcGen's `distribution_mode`, and ids
SOKOBAN_CODES = (5, 5)  # agent and boxes, walls and targets: codes that become planes


def ids() -> list[str]:
    """Every id that EnvPool has. `make` refuses many of them, and says why."""
    return sorted(adapters.load("envpool", "envpool").list_all_envs())


def make(id: str, *, bins: int | None = None, **options: Any) -> EnvPoolEnvironment:
    """The environment of that id; options are EnvPool's (`max_episode_steps` is its time limit, `num_threads` its threads).

    `bins` is how many evenly spaced numbers there are to choose from in each dimension of a continuous action, 11 unless given.
    """
    if id not in ids():
        raise adapters.unknown_id("EnvPool", id, ids())
    read = _read_options(id, options)
    # Spaces depend on the options, so they are read off a pool that is made with them.
    pool = _open(id, 1, [0], read)
    space, shown = pool.action_space, pool.observation_space
    pool.close()
    actions = adapters.read_actions("EnvPool", id, space, bins)
    planes = type(shown).__name__ == "Dict" and set(shown.spaces) == {"grid", "step_count"} and shown["grid"].shape == (10, 10, 2)
    if type(shown).__name__ != "Box" and not planes:
        raise ValueError(f"EnvPool environment {id!r} has observations of kind {type(shown).__name__}, which are not supported")
    box = shown["grid"] if planes else shown
    channels_first = not planes and box.dtype == np.uint8 and len(box.shape) == 3 and box.shape[0] < min(box.shape[1:])
    shape = (*box.shape[1:], box.shape[0]) if channels_first else (*box.shape[:-1], sum(SOKOBAN_CODES)) if planes else box.shape
    dtype = np.uint8 if box.dtype == np.uint8 and not planes else np.float32
    # EnvPool's C++ takes whole numbers as int32 only, and real ones as its space says.
    kind = np.dtype(np.int32 if np.issubdtype(actions.values.dtype, np.integer) else space.dtype)
    frames = read.get("stack_num", _defaults(id).get("stack_num", 1)) if channels_first else 1
    return EnvPoolEnvironment(id, actions, kind, jax.ShapeDtypeStruct(shape, dtype), channels_first, planes, read, frames)


@dataclasses.dataclass(frozen=True, eq=False)
class EnvPoolEnvironment(ByTable, HostEnvironment):  # type: ignore[override]
    """One EnvPool environment: how to open it, and how its observations are read."""

    id: str
    actions: Actions  # from the agent's choices to the environment's actions
    action_dtype: np.dtype  # what EnvPool wants them in
    observation: jax.ShapeDtypeStruct
    channels_first: bool
    planes: bool
    options: dict[str, Any]
    frames: int = 1  # those that EnvPool stacks itself, as in Atari

    def open(self, num_streams: int) -> EnvPoolStreams:
        return EnvPoolStreams(self, num_streams)

    def preprocess(self, observation: PyTree) -> PyTree:
        if self.planes:
            return self.read(observation) if isinstance(observation, Mapping) else observation
        return adapters.channels_last(observation, self.observation.shape) if self.channels_first else observation

    def read(self, observation: Any) -> np.ndarray:
        """What an agent reads: images with channels last, Sokoban's codes as planes, all else float32."""
        if self.planes:
            return adapters.planes(observation["grid"], SOKOBAN_CODES, np)
        if self.channels_first:
            return np.ascontiguousarray(np.moveaxis(observation, 1, -1))
        return np.array(observation, self.observation.dtype)


class EnvPoolStreams(ResettingStreams):
    """An open pool."""

    def __init__(self, environment: EnvPoolEnvironment, num_streams: int):
        super().__init__(num_streams, environment.num_actions, environment.action_dimensions, environment.real_dimensions)
        self.environment = environment
        self.pool: Any = None

    def reset_all(self, seeds: np.ndarray) -> PyTree:
        self.close_all()
        self.pool = _open(self.environment.id, self.num_streams, seeds, self.environment.options)
        return self.environment.read(self.pool.reset()[0])

    def step_all(self, action: np.ndarray) -> Outcome:
        if self.pool is None:
            raise ValueError("these streams have not been started")
        own = self.environment.native_action(action).astype(self.environment.action_dtype)
        observation, reward, terminated, truncated, _ = self.pool.step(own)
        # Termination wins, as everywhere: where no reward follows there is nothing to bootstrap from. EnvPool 1.2 never sets both
        # (an episode that ends at the very limit it reports as truncated only); later versions do.
        return Outcome(self.environment.read(observation), reward, terminated.copy(), truncated & ~terminated)

    def close_all(self) -> None:
        if self.pool is not None:
            self.pool.close()
            self.pool = None


def _defaults(id: str) -> dict[str, Any]:
    spec = _say_what_is_missing(lambda: adapters.load("envpool", "envpool").make_spec(id))
    defaults = {name: value for name, value in spec.config._asdict().items() if name not in OWN}
    if "distribution_mode" in defaults:
        defaults.pop("env_name")  # the id says it
        defaults.pop("max_episode_steps")  # EnvPool takes it for ProcGen too, and ignores it: each game has its own limit
    return defaults


def _read_options(id: str, options: dict[str, Any]) -> dict[str, Any]:
    defaults = _defaults(id)
    read = adapters.read_options(f"envpool/{id}", defaults, options)
    least = {"max_episode_steps": 1, "num_levels": 0, "start_level": 0}
    # Of the options given: EnvPool's own defaults may be -1, for no limit, and not every game has all of them.
    adapters.check_least(f"envpool/{id}", read, **{name: bound for name, bound in least.items() if name in options})
    if "distribution_mode" in options:
        _check_mode(id, read["distribution_mode"])
    return {name: read[name] for name in options if read[name] != defaults[name]}


def _check_mode(id: str, mode: int) -> None:
    """ProcGen makes levels of some modes only, each of which has an id; in another it looks for one for ever."""
    game = next(id.removesuffix(f"{name}-v0") for name in MODES.values() if id.endswith(f"{name}-v0"))
    has = {number: name for number, name in MODES.items() if f"{game}{name}-v0" in ids()}
    if mode not in has:
        known = ", ".join(f"{number} ({name.lower()})" for number, name in has.items())
        raise ValueError(f"'envpool/{id}': distribution_mode must be one of {known}, not {mode}")


def _open(id: str, num_streams: int, seeds: Any, options: dict[str, Any]) -> Any:
    envpool = adapters.load("envpool", "envpool")
    if id.endswith("Sokoban-v0"):
        options = {**options, "base_path": _boxoban(envpool)}
    # From uint32 to what a signed 32-bit seed can hold.
    each = [int(seed) % 2**31 for seed in seeds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's, about the precision of EnvPool's bounds
        return _say_what_is_missing(lambda: envpool.make(id, env_type="gymnasium", num_envs=num_streams, seed=each, **options))


def _boxoban(envpool: Any) -> str:
    """Where the wheel has Boxoban's levels. EnvPool 1.2 looks elsewhere, and then plays one toy level for ever without a word."""
    folder = pathlib.Path(envpool.__file__).parent
    if not (folder / "jumanji" / "assets" / "boxoban").is_dir():
        raise ValueError("this version of EnvPool comes without Boxoban's levels: pip install 'envpool==1.2.5'")
    return str(folder)


def _say_what_is_missing(call: Any) -> Any:
    try:
        return call()
    except ImportError as error:
        if "Qt5" in str(error):
            raise ValueError(
                f"ProcGen in this version of EnvPool needs the system's Qt 5 ({error}): apt-get install {QT}"
            ) from error
        raise ValueError(f"EnvPool cannot be imported ({error}): pip install 'rulax[envpool]'") from error
