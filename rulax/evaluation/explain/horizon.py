"""Analysis 3: the bootstrapping horizon. What is predicted at t + k is replaced; how much do the targets at t change?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.evaluation.explain.divergence import divergence
from rulax.evaluation.explain.intervals import over_groups
from rulax.types import Array, PyTree

Respond = Callable[[PyTree, PyTree], dict[str, Array]]  # (operands, values) -> targets [T, B, ...]


def reach(
    respond: Respond,
    operands: PyTree,
    values: PyTree,
    donors: PyTree,
    ends: np.ndarray,
    furthest: int = 15,
    distance: Callable[[Array, Array], Array] = divergence,
) -> dict[str, list[dict[str, Any]]]:
    """Mean change of each target at t when `values` [T+1, B, ...] at t + k are replaced by `donors`, for k = 0..furthest.

    `ends` [T, B] marks steps after which nothing counts: pairs (t, t + k) with an end between them are left out. `distance` is
    between targets before and after, per step; by default KL(before || after) of logits. Intervals are over streams.
    """
    length, ask = ends.shape[0], compiled(respond)
    values, donors = jax.tree.map(jnp.asarray, (values, donors))
    before = ask(length + 1, operands, values, donors)
    # One state after the other: all of them at once would be gigabytes of targets, and twice the program to compile.
    each = [apart(distance)(before, ask(state, operands, values, donors)) for state in range(length + 1)]
    linked = connected(ends)
    changes = {name: np.stack([change[name] for change in each]) for name in before}
    return {name: [by_distance(change, linked, k) for k in range(min(furthest, length) + 1)] for name, change in changes.items()}


@functools.lru_cache(maxsize=16)
def compiled(respond: Respond) -> Callable[..., dict[str, Array]]:
    """The targets with one state replaced, or none if there is no state of that number; compiled once for one way to respond."""

    def replaced(state: Array, operands: PyTree, values: PyTree, donors: PyTree) -> dict[str, Array]:
        return respond(operands, jax.tree.map(lambda own, other: own.at[state].set(other[state], mode="drop"), values, donors))

    return jax.jit(replaced)


@functools.lru_cache(maxsize=4)
def apart(distance: Callable[[Array, Array], Array]) -> Callable[..., dict[str, Array]]:
    """The distance [T, B] of each target from the one before."""
    return jax.jit(lambda before, after: {name: distance(before[name], after[name]) for name in before})


def connected(ends: np.ndarray) -> np.ndarray:
    """[S, T, B]: whether state s comes after step t (or is its own) with no end between."""
    length, streams = ends.shape
    found = np.zeros((length + 1, length, streams), bool)
    for step in range(length):
        open_ = np.ones(streams, bool)
        for state in range(step, length + 1):
            found[state, step] = open_
            if state < length:
                open_ = open_ & ~ends[state]
    return found


def by_distance(change: np.ndarray, linked: np.ndarray, distance: int) -> dict[str, Any]:
    """Mean over all pairs that are `distance` apart, with its interval over streams."""
    steps = np.arange(change.shape[1])
    states = steps + distance
    inside = states < change.shape[0]
    picked = np.where(linked[states[inside], steps[inside]], change[states[inside], steps[inside]], np.nan)  # [P, B]
    streams = np.broadcast_to(np.arange(change.shape[2]), picked.shape)
    return {"distance": distance, **over_groups(picked, streams)}


def donors_of(values: PyTree, seed: int) -> PyTree:
    """What replaces a prediction: that of another stream at the same time, so that it is one an agent does make."""
    streams = jax.tree.leaves(values)[0].shape[1]
    shift = int(np.random.default_rng(seed).integers(1, max(2, streams)))
    return jax.tree.map(lambda x: np.roll(np.asarray(x), shift, axis=1), values)
