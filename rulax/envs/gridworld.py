"""Grid environments of objects to collect or to avoid, in which everything but the shapes is an array (Oh et al. 2020, A.1-A.2).

The registered variants are in `grid_variants.py`. Within one step: the agent moves; what lies on its cell is collected and
may end the episode; what is missing may come back.

With a payday, a time limit (`wrappers.TimeLimit`) pays nothing out: truncation is no end, and what is owed then is part of the
value that is bootstrapped from the last observation. Paying would make the reward depend on a clock that is no part of the state.
But that debt is missing from the reported return, so a limit should be a multiple of the payday, as that of `grid/delayed` is.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment, Transition
from rulax.types import Array

# Row and column of each action: stay, north, east, south, west, then the diagonals.
MOVES = np.array([(0, 0), (-1, 0), (0, 1), (1, 0), (0, -1), (-1, 1), (1, 1), (1, -1), (-1, -1)], np.int32)
LARGEST_TABLE = 2**14


class Kind(NamedTuple):
    """One kind of object, as the default task has it."""

    value: float  # reward for collecting one
    ends: float = 0.0  # probability that collecting one ends the episode
    returns: float = 0.0  # probability per step that a missing one comes back
    copies: int = 1


class GridTask(NamedTuple):
    """The layout and the economy. K kinds, M objects; a cell is row * width + column."""

    walls: Array  # [H, W] bool
    start: Array  # [H, W] weight of each cell as the agent's first
    places: Array  # [M] int32, the objects' cells; unused if these are drawn in every episode
    value: Array  # [K]
    ends: Array  # [K]
    returns: Array  # [K]
    step_reward: Array  # [] paid at every step
    slip: Array  # [] probability that a random action is taken instead
    payday: Array  # [] int32: what was collected is paid at every payday-th step (1: at once) and where the episode terminates


class GridState(NamedTuple):
    """Where everything is, and what has been earned but not paid."""

    agent: Array  # [] int32, its cell
    places: Array  # [M] int32
    present: Array  # [M] bool
    owed: Array  # []
    steps: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class GridWorld(Environment):
    """Collect what is good, avoid what is bad.

    `placement`: objects keep their places for a whole lifetime (fixed, the task's) or get new ones in every episode and
    whenever they come back (random). `view`: planes [H, W, 2+K] (agent, each kind, walls); tabular, a one-hot number of
    the pair (agent's cell, which objects are present); factored, these two side by side.
    """

    height: int = 11
    width: int = 11
    kinds: tuple[Kind, ...] = (Kind(1.0, 0.0, 0.05, 2), Kind(-1.0, 0.5, 0.1), Kind(-1.0, 0.0, 0.5))
    placement: Literal["fixed", "random"] = "fixed"
    view: Literal["planes", "tabular", "factored"] = "planes"
    moves: int = 9
    wall_density: float = 0.1
    step_reward: float = 0.0
    slip: float = 0.0
    payday: int = 1

    def __post_init__(self) -> None:
        cells, objects = self.height * self.width, self._kind_of.size
        if self.moves not in (5, 9):
            raise ValueError(f"moves must be 5 (stay and four directions) or 9 (diagonals too), not {self.moves}")
        if self.view not in ("planes", "tabular", "factored") or self.placement not in ("fixed", "random"):
            raise ValueError(f"unknown view '{self.view}' or placement '{self.placement}'")
        if self.view != "planes" and self.placement == "random":
            raise ValueError(f"view '{self.view}' does not show where objects are; with random placement use 'planes'")
        if self.view == "tabular" and cells * 2**objects > LARGEST_TABLE:
            raise ValueError(f"{cells} cells and {objects} objects make too large a table; use view='factored'")
        # `draw_walls` leaves at least half of the grid free, and all objects and the agent must fit into that half.
        if not objects or 2 * (objects + 1) > cells or self.payday < 1:
            raise ValueError(f"a grid needs objects, twice as many cells as objects and agent, and payday >= 1: {self}")

    @property
    def _kind_of(self) -> np.ndarray:
        """[M] the kind of each object."""
        return np.repeat(np.arange(len(self.kinds)), [kind.copies for kind in self.kinds])

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.moves

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        cells, objects = self.height * self.width, self._kind_of.size
        shapes = {
            "planes": (self.height, self.width, 2 + len(self.kinds)),
            "tabular": (cells * 2**objects,),
            "factored": (cells + objects,),
        }
        return jax.ShapeDtypeStruct(shapes[self.view], jnp.float32)

    def default_task(self) -> GridTask:
        """No walls; the places of objects are drawn once and for all."""
        walls = jnp.zeros((self.height, self.width), bool)
        value, ends, returns = (jnp.array([kind[i] for kind in self.kinds], jnp.float32) for i in range(3))
        return GridTask(
            walls=walls,
            start=(~walls).astype(jnp.float32),
            # A constant key: the default task has to be the same in every run.
            places=_draw_cells(jax.random.key(0), ~walls.ravel(), self._kind_of.size),
            value=value,
            ends=ends,
            returns=returns,
            step_reward=jnp.float32(self.step_reward),
            slip=jnp.float32(self.slip),
            payday=jnp.int32(self.payday),
        )

    def sample_task(self, key: Array) -> GridTask:
        """Random walls, places, sizes of the values and of the rates of return; signs and what ends an episode stay."""
        key_walls, key_places, key_value, key_returns = jax.random.split(key, 4)
        task = self.default_task()
        walls = draw_walls(key_walls, (self.height, self.width), self.wall_density)
        scale = jax.random.uniform(key_value, task.value.shape, jnp.float32, 0.5, 1.5)
        rate = jax.random.uniform(key_returns, task.returns.shape, jnp.float32, 0.5, 1.5)
        return task._replace(
            walls=walls,
            start=(~walls).astype(jnp.float32),
            places=_draw_cells(key_places, ~walls.ravel(), self._kind_of.size),
            value=task.value * scale,
            returns=jnp.clip(task.returns * rate, 0.0, 1.0),
        )

    def reset(self, task: GridTask, key: Array) -> tuple[GridState, Array]:
        key_agent, key_places = jax.random.split(key)
        objects = self._kind_of.size
        places = task.places
        if self.placement == "random":
            places = _draw_cells(key_places, ~task.walls.ravel(), objects)
        # The agent does not start on an object, unless the task leaves it nothing else.
        weights = task.start.ravel().at[places].multiply(1e-9)
        agent = jax.random.categorical(key_agent, jnp.log(weights)).astype(jnp.int32)
        state = GridState(agent, places, jnp.ones(objects, bool), jnp.float32(0), jnp.int32(0))
        return state, self._observe(task, state)

    def step(self, task: GridTask, state: GridState, action: Array, key: Array) -> tuple[GridState, Transition]:
        kind, objects = self._kind_of, self._kind_of.size
        # One draw for all that is left to chance: several would take most of the time of a step.
        cells = self.height * self.width if self.placement == "random" else 0
        fate = jax.random.uniform(key, (2 + 2 * objects + cells,), jnp.float32)
        slip, end, back, rank = jnp.split(fate, [2, 2 + objects, 2 + 2 * objects])
        agent = self._move(task, state.agent, action, slip)

        collected = state.present & (state.places == agent)
        terminated = (collected & (end < task.ends[kind])).any()

        # What is collected now may come back in this very step, with fixed placement under the agent itself.
        present = state.present & ~collected
        returning = ~present & (back < task.returns[kind])
        places = state.places
        if self.placement == "random":
            # `max` leaves the agent's cell taken, and frees the old places of objects that are missing.
            taken = jnp.zeros(self.height * self.width, bool).at[agent].set(True).at[places].max(present)
            # A cell for every object, whether it returns or not: shapes cannot depend on how many do.
            fresh = _top_cells(rank, ~task.walls.ravel() & ~taken, objects)
            places = jnp.where(returning, fresh, places)

        owed = state.owed + jnp.where(collected, task.value[kind], 0.0).sum()
        steps = state.steps + 1
        pays = terminated | (steps % task.payday == 0)
        reward = task.step_reward + jnp.where(pays, owed, 0.0)
        state = GridState(agent, places, present | returning, jnp.where(pays, 0.0, owed), steps)
        return state, Transition(self._observe(task, state), reward, terminated, jnp.bool_(False))

    def _move(self, task: GridTask, agent: Array, action: Array, chance: Array) -> Array:
        """The cell that an action leads to; `chance` [2] says whether it slips and to which action."""
        action = jnp.where(chance[0] < task.slip, (chance[1] * self.moves).astype(jnp.int32), action)
        row, column = jnp.asarray(MOVES)[action] + jnp.stack([agent // self.width, agent % self.width])
        # Row and column are clipped separately: at the border a diagonal move slides along, while a wall blocks it altogether.
        row, column = jnp.clip(row, 0, self.height - 1), jnp.clip(column, 0, self.width - 1)
        return jnp.where(task.walls[row, column], agent, row * self.width + column).astype(jnp.int32)

    def _observe(self, task: GridTask, state: GridState) -> Array:
        cells, objects = self.height * self.width, self._kind_of.size
        if self.view == "tabular":
            subset = (state.present * 2 ** np.arange(objects)).sum()
            return jax.nn.one_hot(subset * cells + state.agent, cells * 2**objects, dtype=jnp.float32)
        agent = jax.nn.one_hot(state.agent, cells, dtype=jnp.float32)
        if self.view == "factored":
            return jnp.concatenate([agent, state.present.astype(jnp.float32)])
        planes = jnp.zeros(self.observation.shape, jnp.float32)
        rows, columns = state.places // self.width, state.places % self.width
        # max, because a missing object may share its old place with a present one
        planes = planes.at[rows, columns, 1 + self._kind_of].max(state.present.astype(jnp.float32))
        planes = planes.at[:, :, 0].set(agent.reshape(self.height, self.width))
        return planes.at[:, :, -1].set(task.walls.astype(jnp.float32))


def _draw_cells(key: Array, allowed: Array, count: int) -> Array:
    """`count` different cells out of those `allowed` [cells]."""
    return _top_cells(jax.random.uniform(key, allowed.shape, jnp.float32), allowed, count)


def _top_cells(rank: Array, allowed: Array, count: int) -> Array:
    # Top-k of random ranks draws without replacement in a fixed shape; -1 is below every rank of an allowed cell.
    return jax.lax.top_k(jnp.where(allowed, rank, -1.0), count)[1].astype(jnp.int32)


def draw_walls(key: Array, shape: tuple[int, int], density: float) -> Array:
    """Random walls [H, W] around one connected floor that covers at least half of the grid."""
    key_walls, key_seed = jax.random.split(key)
    floor = jax.random.uniform(key_walls, shape, jnp.float32) >= density
    seed = jax.random.randint(key_seed, (), 0, shape[0] * shape[1])
    reached = (jnp.arange(shape[0] * shape[1]) == seed).reshape(shape)

    # A flood fill: floor that it does not reach becomes wall, so that every cell can be reached from every other.
    def spread(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        reached, _ = carry
        edge = jnp.pad(reached, 1)
        wider = reached | edge[2:, 1:-1] | edge[:-2, 1:-1] | edge[1:-1, 2:] | edge[1:-1, :-2]
        wider = reached | (wider & floor)
        return wider, (wider != reached).any()

    reached, _ = jax.lax.while_loop(lambda carry: carry[1], spread, (reached, jnp.bool_(True)))
    # No walls at all where too little is left: drawing again would take an unknown number of tries.
    return jnp.where(2 * reached.sum() >= reached.size, ~reached, False)
