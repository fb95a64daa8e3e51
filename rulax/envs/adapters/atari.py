"""Atari games through ale-py's own vector environment, which skips, pools, shrinks and stacks frames in C++ (host).

The games are in the wheel. Preprocessing is that of the papers: every action for 4 frames, the maximum of the last two, 84 x 84 in
grey, 4 of those as channels, up to 30 no-ops at the start. `docs/adapters/atari.md` says what ends an episode.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.adapters.streams import Outcome, ResettingStreams
from rulax.envs.base import HostEnvironment
from rulax.types import PyTree

DEFAULTS = {
    "sticky": 0.0,  # chance that a frame repeats the action before; 0.25 in Machado et al. (2018)
    "actions": "minimal",  # or 'full': all 18 in every game
    "life_loss": False,  # a lost life is worth nothing from there on (discount 0); the game goes on, and its score is the game's
    "clip": False,  # rewards to their signs; off, since many rules have their own way with large ones
    "noops": 30,  # at the start of a game, up to that many frames pass without an action
    "fire": False,  # press FIRE at the start of a game that has the button
    "frames": 108_000,  # time limit, 30 minutes: a truncation
    "skip": 4,  # frames per action
    "size": 84,  # height and width of what the agent sees
    "threads": 0,  # of ale-py; 0: as many as there are cores
}


def ids() -> list[str]:
    """Every game in the wheel, written as in Gymnasium: MsPacman."""
    return [_camel(rom) for rom in adapters.load("ale_py.roms", "atari").get_all_rom_ids()]


def make(id: str, **options: Any) -> AtariEnvironment:
    """The game of that name, `Pong` or `pong`; the options are those of `DEFAULTS`."""
    games = {name.casefold(): rom for rom in adapters.load("ale_py.roms", "atari").get_all_rom_ids() for name in (rom, _camel(rom))}
    if id.casefold() not in games:
        raise adapters.unknown_id("Atari", id, ids())
    read = adapters.read_options(f"atari/{id}", DEFAULTS, options)
    if read["actions"] not in ("minimal", "full"):
        raise ValueError(f"'atari/{id}': actions must be minimal or full, not {read['actions']!r}")
    if not 0 <= read["sticky"] < 1:
        raise ValueError(f"'atari/{id}': sticky is a probability below 1, not {read['sticky']}")
    adapters.check_least(f"atari/{id}", read, noops=0, frames=1, skip=1, size=1, threads=0)
    probe = _open(games[id.casefold()], 1, read)
    num_actions = int(probe.single_action_space.n)
    probe.close()
    shape = read["size"], read["size"], 4
    return AtariEnvironment(games[id.casefold()], num_actions, jax.ShapeDtypeStruct(shape, np.uint8), read)


@dataclasses.dataclass(frozen=True, eq=False)
class AtariEnvironment(HostEnvironment):
    """One game: how to open it."""

    rom: str
    num_actions: int
    observation: jax.ShapeDtypeStruct
    options: dict[str, Any]
    frames = 4  # after a reset the older ones are black

    def open(self, num_streams: int) -> AtariStreams:
        return AtariStreams(self, num_streams)

    def preprocess(self, observation: PyTree) -> PyTree:
        return adapters.channels_last(observation, self.observation.shape)  # ale-py and Gymnasium's wrappers show the stack first


class AtariStreams(ResettingStreams):
    """Open games. ale-py resets a finished one at the next step."""

    def __init__(self, environment: AtariEnvironment, num_streams: int):
        super().__init__(num_streams, environment.num_actions)
        self.vector = _open(environment.rom, num_streams, environment.options)
        self.life_loss = environment.options["life_loss"]

    def reset_all(self, seeds: np.ndarray) -> np.ndarray:
        observation, info = self.vector.reset(seed=seeds.astype(np.int64) % 2**31)
        self.lives = info["lives"].copy()
        return _channels_last(observation)

    def step_all(self, action: np.ndarray) -> Outcome:
        observation, reward, terminated, truncated, info = self.vector.step(action)
        lost = (info["lives"] < self.lives) & ~self.dummy if self.life_loss else None
        self.lives = info["lives"].copy()
        return Outcome(_channels_last(observation), reward, terminated, truncated & ~terminated, lost)

    def close_all(self) -> None:
        self.vector.close()


def _open(rom: str, num_streams: int, options: dict[str, Any]) -> Any:
    return adapters.load("ale_py.vector_env", "atari").AtariVectorEnv(
        rom,
        num_streams,
        num_threads=options["threads"],
        max_num_frames_per_episode=options["frames"],
        repeat_action_probability=options["sticky"],
        full_action_space=options["actions"] == "full",
        autoreset_mode="NextStep",
        frameskip=options["skip"],
        img_height=options["size"],
        img_width=options["size"],
        noop_max=options["noops"],
        reward_clipping=options["clip"],
        use_fire_reset=options["fire"],
    )


def _channels_last(frames: np.ndarray) -> np.ndarray:
    """From [B, 4, H, W] to [B, H, W, 4], which is how convolutions read images here; the newest frame is the last channel."""
    return np.ascontiguousarray(np.moveaxis(frames, 1, -1))


def _camel(rom: str) -> str:
    return "".join(part.capitalize() for part in rom.split("_"))
