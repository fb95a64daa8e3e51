"""Gymnasium's BipedalWalker on a terrain that is driven by parameters, as in POET (Wang et al. 2019). Needs the extra `box2d`.

Gymnasium's own walker knows two terrains, a gentle one and a "hardcore" one. This one builds that of `hurdles.py` for it: the
same seven numbers, the same mutation, a node of the ground for each of the walker's. Physics and rewards are Gymnasium's.

    rulax train rulax.envs.bipedal:TerrainWalker --env-options roughness=0.2 stump=0.4 gap=0.5
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from typing import Any

import jax
import numpy as np

from rulax.envs.adapters.gymnasium import from_gymnasium
from rulax.envs.base import HostEnvironment
from rulax.envs.hurdles import Hurdles, make_ground, terrain_of
from rulax.errors import UserError
from rulax.types import Array

if importlib.util.find_spec("Box2D") is None:
    raise UserError("the walker needs Box2D, which is not installed: pip install 'rulax[box2d]'")

from gymnasium.envs.box2d.bipedal_walker import (
    TERRAIN_HEIGHT,
    TERRAIN_LENGTH,
    TERRAIN_STARTPAD,
    TERRAIN_STEP,
    BipedalWalker,
)

HORIZON = 1600  # steps of an episode, as Gymnasium has it
GRASS, EARTH = (76, 204, 76), (102, 153, 76)


class TerrainWalker(BipedalWalker):
    """A walker that draws a new ground of its task at every reset; the four options are those of `hurdles.terrain_of`."""

    def __init__(
        self,
        roughness: float = 0.0,
        gap: float = 0.0,
        stump: float = 0.0,
        step: float = 0.0,
        task: Any = None,
        render_mode: str | None = None,
    ):
        super().__init__(render_mode=render_mode)
        self.task = np.array(terrain_of(roughness, gap, stump, step) if task is None else task, np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """As Gymnasium's; it makes one step at its end, which is not one of the episode."""
        found = super().reset(seed=seed, options=options)
        self.steps = 0
        return found

    def step(self, action: Any) -> Any:
        """As Gymnasium's, with the time limit that a registered id would have."""
        observation, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        return observation, reward, terminated, truncated or self.steps >= HORIZON, info

    def _generate_terrain(self, hardcore: bool) -> None:
        """The ground as edges: a stump or a gap is a steep one, on which feet and lidar stop as on Gymnasium's blocks."""
        ground = np.asarray(_ground()(self.task, jax.random.key(int(self.np_random.integers(2**31)))))
        # Where it begins the walker needs more room than the runner.
        heights = np.concatenate([np.zeros(TERRAIN_STARTPAD // 4), ground])[:TERRAIN_LENGTH] + TERRAIN_HEIGHT
        self.terrain_x = [index * TERRAIN_STEP for index in range(TERRAIN_LENGTH)]
        self.terrain_y = [float(height) for height in heights]
        self.terrain, self.terrain_poly = [], []
        corners = list(zip(self.terrain_x, self.terrain_y, strict=True))
        for left, right in itertools.pairwise(corners):
            self.fd_edge.shape.vertices = [left, right]
            edge = self.world.CreateStaticBody(fixtures=self.fd_edge)
            edge.color1 = edge.color2 = GRASS
            self.terrain.append(edge)
            self.terrain_poly.append(([left, right, (right[0], 0), (left[0], 0)], EARTH))
        self.terrain.reverse()


@functools.lru_cache(maxsize=1)
def _ground() -> Any:
    """The compiled ground; not when this file is imported, which must not start JAX."""
    return jax.jit(make_ground)


class Walkers:
    """What POET needs to know of the walker: its tasks and their mutation, its sizes, and copies of it."""

    observation = jax.ShapeDtypeStruct((24,), np.float32)
    real_dimensions = 4

    def default_task(self) -> Array:
        """Flat ground."""
        return Hurdles().default_task()

    def mutate(self, task: Array, key: Array) -> Array:
        """A similar task."""
        return Hurdles().mutate(task, key)

    def open(self, task: Any) -> TerrainWalker:
        """A walker on one task."""
        return TerrainWalker(task=task)

    def shown(self, task: Any) -> HostEnvironment:
        """The same as an environment that draws itself, for films."""
        return from_gymnasium(lambda: TerrainWalker(task=task, render_mode="rgb_array"), name="walker")
