"""XLand-MiniGrid as a jittable `Environment`: its `MiniGrid-*` environments by name, its `XLand-*` environments with a ruleset of
yours."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rulax.envs import adapters
from rulax.envs.base import Environment, Transition
from rulax.types import Array, PyTree, strong

CODES = (13, 12)  # tiles and colours


def ids() -> list[str]:
    """Every id that the package registers; `make` refuses those that need a ruleset."""
    return list(adapters.load("xminigrid", "xland").registered_environments())


def make(id: str, **options: Any) -> XLandEnvironment:
    """The environment of that id; options are fields of its parameters (`view_size`, `max_steps`, `height`, `width`)."""
    xminigrid = adapters.load("xminigrid", "xland")
    if id not in ids():
        raise adapters.unknown_id("XLand-MiniGrid", id, ids())
    if id.startswith("XLand"):
        raise ValueError(f"'xland/{id}' has no goal without a ruleset: in Python, give one to rulax.envs.adapters.xland.adapt")
    environment, params = xminigrid.make(id)
    defaults = {field.name: getattr(params, field.name) for field in dataclasses.fields(params) if field.name != "render_mode"}
    read = adapters.read_options(f"xland/{id}", {name: 0 if value is None else value for name, value in defaults.items()}, options)
    return adapt(environment, params.replace(**{name: read[name] for name in options}))


def adapt(environment: Any, params: Any) -> XLandEnvironment:
    """Any environment of the package with its parameters: `xminigrid.make(...)`, the ruleset put in with `params.replace`."""
    size = params.view_size
    observation = jax.ShapeDtypeStruct((size, size, sum(CODES)), jnp.float32)
    return XLandEnvironment(environment, params, int(environment.num_actions(params)), observation)


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: parameters hold arrays
class XLandEnvironment(Environment):
    """One environment; its state is the package's timestep. The package has no distribution over its environments' numbers."""

    environment: Any
    params: Any
    num_actions: int
    observation: jax.ShapeDtypeStruct
    one_task = True

    def default_task(self) -> Array:
        return jnp.float32(0)

    def sample_task(self, key: Array) -> Array:
        return self.default_task()

    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, Array]:
        timestep = self.environment.reset(self.params, key)
        return strong(timestep), adapters.planes(timestep.observation, CODES, jnp)

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        """The package says discount 0 for a goal, and 1 for the time limit (`max_steps`)."""
        timestep = self.environment.step(self.params, state, jnp.asarray(action, jnp.int32))
        terminated = timestep.discount == 0
        shown = adapters.planes(timestep.observation, CODES, jnp)
        transition = Transition(shown, timestep.reward.astype(jnp.float32), terminated, timestep.last() & ~terminated)
        return strong(timestep), transition
