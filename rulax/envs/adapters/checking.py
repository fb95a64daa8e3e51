"""What an environment shows and pays, at every step: that it has the shape and the kind that were declared, and is finite.

What breaks this ends the run in a sentence. Later it would be an error of the compiler, or a gradient that is no number.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from rulax.envs.adapters import said
from rulax.envs.base import EnvironmentFailed, HostEnvironment, Timestep, WrappedHost
from rulax.types import PyTree


def name_of(environment: Any) -> str:
    """What sentences call an environment."""
    name = getattr(environment, "name", "")
    if not name and isinstance(environment, WrappedHost):
        return name_of(environment.environment)
    return str(name) or type(environment).__name__


class Checker:
    """Looks at every timestep of one environment."""

    def __init__(self, environment: HostEnvironment, num_streams: int):
        declared = environment.observation
        self.name, self.several = name_of(environment), isinstance(declared, dict)
        parts = declared.items() if isinstance(declared, dict) else [("", declared)]
        self.parts = [
            (name, (num_streams, *part.shape), np.dtype(part.dtype), np.issubdtype(part.dtype, np.floating)) for name, part in parts
        ]
        self.rewards = (num_streams,)

    def __call__(self, timestep: Timestep, step: int) -> None:
        """Raise `EnvironmentFailed` if something is wrong with it; speed matters, for every step waits for this."""
        shown: Any = timestep.observation
        reward: Any = timestep.reward
        for name, shape, dtype, real in self.parts:
            try:
                part = shown[name] if self.several else shown
                # NumPy has one object for each of its types, nearly always; otherwise the closer look lets it pass.
                good = part.shape == shape and part.dtype is dtype and (not real or math.isfinite(np.vdot(part, part)))
            except (AttributeError, KeyError, TypeError):
                good = False
            if not good:
                self._look_closer(name, shape, dtype, shown, step)
        # A sum of squares is five times as fast as asking each number; it may overflow although they are finite.
        if np.shape(reward) == self.rewards and math.isfinite(np.vdot(reward, reward)):
            return
        if np.shape(reward) != self.rewards:
            raise EnvironmentFailed(
                f"environment '{self.name}' paid rewards of shape {np.shape(reward)} at step {step}, where {self.rewards} belongs: "
                "one number for each stream"
            )
        self._refuse_infinite("paid a reward", reward, step)

    def _look_closer(self, name: str, shape: tuple[int, ...], dtype: np.dtype, shown: Any, step: int) -> None:
        """Raise unless it can be used all the same."""
        what = f"an observation '{name}'" if name else "an observation"
        if self.several and not (isinstance(shown, dict) and name in shown):
            came = f"with the parts {', '.join(map(str, shown))}" if isinstance(shown, dict) else f"of kind {type(shown).__name__}"
            parts = ", ".join(part[0] for part in self.parts)
            raise EnvironmentFailed(
                f"environment '{self.name}' showed an observation {came} at step {step}, where the parts {parts} are declared"
            )
        part = np.asarray(shown[name] if self.several else shown)
        if part.shape != shape or not _fits(part.dtype, dtype):
            raise EnvironmentFailed(
                f"environment '{self.name}' showed {what} {described(part[0] if part.shape[:1] == shape[:1] else part)} at step "
                f"{step}, where {_declared(jax.ShapeDtypeStruct(shape[1:], dtype))} is declared"
            )
        self._refuse_infinite(f"showed {what}", part, step)

    def _refuse_infinite(self, did: str, values: Any, step: int) -> None:
        bad = ~np.isfinite(values)
        if bad.any():
            where = tuple(np.argwhere(bad)[0])
            raise EnvironmentFailed(
                f"environment '{self.name}' {did} that is not a finite number ({values[where]}) at step {step} of stream {where[0]}"
            )


def shown_instead(environment: Any, observations: list[PyTree], error: Exception) -> str:
    """A sentence about observations, one per stream, of which `error` says that they are no batch."""
    declared = environment.observation
    about, wanted = f"environment '{name_of(environment)}' showed an observation", f"where {_declared(declared)} is declared"
    for stream, one in enumerate(observations):
        try:
            stacked = environment.stacked([one])
        except Exception as own:
            return f"{about} that cannot be read ({described(one)}: {said(own)}) in stream {stream}, {wanted}"
        shapes = [part.shape[1:] for part in jax.tree.leaves(stacked)]
        if shapes != [part.shape for part in jax.tree.leaves(declared)]:
            return f"{about} {described(one)} in stream {stream}, {wanted}"
    return f"{about} that cannot be read ({said(error)}), {wanted}"


def described(thing: Any) -> str:
    """What came, in a few words."""
    if isinstance(thing, dict):
        return f"with the parts {', '.join(f'{name} {described(part)}' for name, part in thing.items())}"
    if isinstance(thing, np.ndarray | np.generic):
        return f"of shape {thing.shape} and type {thing.dtype}"
    return f"of kind {type(thing).__name__}"


def _declared(declared: Any) -> str:
    if isinstance(declared, dict):
        return ", ".join(f"{name} {_declared(part)}" for name, part in declared.items())
    return f"shape {declared.shape} and type {np.dtype(declared.dtype)}"


def _fits(came: np.dtype, declared: np.dtype) -> bool:
    """Whether what came can be read as what is declared without a change of its meaning."""
    return np.can_cast(came, declared, "same_kind") or (came.kind in "biu" and declared.kind in "biu")
