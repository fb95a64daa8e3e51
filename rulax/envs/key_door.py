"""Key and door: two rooms, a locked door between them, and one reward behind it. Two things in the right order, paid once."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment, Transition
from rulax.types import Array

MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)], np.int32)  # north, east, south, west


class KeyDoorTask(NamedTuple):
    """Where everything is; a cell is row * size + column."""

    start: Array  # [] int32, in the left room
    key: Array  # [] int32, in the left room
    door: Array  # [] int32, its row in the wall
    goal: Array  # [] int32, in the right room


class KeyDoorState(NamedTuple):
    """Where the agent is, and whether it has the key."""

    agent: Array  # [] int32
    has_key: Array  # [] bool


@dataclasses.dataclass(frozen=True)
class KeyDoor(Environment):
    """Walk over the key, through the door, to the goal: +1 and the end. Without the key the door is wall. Nothing is random.

    The observation is planes [size, size, 5]: agent, key (while it lies there), door (while it is locked), wall, goal.
    """

    size: int = 8

    num_actions = len(MOVES)

    def __post_init__(self) -> None:
        if self.size < 5:
            raise ValueError(f"two rooms and a wall need a size of at least 5, not {self.size}")

    @property
    def wall(self) -> int:
        """The column of the wall."""
        return self.size // 2

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((self.size, self.size, 5), jnp.float32)

    def default_task(self) -> KeyDoorTask:
        """Start in the upper left corner, the key below, the door in the middle, the goal in the lower right corner."""
        last = self.size - 1
        cells = (0, last * self.size + 1, self.size // 2, last * self.size + last)
        return KeyDoorTask(*(jnp.int32(cell) for cell in cells))

    def sample_task(self, key: Array) -> KeyDoorTask:
        """Two cells of the left room, one of the right room, and a row for the door."""
        key_left, key_door, key_goal = jax.random.split(key, 3)
        columns = np.tile(np.arange(self.size), (self.size, 1)).ravel()
        left = jax.random.choice(key_left, np.flatnonzero(columns < self.wall), (2,), replace=False).astype(jnp.int32)
        goal = jax.random.choice(key_goal, np.flatnonzero(columns > self.wall)).astype(jnp.int32)
        return KeyDoorTask(left[0], left[1], jax.random.randint(key_door, (), 0, self.size, jnp.int32), goal)

    def reset(self, task: KeyDoorTask, key: Array) -> tuple[KeyDoorState, Array]:
        state = KeyDoorState(task.start, jnp.bool_(False))
        return state, self._observe(task, state)

    def step(self, task: KeyDoorTask, state: KeyDoorState, action: Array, key: Array) -> tuple[KeyDoorState, Transition]:
        place = jnp.stack([state.agent // self.size, state.agent % self.size]) + jnp.asarray(MOVES)[action]
        row, column = jnp.clip(place, 0, self.size - 1)
        blocked = (column == self.wall) & ~((row == task.door) & state.has_key)
        agent = jnp.where(blocked, state.agent, row * self.size + column).astype(jnp.int32)
        state = KeyDoorState(agent, state.has_key | (agent == task.key))
        arrived = agent == task.goal
        return state, Transition(self._observe(task, state), arrived.astype(jnp.float32), arrived, jnp.bool_(False))

    def _observe(self, task: KeyDoorTask, state: KeyDoorState) -> Array:
        there = (~state.has_key).astype(jnp.float32)
        planes = jnp.zeros(self.observation.shape, jnp.float32)
        planes = planes.at[state.agent // self.size, state.agent % self.size, 0].set(1.0)
        planes = planes.at[task.key // self.size, task.key % self.size, 1].set(there)
        planes = planes.at[task.door, self.wall, 2].set(there)
        planes = planes.at[:, self.wall, 3].set(1.0).at[task.door, self.wall, 3].set(0.0)
        return planes.at[task.goal // self.size, task.goal % self.size, 4].set(1.0)
