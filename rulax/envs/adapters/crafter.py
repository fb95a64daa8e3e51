"""Crafter (Hafner, 2021) as a host environment: pixels 64 x 64, 17 actions, one copy per stream in plain Python."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import one_of
from rulax.envs.adapters.streams import CopiedEnvironment
from rulax.envs.base import WrappedHost

DEFAULTS = {"length": 10_000, "area": (64, 64), "view": (9, 9), "size": (64, 64)}  # Crafter's own; `length` is its time limit


def ids() -> list[str]:
    """With Crafter's reward (achievements and health), or without any."""
    return ["reward", "noreward"]


def make(id: str, **options: Any) -> CopiedEnvironment:
    """`reward` or `noreward`; the options are those of `crafter.Env`."""
    crafter = adapters.load("crafter", "crafter")
    if id not in ids():
        raise adapters.unknown_id("Crafter", id, ids(), ": it has reward and noreward")
    read = adapters.read_options(f"crafter/{id}", DEFAULTS, options)
    _check(f"crafter/{id}", read, len(adapters.load("crafter.constants", "crafter").items))
    arguments = {"reward": id == "reward", **read}
    probe = crafter.Env(**arguments)
    shape = tuple(int(each) for each in probe.observation_space.shape)
    return CopiedEnvironment(
        f"crafter/{id}", one_of(int(probe.action_space.n)), jax.ShapeDtypeStruct(shape, np.uint8), lambda: CrafterCopy(arguments)
    )


def recorded(environment: Any, episodes: list[list[dict[str, int]]]) -> Any:
    """The same environment, in which every copy adds a list of its own to `episodes` and notes there what its episodes unlocked."""
    if isinstance(environment, WrappedHost):
        return dataclasses.replace(environment, environment=recorded(environment.environment, episodes))

    def make_one() -> CrafterCopy:
        copy = environment.make_one()
        copy.ended = []
        episodes.append(copy.ended)
        return copy

    return dataclasses.replace(environment, make_one=make_one)


def _check(label: str, options: dict[str, Any], items: int) -> None:
    """Refuse sizes with which Crafter would fail while drawing."""
    for name in ("area", "view", "size"):
        if len(options[name]) != 2 or min(options[name]) < 1:
            raise ValueError(f"'{label}': {name} must be two whole numbers of at least 1, for example 64,64, not {options[name]}")
    if options["length"] < 0:
        raise ValueError(f"'{label}': length must not be negative, not {options['length']} (0 means no limit)")
    (wide, high), (width, height) = options["view"], options["size"]
    rows = -(-items // wide)  # at the bottom of the view, for what the player holds
    if high <= rows:
        raise ValueError(f"'{label}': a view {wide} wide must be more than {rows} high, or it shows nothing but the inventory")
    if width < 2 * wide or height < 2 * high:
        raise ValueError(f"'{label}': size must be at least twice the view of {wide},{high}, not {width},{height}")


class CrafterCopy:
    """One Crafter. Its `done` does not say why; `info["discount"]` is 0 for a death, and 1 where time ran out."""

    ended: list[dict[str, int]] | None = None  # what each episode has unlocked and how often, where somebody asks

    def __init__(self, arguments: dict[str, Any]):
        self.arguments = arguments

    def reset(self, seed: int | None) -> np.ndarray:
        if seed is not None:
            self.environment = adapters.load("crafter", "crafter").Env(seed=seed, **self.arguments)
        return self.environment.reset()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        observation, reward, done, info = self.environment.step(action)
        dead = info["discount"] == 0
        if done and self.ended is not None:
            self.ended.append(dict(info["achievements"]))
        return observation, float(reward), dead, bool(done) and not dead

    def close(self) -> None:
        """Nothing is held."""
