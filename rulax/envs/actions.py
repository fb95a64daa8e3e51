"""What an agent's choices mean in an environment's own numbers: one table for single choices, several at once, and real numbers by
bins.

An agent only ever chooses: one of A, or D times one of A. All dimensions have equally many choices, so that arrays are
rectangular; where an environment's dimensions differ, the choices of a smaller one are shared out evenly among A (of 5, two may
mean the same). So nothing has to be masked, and to a rule every choice is a real one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

Sizes = Sequence[int] | np.ndarray
BINS = 11  # per dimension of a continuous action, unless somebody says otherwise
MOST_CHOICES = 4096  # per dimension of whole numbers: beyond, somebody meant a real one


@dataclasses.dataclass(frozen=True, eq=False)
class Actions:
    """Row d of `values` holds what the choices of dimension d mean; the environment wants them in an array of `shape`."""

    values: np.ndarray  # [D, A]
    shape: tuple[int, ...]

    @property
    def number(self) -> int:
        """A, the choices per dimension."""
        return self.values.shape[1]

    @property
    def dimensions(self) -> int:
        """D, or 0 where there is but one: an agent then makes one plain choice."""
        return len(self.values) if len(self.values) > 1 else 0

    def native_action(self, action: Any, library: Any = np) -> Any:
        """From choices [...] or [..., D] to the environment's own actions [..., *shape], by numpy or by jax.numpy."""
        choice = library.asarray(action)
        if not self.dimensions:
            choice = choice[..., None]
        own = library.asarray(self.values)[np.arange(len(self.values)), choice]
        return own.reshape(*choice.shape[:-1], *self.shape)


class ByTable:
    """Mixed into an environment whose choices stand in a table: how many there are, and what they mean, is read off it."""

    actions: Actions

    @property
    def num_actions(self) -> int:
        """A."""
        return self.actions.number

    @property
    def action_dimensions(self) -> int:
        """D, or 0 for one plain choice."""
        return self.actions.dimensions

    def native_action(self, action: np.ndarray) -> np.ndarray:
        """The environment's own actions."""
        return self.actions.native_action(action)


def one_of(number: int, start: int = 0) -> Actions:
    """One choice among `number`, which the environment counts from `start`."""
    return Actions(start + np.arange(number)[None], ())


def several_of(sizes: Sizes, starts: Sizes | None = None, shape: tuple[int, ...] | None = None) -> Actions:
    """Several choices at once, of which each may be among another number."""
    number, first = np.asarray(sizes).reshape(-1, 1), np.asarray(starts if starts is not None else 0).reshape(-1, 1)
    if not number.size or number.min() < 1:
        raise ValueError(f"an action has at least one dimension and a dimension at least one choice, not {list(sizes)}")
    most = int(number.max())
    return Actions(first + np.arange(most) * number // most, (len(number),) if shape is None else shape)


def evenly_spaced(low: np.ndarray, high: np.ndarray, bins: int = BINS) -> Actions:
    """Real numbers between `low` and `high`, both of the shape that the environment wants: `bins` of them per dimension."""
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 2:
        raise ValueError(f"bins must be a whole number of at least 2, not {bins!r}")
    if not low.size or not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError("real numbers can only be chosen from between two finite ends, and this action has no such ends")
    return Actions(np.linspace(low.ravel(), high.ravel(), bins, axis=-1).astype(low.dtype), low.shape)


def between(low: np.ndarray, high: np.ndarray, bins: int | None = None) -> Actions:
    """What there is to choose between two ends, in the dtype that they have: whole numbers one by one, real ones by bins."""
    if np.issubdtype(low.dtype, np.floating):
        return evenly_spaced(low, high, BINS if bins is None else bins)
    if bins is not None:
        raise ValueError("whole numbers need no bins: leave the option bins out")
    if np.any(high.astype(np.float64) - low >= MOST_CHOICES):  # as floats, since in its own bits a difference may not fit
        raise ValueError(f"{MOST_CHOICES} choices in one dimension are the most that an agent is given")
    first = low.astype(np.int64)
    choices = several_of((high.astype(np.int64) - first + 1).ravel(), first.ravel(), low.shape)
    return dataclasses.replace(choices, values=choices.values.astype(low.dtype))
