"""From an agent's actions to an environment's own: one choice, several at once, real numbers in bins, or real numbers themselves.

An agent that chooses picks one of A choices, or one of A in each of D dimensions. All dimensions have equally many choices, so that
arrays are rectangular; where an environment's dimensions differ, the actions of a smaller one are spread evenly over A choices (so
two choices may mean the same action). Nothing has to be masked, and to a rule every choice is a real one.

An agent that acts by real numbers says one per dimension, in units in which the environment's bounds are -1 and 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

Sizes = Sequence[int] | np.ndarray
BINS = 11  # per dimension of a continuous action, by default
MOST_CHOICES = 4096  # per dimension of integers: beyond that, the action is probably a real number


# Compared by identity: arrays have no hash, and no single truth value when compared.
@dataclasses.dataclass(frozen=True, eq=False)
class Actions:
    """Row d of `values` holds the actions behind the choices of dimension d; the environment takes them in an array of `shape`."""

    values: np.ndarray  # [D, A]
    shape: tuple[int, ...]
    real: bool = False  # whether it takes whatever lies between the first and the last value of a row as well

    @property
    def number(self) -> int:
        """A, the number of choices per dimension."""
        return self.values.shape[1]

    @property
    def dimensions(self) -> int:
        """D, or 0 if there is only one dimension: an action is then a single choice."""
        return len(self.values) if len(self.values) > 1 else 0

    @property
    def real_dimensions(self) -> int:
        """D where an agent may act by real numbers, else 0."""
        return len(self.values) if self.real else 0

    def native_action(self, action: Any, library: Any = np) -> Any:
        """From choices [...] or [..., D], or from real numbers [..., D], to the environment's own actions [..., *shape].

        `library` is numpy or jax.numpy.
        """
        choice = library.asarray(action)
        if np.issubdtype(choice.dtype, np.floating):
            return self._between(choice, library)
        if not self.dimensions:
            choice = choice[..., None]
        # Row and choice are indexed together and broadcast over the leading axes: dimension d reads its own row only.
        own = library.asarray(self.values)[np.arange(len(self.values)), choice]
        return own.reshape(*choice.shape[:-1], *self.shape)

    def _between(self, action: Any, library: Any) -> Any:
        # NaN as 0: an agent that has diverged is reported as such, and must not look like an environment that fails.
        share = library.clip(library.nan_to_num(action), -1, 1)
        low, high = self.values[:, 0], self.values[:, -1]
        # A sum of two shares meets both bounds exactly, as low + share (high - low) does not.
        own = (0.5 * ((1 - share) * low + (1 + share) * high)).astype(self.values.dtype)
        return own.reshape(*action.shape[:-1], *self.shape)


class ByTable:
    """A mixin for environments that have a table of actions, which defines how many choices there are and what they mean."""

    actions: Actions

    @property
    def num_actions(self) -> int:
        """A."""
        return self.actions.number

    @property
    def action_dimensions(self) -> int:
        """D, or 0 for a single choice."""
        return self.actions.dimensions

    @property
    def real_dimensions(self) -> int:
        """D where an agent may act by real numbers, else 0."""
        return self.actions.real_dimensions

    def native_action(self, action: np.ndarray) -> np.ndarray:
        """The environment's own actions."""
        return self.actions.native_action(action)


def one_of(number: int, start: int = 0) -> Actions:
    """One choice among `number` actions, which the environment numbers from `start`."""
    return Actions(start + np.arange(number)[None], ())


def several_of(sizes: Sizes, starts: Sizes | None = None, shape: tuple[int, ...] | None = None) -> Actions:
    """Several choices at once, one among each of `sizes`; the environment numbers them from `starts`."""
    number, first = np.asarray(sizes).reshape(-1, 1), np.asarray(starts if starts is not None else 0).reshape(-1, 1)
    if not number.size or number.min() < 1:
        raise ValueError(f"an action has at least one dimension and a dimension at least one choice, not {list(sizes)}")
    most = int(number.max())
    # Two actions over four choices become 0, 0, 1, 1: no action is out of reach, whatever the sizes.
    return Actions(first + np.arange(most) * number // most, (len(number),) if shape is None else shape)


def evenly_spaced(low: np.ndarray, high: np.ndarray, bins: int = BINS, real: bool = False) -> Actions:
    """`bins` evenly spaced real numbers per dimension, from `low` to `high`, both of the shape that the environment takes.

    `real`: whether agents may also say any number between.
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 2:
        raise ValueError(f"bins must be a whole number of at least 2, not {bins!r}")
    if not low.size or not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError("its action space is unbounded: give it finite low and high")
    # Dimension d is entry d of the flattened action; `native_action` restores the shape.
    return Actions(np.linspace(low.ravel(), high.ravel(), bins, axis=-1).astype(low.dtype), low.shape, real)


def between(low: np.ndarray, high: np.ndarray, bins: int | None = None) -> Actions:
    """The actions between two bounds, in their dtype: every integer, or real numbers, of which `bins` leaves only so many."""
    if np.issubdtype(low.dtype, np.floating):
        return evenly_spaced(low, high, BINS if bins is None else bins, real=bins is None)
    if bins is not None:
        raise ValueError("whole numbers need no bins: leave the option bins out")
    if np.any(high.astype(np.float64) - low >= MOST_CHOICES):  # as floats, since in its own bits a difference may not fit
        raise ValueError(f"{MOST_CHOICES} choices in one dimension are the most that an agent is given")
    # In 64 bits, because in the dtype of the bounds `high - low + 1` may overflow.
    first = low.astype(np.int64)
    choices = several_of((high.astype(np.int64) - first + 1).ravel(), first.ravel(), low.shape)
    return dataclasses.replace(choices, values=choices.values.astype(low.dtype))
