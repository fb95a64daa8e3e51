"""Other libraries' environments behind the contract of `envs/base.py`; this file has what their adapters share.

An adapter is one file with `make(id, **options)` and `ids()`. It imports its library inside of functions, so that the file itself
can always be imported: a missing library is an error with the command that installs it, raised only when it is needed.
"""

from __future__ import annotations

import importlib
import math
import os
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rulax.envs.actions import Actions, between, one_of, several_of
from rulax.envs.adapters.limit import Hung
from rulax.errors import suggestion
from rulax.settings import check_value
from rulax.text import convert_like

SPACES = ("Discrete", "MultiDiscrete", "MultiBinary", "Box")  # of actions, by name: each library has its own classes
OUT_OF_REACH = 2**30  # a time limit that no episode reaches, and that does not overflow when one is added to it


def load(module: str, extra: str) -> Any:
    """Import a module of an optional library; if it is missing, the error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{extra} cannot be imported ({error}): pip install 'rulax[{extra}]'") from error


def read_options(label: str, defaults: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """An adapter's defaults updated by a user's options; unknown and ill-typed options raise a ValueError."""
    for name in options:
        if name not in defaults:
            raise ValueError(f"'{label}' has no option '{name}'; it has {', '.join(defaults)}")
    return {**defaults, **{name: convert_like(f"'{label}': {name}", defaults[name], value) for name, value in options.items()}}


def check_least(label: str, options: Mapping[str, Any], **least: int) -> None:
    """Refuse the first of some options that is below the least that it may be."""
    for name, bound in least.items():
        check_value(f"'{label}': {name}", options[name], {"at_least": bound})


def planes(codes: Any, sizes: Sequence[int], xp: Any) -> Any:
    """Integer codes [..., C] as one-hot planes [..., sum(sizes)], since codes have no order. `xp` is numpy or jax.numpy."""
    shown = [codes[..., i, None] == xp.arange(size) for i, size in enumerate(sizes)]
    return xp.concatenate(shown, axis=-1).astype(xp.float32)


def channels_last(image: Any, declared: tuple[int, ...]) -> np.ndarray:
    """An image [..., C, H, W] as [..., H, W, C]; one that has the declared shape [H, W, C] already stays as it is."""
    image, (height, width, channels) = np.asarray(image), declared
    turned = image.shape[-3:] == (channels, height, width) and image.shape[-3:] != declared
    return np.moveaxis(image, -3, -1) if turned else image


def one_hot(observation: Any, categories: int, first: int = 0) -> np.ndarray:
    """Indices [...] of a `Discrete` space as one-hot vectors [..., categories]; floats are taken to be one-hot already."""
    indices = np.asarray(observation)
    if not np.issubdtype(indices.dtype, np.integer):
        return indices
    if np.any((indices < first) | (indices >= first + categories)):
        raise ValueError(f"an observation is one of {categories} indices from {first} on, not {observation}")
    return np.eye(categories, dtype=np.float32)[indices - first]


def unknown_id(library: str, id: str, known: Sequence[str], hint: str = "") -> ValueError:
    """The error for an id that a library does not have, with the ids that look like it."""
    return ValueError(f"unknown {library} environment {id!r}{suggestion(id, known, f'no id looks like it{hint}', most=3)}")


def read_actions(library: str, id: str, space: Any, bins: int | None = None) -> Actions:
    """The actions of a space of Gymnasium or gymnax; `bins` per dimension of a Box of real numbers."""
    about = f"{library} environment {id!r} has actions of kind {type(space).__name__}"
    kind = next((each.__name__ for each in type(space).__mro__ if each.__name__ in SPACES), None)
    if kind != "Box" and bins is not None:
        raise ValueError(f"{about}, which need no bins: leave the option bins out")
    if kind == "Discrete":
        return one_of(int(space.n), int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return several_of(space.nvec.ravel(), space.start.ravel(), space.shape)
    if kind == "MultiBinary":
        return several_of(np.full(math.prod(space.shape), 2), shape=space.shape)
    if kind != "Box":
        raise ValueError(f"{about}, which no agent chooses from; it could from {', '.join(SPACES)}")
    return read_bounded(about, space, space.low, space.high, bins)


def read_bounded(about: str, space: Any, low: Any, high: Any, bins: int | None) -> Actions:
    """The actions of a space with bounds `low` and `high`, in the space's shape and dtype."""
    low, high = (np.broadcast_to(np.asarray(end, np.dtype(space.dtype)), space.shape) for end in (low, high))
    try:
        return between(low, high, bins)
    except ValueError as error:
        raise ValueError(f"{about}: {error}") from error


def said(error: BaseException) -> str:
    """An error as one line of text with the place that raised it, because its traceback is not kept."""
    text, trace = " ".join(str(error).split()), traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(trace[-1].filename)}, line {trace[-1].lineno})" if trace else ""
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__) + where


def quietly(release: Callable[[], None]) -> None:
    """Release something that is already broken, and ignore further errors."""
    try:
        release()
    except BaseException as error:
        if not is_an_environments(error):
            raise


def is_an_environments(error: BaseException) -> bool:
    """Whether an environment raised this by itself, `SystemExit` and `KeyboardInterrupt` included: no Ctrl-C, no limit of time."""
    if isinstance(error, KeyboardInterrupt):
        main = threading.current_thread() is threading.main_thread()
        return not (main and signal.getsignal(signal.SIGINT) is signal.default_int_handler)  # nobody else raises it elsewhere
    return not isinstance(error, Hung)
