"""One Gymnasium environment that survives its own errors. Worker processes import this file, so it must not import JAX."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

FAILED = "rulax_failed"  # the name under which Gymnasium's `info` says what an environment raised


class Surviving:
    """What raises is closed and made anew, as its `spec` says, and shows the first observation of a new episode."""

    def __init__(self, environment: Any):
        self.environment = environment
        self.seed, self.failures = 0, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.environment, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode, if need be of a new copy."""
        self.seed = self.seed if seed is None else seed
        try:
            return self.environment.reset(seed=seed, options=options)
        except Exception as error:
            return self.restart(error)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take an action; one that raises leads to the first observation of a new copy."""
        try:
            return self.environment.step(action)
        except Exception as error:
            observation, info = self.restart(error)
            return observation, 0.0, False, False, info

    def restart(self, error: Exception) -> tuple[Any, dict[str, Any]]:
        """A new copy, with a seed that depends on the old one and on how many copies there were."""
        import gymnasium

        spec = self.environment.spec
        self.failures += 1
        quietly(self.environment.close)
        self.environment = gymnasium.make(spec)
        seed = int(np.random.SeedSequence([self.seed, self.failures]).generate_state(1)[0])
        observation, info = self.environment.reset(seed=seed)
        return observation, {**info, FAILED: said(error)}

    def close(self) -> None:
        """Close the present copy."""
        self.environment.close()


def said(error: Exception) -> str:
    """An error in a few words, and the line that raised it: its traceback ends here."""
    text, trace = " ".join(str(error).split()), traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(trace[-1].filename)}, line {trace[-1].lineno})" if trace else ""
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__) + where


def quietly(release: Callable[[], None]) -> None:
    """Release something that is broken already: how it breaks further is of no interest."""
    with contextlib.suppress(Exception):
        release()
