"""One reset and one step of a probe, to refuse environments that break their library's interface.

Such an environment would otherwise train silently and wrongly: the `info` of an older interface, say, read as `truncated`. An
environment that raises is not refused, because it is restarted during training (`restart.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rulax.envs.adapters import quietly, said
from rulax.types import PyTree

FORMS = {"reset": "observation, info", "step": "observation, reward, terminated, truncated, info"}


def check_gymnasium(environment: Any, env: Any) -> None:
    """That `reset` and `step` return what Gymnasium says, inside of all wrappers and outside."""
    about = f"Gymnasium environment {environment.name!r}"
    inside, outside = _recorded(env.unwrapped), {}

    # What raises leaves no entry. `inside` is filled by the same two calls.
    def look() -> None:
        outside["reset"] = env.reset(seed=0)
        outside["step"] = env.step(first_choice(environment))

    quietly(look)
    for returned in (inside, outside):  # inside first: a wrapper would only say that it cannot unpack
        for name, value in returned.items():
            _check_form(about, name, value)
    for returned in outside.values():
        check_observation(about, environment, returned[0])
    if "step" in outside:
        check_reward(about, outside["step"][1])


def _recorded(env: Any) -> dict[str, Any]:
    """Filled by the environment's `reset` and `step`, when they return."""
    returned: dict[str, Any] = {}

    def recording(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            returned[name] = method(*arguments, **options)
            return returned[name]

        return call

    with contextlib.suppress(AttributeError):  # of an object that takes no new attributes
        for name in FORMS:
            setattr(env, name, recording(name, getattr(env, name)))
    return returned


def _check_form(about: str, name: str, returned: Any) -> None:
    number = len(FORMS[name].split(", "))
    if not isinstance(returned, tuple) or len(returned) != number:
        what = f"{len(returned)} values" if isinstance(returned, tuple) else f"one {type(returned).__name__}"
        raise ValueError(f"{about}: {name} must return {number} values ({FORMS[name]}) as Gymnasium has it, not {what}")
    for flag, value in zip(("terminated", "truncated"), returned[2:4], strict=False):
        if np.ndim(value) or np.asarray(value).dtype.kind not in "biuf":
            raise ValueError(f"{about}: step must return True or False as {flag}, not {_briefly(value)}")


def check_observation(about: str, environment: Any, observation: Any, read: Callable[[Any], PyTree] = lambda shown: shown) -> None:
    """That an observation can be read, and has the shape that was declared."""
    try:
        shown = environment.stacked([read(observation)])
    except Exception as error:
        raise ValueError(f"{about} shows an observation that is not in its own space: {said(error)}") from error
    for declared, part in zip(jax.tree.leaves(environment.observation), jax.tree.leaves(shown), strict=True):
        if part.shape[1:] != declared.shape:
            raise ValueError(f"{about} shows an observation of shape {part.shape[1:]}, but its space says {declared.shape}")


def check_reward(about: str, reward: Any) -> None:
    """That it is one number, perhaps none that is finite: the trainer looks for those."""
    try:
        one = not np.ndim(reward) and isinstance(float(reward), float)
    except (TypeError, ValueError):
        one = False
    if not one:
        raise ValueError(f"{about}: a reward must be one number, not {_briefly(reward)}")


def first_choice(environment: Any) -> Any:
    """Choice 0 in every dimension, written as `CopiedStreams` write it."""
    dimensions = environment.action_dimensions
    own = environment.native_action(np.zeros((1, dimensions) if dimensions else 1, np.int64))
    return own.tolist()[0] if own.ndim == 1 else own[0]


def _briefly(value: Any) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
