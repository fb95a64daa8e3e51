"""MiniGrid and BabyAI through the Gymnasium adapter: what the agent sees, without the text of the mission."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from rulax.envs import adapters
from rulax.envs.adapters import gymnasium as gymnasium_adapter
from rulax.types import PyTree

CODES = (11, 6, 3)  # kinds of object, colours, states (open, closed, locked): MiniGrid's own


def ids() -> list[str]:
    """Every id that MiniGrid registers."""
    minigrid, prefixes = adapters.load("minigrid", "minigrid"), ("MiniGrid-", "BabyAI-")
    if not any(id.startswith(prefixes) for id in gymnasium_adapter.ids()):  # else Gymnasium has loaded them as a plugin
        minigrid.register_minigrid_envs()
    return [id for id in gymnasium_adapter.ids() if id.startswith(prefixes)]


def make(id: str, *, view: str = "planes", **options: Any) -> gymnasium_adapter.GymnasiumEnvironment:
    """The environment of that id. `view` is `planes` (float32 [7, 7, 20], one per code) or `codes` (uint8 [7, 7, 3]).

    All other options go to the Gymnasium adapter and to MiniGrid (`max_steps` is its time limit).
    """
    wrappers = adapters.load("minigrid.wrappers", "minigrid")
    if id not in ids():
        raise adapters.unknown_id("MiniGrid", id, ids())
    if view not in ("planes", "codes"):
        raise ValueError(f"'minigrid/{id}': view must be planes or codes, not {view!r}")
    limit = options.get("max_steps", 1)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"'minigrid/{id}': max_steps must be a whole number of at least 1, not {limit!r}")
    worn = (wrappers.ImgObsWrapper, *([_show_planes] if view == "planes" else []))
    environment = gymnasium_adapter.make(id, wrappers=worn, **options)
    return MiniGridEnvironment(**{field.name: getattr(environment, field.name) for field in dataclasses.fields(environment)})


class MiniGridEnvironment(gymnasium_adapter.GymnasiumEnvironment):
    """An environment of MiniGrid; `preprocess` reads its dictionary, or the codes in it."""

    def preprocess(self, observation: Any) -> PyTree:
        shown = np.asarray(observation["image"] if isinstance(observation, Mapping) else observation)
        as_planes = (self.own_space or self.observation).shape[-1] == sum(CODES)
        return super().preprocess(_planes(shown) if as_planes and shown.shape[-1] == len(CODES) else shown)


def _show_planes(env: Any) -> Any:
    gymnasium = adapters.load("gymnasium", "minigrid")
    shape = (*env.observation_space.shape[:2], sum(CODES))
    box = gymnasium.spaces.Box(0, 1, shape, np.float32)
    return gymnasium.wrappers.TransformObservation(env, _planes, box)


def _planes(codes: np.ndarray) -> np.ndarray:
    """A function with a name, since Gymnasium copies and pickles what its wrappers are given."""
    return adapters.planes(codes, CODES, np)
