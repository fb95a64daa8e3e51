"""Any dm_env environment as a host environment: `dm_env/module:function` names the function that makes it.

This is how DeepMind Lab connects, which no package index has: a function of your own builds it, and chooses its actions.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import Actions
from rulax.envs.adapters import probing
from rulax.envs.adapters.streams import CopiedEnvironment
from rulax.types import PyTree


def ids() -> list[str]:
    """None: any function that can be imported is one."""
    return []


def make(id: str, *, key: str = "", bins: int | None = None, **options: Any) -> CopiedEnvironment:
    """The environment that `module:function` makes; options go to the function.

    `key` chooses one part of an observation that is a dictionary. `bins` is how many evenly spaced numbers there are to choose
    from in each dimension of a continuous action, 11 unless given.
    """
    module, _, name = id.partition(":")
    if not module or not name:
        raise ValueError(f"'dm_env/{id}' must be dm_env/module:function, for example dm_env/bsuite.environments.catch:Catch")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        hint = "; rulax looks in the current folder and among installed packages" if isinstance(error, ModuleNotFoundError) else ""
        raise ValueError(f"'dm_env/{id}' cannot be imported: {error}{hint}") from error
    if not callable(function):
        raise ValueError(f"'dm_env/{id}' is not a function that makes an environment")
    if "seed" not in inspect.signature(function).parameters:
        raise ValueError(f"'dm_env/{id}' needs an argument 'seed': dm_env environments are seeded only when they are made")
    return from_dm_env(lambda seed: function(seed=seed, **options), name=f"dm_env/{id}", key=key, bins=bins)


def from_dm_env(
    make_one: Callable[[int], Any], *, name: str = "dm_env", key: str = "", bins: int | None = None
) -> CopiedEnvironment:
    """Streams of the environments that `make_one(seed)` makes. Called in Python, where a function is at hand."""
    adapters.load("dm_env", "dm_env")
    try:
        probe = make_one(0)
    except TypeError as error:
        raise ValueError(f"'{name}' cannot be made: {error}") from error
    try:
        actions, shown = _read_actions(name, probe.action_spec(), bins), probe.observation_spec()
        if key and (not isinstance(shown, Mapping) or key not in shown):
            raise ValueError(f"'{name}' has no part '{key}' in its observation: {shown}")
        shown = shown[key] if key else shown
        environment = CopiedEnvironment(name, actions, _declared(shown), lambda: DmEnvCopy(make_one, key))
        _check(environment, probe, key)
    finally:
        probe.close()
    return environment


def _check(environment: CopiedEnvironment, probe: Any, key: str) -> None:
    """One reset and one step must return what dm_env says; see `probing.py`."""
    about, returned = f"dm_env environment {environment.name!r}", []
    with contextlib.suppress(Exception):
        returned.append(probe.reset())
        returned.append(probe.step(probing.first_choice(environment)))
    for timestep in returned:
        if not all(hasattr(timestep, name) for name in ("observation", "reward", "discount", "last")):
            raise ValueError(f"{about}: reset and step must return a dm_env.TimeStep, not a {type(timestep).__name__}")
        probing.check_observation(about, environment, timestep.observation, lambda shown: _read(shown, key))
        probing.check_reward(about, 0.0 if timestep.reward is None else timestep.reward)


def _read_actions(name: str, spec: Any, bins: int | None) -> Actions:
    """One whole number or several between two ends, or real ones by bins."""
    about = f"dm_env environment {name!r} has actions {spec}"
    if getattr(spec, "minimum", None) is None:
        raise ValueError(f"{about}, which no agent chooses from; it could from one array with a minimum and a maximum")
    return adapters.read_bounded(about, spec, spec.minimum, spec.maximum, bins)


class DmEnvCopy:
    """One environment. The discount of its last step tells a termination (0) from a truncation; earlier ones are not used."""

    def __init__(self, make_one: Callable[[int], Any], key: str):
        self.make_one, self.key = make_one, key
        self.env: Any = None

    def reset(self, seed: int | None) -> PyTree:
        # dm_env has no call that reseeds an environment: a seed makes a new one.
        if seed is not None:
            self.close()
            self.env = self.make_one(seed)
        return _read(self.env.reset().observation, self.key)

    def step(self, action: Any) -> tuple[PyTree, float, bool, bool]:
        timestep = self.env.step(action)
        terminated = timestep.last() and timestep.discount == 0
        # dm_env's reward is None in the first timestep of an episode.
        return _read(timestep.observation, self.key), float(timestep.reward or 0), terminated, timestep.last() and not terminated

    def close(self) -> None:
        if self.env is not None:
            self.env.close()


def _read(observation: PyTree, key: str) -> PyTree:
    observation = observation[key] if key else observation
    if isinstance(observation, Mapping):
        return {name: np.array(part) for name, part in observation.items()}
    return np.array(observation)  # a copy: many environments draw the next one into the same array


def _declared(spec: Any) -> PyTree:
    """One array: bytes as they are, all else float32. In a dictionary whole numbers stay whole, since they may be codes."""
    if isinstance(spec, Mapping):
        kinds = {name: np.dtype(part.dtype) for name, part in spec.items()}
        return {
            name: jax.ShapeDtypeStruct(part.shape, kinds[name] if np.issubdtype(kinds[name], np.integer) else np.float32)
            for name, part in spec.items()
        }
    return jax.ShapeDtypeStruct(spec.shape, np.uint8 if spec.dtype == np.uint8 else np.float32)
