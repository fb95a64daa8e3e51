"""Craftax and Craftax-Classic as jittable `Environment`s. The task is a pool of initial states; every episode draws one of them.

Under `vmap` a reset that is only sometimes needed is computed at every step, and Craftax takes far longer to generate a map than to
step. A pool is generated once, and drawing from it costs next to nothing. `pool=0` generates a new map for every episode all the
same. The option's former name, `worlds`, still works, with a note.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp

from rulax.envs import adapters
from rulax.envs.base import Environment, Transition
from rulax.envs.wrappers import TimeLimit
from rulax.types import Array, PyTree, strong

DEFAULTS = {"limit": 10_000, "pool": 256, "seed": 0}


def ids() -> list[str]:
    """Symbolic and pixel views of both games."""
    return [f"Craftax-{game}{view}-v1" for game in ("Classic-", "") for view in ("Symbolic", "Pixels")]


def make(id: str, **options: Any) -> TimeLimit:
    """The game of that id; `limit` is the time limit, `pool` the size of the pool, which `seed` determines."""
    maker = adapters.load("craftax.craftax_env", "craftax")
    if id not in ids():
        raise adapters.unknown_id("Craftax", id, ids())
    read = adapters.read_options(f"craftax/{id}", DEFAULTS, with_current_names(id, options))
    adapters.check_least(f"craftax/{id}", read, limit=1, pool=0)
    env = maker.make_craftax_env_from_name(id, auto_reset=False)
    params = env.default_params.replace(max_timesteps=adapters.OUT_OF_REACH)  # Craftax reports its limit as any other end
    shown, _ = jax.eval_shape(env.reset_env, jax.random.key(0), params)
    observation = jax.ShapeDtypeStruct(shown.shape, jnp.float32)
    return TimeLimit(CraftaxEnvironment(env, params, int(env.num_actions), observation, read["pool"], read["seed"]), read["limit"])


def with_current_names(id: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options by today's names; where a former one was given, the user is told."""
    if "worlds" not in options:
        return options
    if "pool" in options:
        raise ValueError(f"'craftax/{id}': worlds is the former name of pool; give only one of them")
    print(f"note: the option worlds of craftax/{id} is called pool now", file=sys.stderr)
    return {"pool" if name == "worlds" else name: value for name, value in options.items()}


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity
class CraftaxEnvironment(Environment):
    """One game."""

    env: Any
    params: Any
    num_actions: int
    observation: jax.ShapeDtypeStruct
    pool: int
    seed: int

    def default_task(self) -> PyTree:
        return self.sample_task(jax.random.key(self.seed))

    def sample_task(self, key: Array) -> PyTree:
        """A pool of initial states [N], generated one after the other: all at once would need the memory of N generators."""
        if not self.pool:
            return jnp.float32(0)
        return jax.lax.map(self._generate, jax.random.split(key, self.pool))

    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, Array]:
        if not self.pool:
            state = self._generate(key)
        else:
            number = jax.random.randint(key, (), 0, self.pool)
            state = jax.tree.map(lambda states: states[number], task)
        return state, self._show(state)

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        shown, state, reward, ended, _ = self.env.step_env(key, state, jnp.asarray(action, jnp.int32), self.params)
        transition = Transition(
            shown.astype(jnp.float32), jnp.asarray(reward, jnp.float32), jnp.asarray(ended, bool), jnp.bool_(False)
        )
        return strong(state), transition

    def _generate(self, key: Array) -> PyTree:
        return strong(self.env.reset_env(key, self.params)[1])

    def _show(self, state: PyTree) -> Array:
        return self.env.get_obs(state).astype(jnp.float32)
