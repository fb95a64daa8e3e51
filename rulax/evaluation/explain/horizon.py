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
    length = ends.shape[0]
    changes = jax.tree.map(np.asarray, compiled(respond, distance, length)(operands, values, donors))
    linked = connected(ends)
    return {name: [by_distance(change, linked, k) for k in range(min(furthest, length) + 1)] for name, change in changes.items()}


@functools.lru_cache(maxsize=16)
def compiled(respond: Respond, distance: Callable[[Array, Array], Array], length: int) -> Callable[..., dict[str, Array]]:
    """The changes [S, T, B] of each target at t for each replaced state s; compiled once for one way to respond."""

    def changed(index: Array, operands: PyTree, values: PyTree, donors: PyTree) -> dict[str, Array]:
        before = respond(operands, values)
        swapped = jax.tree.map(lambda own, other: own.at[index].set(other[index]), values, donors)
        after = respond(operands, swapped)
        return {name: distance(before[name], after[name]) for name in before}

    def every(operands: PyTree, values: PyTree, donors: PyTree) -> dict[str, Array]:
        values, donors = jax.tree.map(jnp.asarray, (values, donors))
        return jax.lax.map(lambda index: changed(index, operands, values, donors), jnp.arange(length + 1))

    return jax.jit(every)


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
