"""Two of Jumanji's environments as jittable `Environment`s: Sokoban, on levels that are made here, and Snake.

Jumanji calls the end of its time limit a termination. So its limit is put out of reach, and `TimeLimit` truncates instead.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rulax.envs import adapters
from rulax.envs.adapters.sokoban import Levels, make_levels
from rulax.envs.base import Environment, Transition
from rulax.envs.wrappers import TimeLimit
from rulax.types import Array, PyTree, strong

CODES = (5, 5)  # of Sokoban's grid: agent and boxes, walls and targets
DEFAULTS: dict[str, dict[str, Any]] = {
    "Sokoban": {"limit": 120, "levels": 500, "seed": 0},  # levels are made when the environment is, from the seed
    "Snake": {"limit": 4000, "num_rows": 12, "num_cols": 12},
}


def ids() -> list[str]:
    """The two that the adapter knows how to show to an agent."""
    return list(DEFAULTS)


def make(id: str, **options: Any) -> TimeLimit:
    """Sokoban or Snake with its time limit."""
    environments = adapters.load("jumanji.environments", "jumanji")
    if id not in DEFAULTS:
        raise adapters.unknown_id("Jumanji", id, ids(), f": there are {' and '.join(ids())}")
    read = adapters.read_options(f"jumanji/{id}", DEFAULTS[id], options)
    adapters.check_least(f"jumanji/{id}", read, **{name: 1 for name in read if name != "seed"})
    if id == "Snake":
        snake = environments.Snake(read["num_rows"], read["num_cols"], time_limit=adapters.OUT_OF_REACH)
        return TimeLimit(SnakeEnvironment(snake), read["limit"])
    generator = adapters.load("jumanji.environments.routing.sokoban.generator", "jumanji").ToyGenerator()
    # The generator is not used: `reset` draws a level.
    environment = environments.Sokoban(generator=generator, time_limit=adapters.OUT_OF_REACH)
    return TimeLimit(SokobanEnvironment(environment, read["levels"], read["seed"]), read["limit"])


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: Jumanji's objects have no useful hash
class SokobanEnvironment(Environment):
    """Push four boxes onto four targets. The task is a pool of levels [N], of which every episode draws one."""

    environment: Any
    levels: int
    seed: int
    num_actions = 4
    observation = jax.ShapeDtypeStruct((10, 10, sum(CODES)), jnp.float32)
    one_task = True

    def default_task(self) -> Levels:
        return jax.tree.map(jnp.asarray, make_levels(self.levels, self.seed))

    def sample_task(self, key: Array) -> Levels:
        return self.default_task()

    def reset(self, task: Levels, key: Array) -> tuple[PyTree, Array]:
        types = adapters.load("jumanji.environments.routing.sokoban.types", "jumanji")
        # The same key for all three arrays, so that they come from the same level.
        fixed, variable, agent = jax.tree.map(lambda pool: pool[jax.random.randint(key, (), 0, len(pool))], task)
        state = types.State(key=key, fixed_grid=fixed, variable_grid=variable, agent_location=agent, step_count=jnp.int32(0))
        return state, adapters.planes(self.environment._state_to_observation(state).grid, CODES, jnp)

    def step(self, task: Levels, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        state, timestep = self.environment.step(state, jnp.asarray(action, jnp.int32))
        return strong(state), _transition(timestep, adapters.planes(timestep.observation.grid, CODES, jnp))


@dataclasses.dataclass(frozen=True, eq=False)
class SnakeEnvironment(Environment):
    """Eat and grow; a wall or the own body ends it."""

    environment: Any
    num_actions = 4
    one_task = True

    @property
    def observation(self) -> jax.ShapeDtypeStruct:  # type: ignore[override]
        return jax.ShapeDtypeStruct((self.environment.num_rows, self.environment.num_cols, 5), jnp.float32)

    def default_task(self) -> Array:
        return jnp.float32(0)

    def sample_task(self, key: Array) -> Array:
        return self.default_task()

    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, Array]:
        state, timestep = self.environment.reset(key)
        return strong(state), timestep.observation.grid.astype(jnp.float32)

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        state, timestep = self.environment.step(state, jnp.asarray(action, jnp.int32))
        return strong(state), _transition(timestep, timestep.observation.grid.astype(jnp.float32))


def _transition(timestep: Any, observation: Array) -> Transition:
    """Without its time limit, everything that Jumanji calls last is a termination."""
    return Transition(observation, timestep.reward.astype(jnp.float32), timestep.last(), jnp.bool_(False))
