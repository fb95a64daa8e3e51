"""gymnax environments as `Environment`s: jittable, vmappable over their parameters, without gymnax's own auto-reset.

The task is gymnax's parameter object, so `default_task()` can be changed with `.replace(...)` and batched with `vmap`.
How each generation of gymnax tells termination from truncation is in `GymnaxEnvironment.step` and in `docs/adapters/gymnax.md`.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp

from rulax.envs import adapters
from rulax.envs.actions import Actions, ByTable
from rulax.envs.base import Environment, Transition
from rulax.text import convert_like
from rulax.types import Array, PyTree, strong


def ids() -> list[str]:
    """Every id that gymnax registers. `make` refuses a few of them, and says why (actions without bounds, a failed download)."""
    return list(adapters.load("gymnax", "gymnax").registered_envs)


def make(id: str, *, bins: int | None = None, **options: Any) -> GymnaxEnvironment:
    """The gymnax environment of that id. Options override fields of its parameters, or are arguments of its class.

    `bins` is how many evenly spaced numbers there are to choose from in each dimension of a continuous action, 11 unless given.
    """
    gymnax = adapters.load("gymnax", "gymnax")
    if id not in gymnax.registered_envs:
        raise adapters.unknown_id("gymnax", id, gymnax.registered_envs)
    try:
        # Made once without options, to tell fields of its parameters from arguments of its class.
        environment, params = gymnax.make(id)
        numbers = {field.name for field in dataclasses.fields(params)}
        arguments = {name: value for name, value in options.items() if name not in numbers}
        if arguments:
            environment, params = gymnax.make(id, **arguments)
    except TypeError as error:
        known = ", ".join(sorted(numbers | set(inspect.signature(type(environment)).parameters)))
        raise ValueError(f"gymnax environment {id!r} does not take {', '.join(arguments)} ({error}); known: {known}") from error
    except OSError as error:
        raise ValueError(f"gymnax environment {id!r} could not load its data: {error}") from error
    changed = {
        name: convert_like(f"'gymnax/{id}': {name}", getattr(params, name), options[name]) for name in options if name in numbers
    }
    params = params.replace(**changed)
    return adapt(id, environment, params, bins)


def adapt(id: str, environment: Any, params: PyTree, bins: int | None = None) -> GymnaxEnvironment:
    """Any object with gymnax's interface; `id` is only for error messages."""
    spaces = adapters.load("gymnax.environments.spaces", "gymnax")
    observations = environment.observation_space(params)
    actions = adapters.read_actions("gymnax", id, environment.action_space(params), bins)
    if not isinstance(observations, spaces.Box | spaces.Discrete):
        kind = type(observations).__name__
        raise ValueError(f"gymnax environment {id!r} has observations of kind {kind}, but only Box and Discrete are supported")
    categories = int(observations.n) if isinstance(observations, spaces.Discrete) else 0
    # The array itself decides, not the space: the space of some environments says int32 where the array is float32.
    observation, state = jax.eval_shape(environment.reset_env, jax.random.key(0), params)
    action = jax.eval_shape(lambda: _own(actions, jnp.zeros(actions.dimensions or (), jnp.int32)))
    # Six values are gymnax 1.x; nothing is computed, only shapes.
    values = jax.eval_shape(environment.step, jax.random.key(0), state, action, params)
    return GymnaxEnvironment(
        environment=environment,
        task=strong(params),
        actions=actions,
        observation=jax.eval_shape(lambda x: _readable(x, categories), observation),
        categories=categories,
        tells_apart=len(values) == 6,
    )


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity: gymnax objects and parameters have no useful hash
class GymnaxEnvironment(ByTable, Environment):  # type: ignore[override]
    """One gymnax environment. A distribution of tasks is the caller's: gymnax has none, so `sample_task` gives the default."""

    environment: Any
    task: PyTree
    actions: Actions  # what the agent's choices mean
    observation: jax.ShapeDtypeStruct
    categories: int  # of a Discrete observation, shown as a one-hot vector; 0 for any other
    one_task = True
    tells_apart: bool  # gymnax 1.x, where `step_env` reports natural ends only and `is_truncated` the time limit

    def default_task(self) -> PyTree:
        return self.task

    def sample_task(self, key: Array) -> PyTree:
        return self.task

    def reset(self, task: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        observation, state = self.environment.reset_env(key, task)
        # Without weak types, or the state would change its type in a scan's carry.
        return strong(state), _readable(observation, self.categories)

    def step(self, task: PyTree, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        """One step of gymnax, in which an end by the time limit is a truncation unless the episode ended there anyway."""
        action = _own(self.actions, action)
        outcome = self.environment.step_env(key, state, action, task)
        observation, next_state, reward, ended = outcome[:4]
        if len(outcome) == 6:
            terminated, truncated = ended, outcome[4]
        elif self.tells_apart:
            terminated, truncated = ended, self.environment.is_truncated(next_state, task)
        else:
            terminated = self._ends_by_itself(task, state, action, key, ended)
            # Masked by `terminated` below: what remains is the end by the time limit.
            truncated = ended
        transition = Transition(
            observation=_readable(observation, self.categories),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=jnp.asarray(terminated, bool),
            truncated=jnp.asarray(truncated, bool) & ~jnp.asarray(terminated, bool),
        )
        return strong(next_state), transition

    def preprocess(self, observation: PyTree) -> PyTree:
        return adapters.one_hot(observation, self.categories) if self.categories else observation

    def _ends_by_itself(self, task: PyTree, state: PyTree, action: Array, key: Array, ended: Array) -> Array:
        """Whether the `done` of gymnax 0.0.x would be set without a time limit: the same step, with the limit out of reach.

        This tells apart even the two ends that fall on the same step. Compilation merges the work that both steps share.
        """
        if "max_steps_in_episode" not in {field.name for field in dataclasses.fields(task)}:
            return ended  # whatever ends such an episode, nobody calls it a time limit
        endless = task.replace(max_steps_in_episode=jnp.full_like(task.max_steps_in_episode, adapters.OUT_OF_REACH))
        return self.environment.step_env(key, state, action, endless)[3]


def _own(actions: Actions, action: Array) -> Array:
    """One action as gymnax wants it: an int32, or real numbers."""
    own = actions.native_action(action, jnp)
    return own.astype(jnp.int32) if jnp.issubdtype(own.dtype, jnp.integer) else own


def _readable(observation: Array, categories: int) -> Array:
    """What an agent reads: uint8 images as they are, an index as a one-hot vector, everything else as float32."""
    if categories:
        return jax.nn.one_hot(observation, categories, dtype=jnp.float32)
    observation = jnp.asarray(observation)
    return observation if observation.dtype == jnp.uint8 else observation.astype(jnp.float32)
