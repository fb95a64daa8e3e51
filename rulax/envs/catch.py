"""Catch: a ball falls and a paddle has to catch it. A standard smoke test, and the environment of both reference notebooks."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.envs.base import Environment, Transition
from rulax.types import Array


class CatchTask(NamedTuple):
    """How the ball falls."""

    drift: Array  # [] probability that the ball also moves one column sideways in a step


class CatchState(NamedTuple):
    """Where things are; the paddle is always in the last row."""

    ball_row: Array  # [] int32
    ball_column: Array  # [] int32
    paddle: Array  # [] int32, its column


@dataclasses.dataclass(frozen=True)
class Catch(Environment):
    """Move left, stay or move right; after `rows - 1` steps the ball lands: +1 if it is caught, else -1."""

    rows: int = 10
    columns: int = 5

    num_actions = 3

    def __post_init__(self) -> None:
        if self.rows < 2 or self.columns < 1:
            raise ValueError(f"Catch needs at least 2 rows and 1 column, not {self.rows} x {self.columns}")

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((self.rows, self.columns, 1), jnp.float32)

    def default_task(self) -> CatchTask:
        return CatchTask(jnp.float32(0))

    def sample_task(self, key: Array) -> CatchTask:
        return CatchTask(jax.random.uniform(key, (), jnp.float32, 0.0, 0.5))

    def reset(self, task: CatchTask, key: Array) -> tuple[CatchState, Array]:
        column = jax.random.randint(key, (), 0, self.columns, jnp.int32)
        state = CatchState(jnp.int32(0), column, jnp.int32(self.columns // 2))
        return state, self._observe(state)

    def step(self, task: CatchTask, state: CatchState, action: Array, key: Array) -> tuple[CatchState, Transition]:
        key_drift, key_side = jax.random.split(key)
        drifts = jax.random.uniform(key_drift, (), jnp.float32) < task.drift
        side = jnp.where(jax.random.bernoulli(key_side), 1, -1)
        state = CatchState(
            ball_row=state.ball_row + 1,
            ball_column=self._inside(state.ball_column + jnp.where(drifts, side, 0)),
            paddle=self._inside(state.paddle + action - 1),
        )
        landed = state.ball_row >= self.rows - 1
        verdict = jnp.where(state.paddle == state.ball_column, 1.0, -1.0)
        reward = jnp.where(landed, verdict, 0.0).astype(jnp.float32)
        return state, Transition(self._observe(state), reward, landed, jnp.bool_(False))

    def _inside(self, column: Array) -> Array:
        return jnp.clip(column, 0, self.columns - 1).astype(jnp.int32)

    def _observe(self, state: CatchState) -> Array:
        board = jnp.zeros(self.observation.shape, jnp.float32)
        return board.at[state.ball_row, state.ball_column, 0].set(1.0).at[self.rows - 1, state.paddle, 0].set(1.0)


@dataclasses.dataclass(frozen=True)
class SeveralCatch(Environment):
    """`games` games of Catch at once: every step moves all paddles, each by a choice of its own. Balls land together.

    The reward is the mean over games, so that catching everything is worth 1, as in Catch.
    """

    rows: int = 5
    columns: int = 5
    games: int = 2

    num_actions = 3

    def __post_init__(self) -> None:
        if self.games < 2:
            raise ValueError(f"several games are at least two, not {self.games}")
        self.game()  # raises if its size makes no sense

    def game(self) -> Catch:
        """One of them."""
        return Catch(self.rows, self.columns)

    @property
    def action_dimensions(self) -> int:  # type: ignore[override]
        return self.games

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((self.rows, self.columns, self.games), jnp.float32)

    def default_task(self) -> CatchTask:
        return self.game().default_task()

    def sample_task(self, key: Array) -> CatchTask:
        return self.game().sample_task(key)

    def reset(self, task: CatchTask, key: Array) -> tuple[CatchState, Array]:
        state, boards = jax.vmap(self.game().reset, in_axes=(None, 0))(task, jax.random.split(key, self.games))
        # Games become channels: one image, as a convolution reads it.
        return state, jnp.moveaxis(boards[..., 0], 0, -1)

    def step(self, task: CatchTask, state: CatchState, action: Array, key: Array) -> tuple[CatchState, Transition]:
        keys = jax.random.split(key, self.games)
        state, each = jax.vmap(self.game().step, in_axes=(None, 0, 0, 0))(task, state, action, keys)
        board = jnp.moveaxis(each.observation[..., 0], 0, -1)
        return state, Transition(board, jnp.mean(each.reward), jnp.all(each.terminated), jnp.bool_(False))
