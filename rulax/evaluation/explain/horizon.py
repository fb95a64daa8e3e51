"""Analysis 3: the bootstrapping horizon. How much do the targets at t change if the predictions at t + k are replaced?"""

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
    """Mean change of each target at t when the values at t + k are replaced, for k = 0..furthest.

    Args:
        respond: computes the targets.
        operands: its other inputs.
        values: predictions, leaves [T+1, B, ...].
        donors: their replacements, of the same shapes.
        ends: steps after which an episode ends, [T, B]; pairs (t, t + k) with an end between them are left out.
        furthest: the largest k.
        distance: between targets before and after, per step; by default KL(before || after) of logits.

    Returns:
        By name of the target, one row per k, with intervals over streams.
    """
    length, ask = ends.shape[0], with_one_replaced(respond)
    # Moved to the device once, not once for every state that is replaced.
    values, donors = jax.tree.map(jnp.asarray, (values, donors))
    # Out of range, so nothing is replaced: the same compiled program makes the baseline.
    before = ask(length + 1, operands, values, donors)
    # One state at a time: all of them at once would be gigabytes of targets, and twice the program to compile.
    each = [apart(distance)(before, ask(state, operands, values, donors)) for state in range(length + 1)]
    linked = connected(ends)
    changes = {name: np.stack([change[name] for change in each]) for name in before}
    return {name: [by_distance(change, linked, k) for k in range(min(furthest, length) + 1)] for name, change in changes.items()}


@functools.lru_cache(maxsize=16)
def with_one_replaced(respond: Respond) -> Callable[..., dict[str, Array]]:
    """The targets with the values of one state replaced, or none if the number is out of range; compiled once per `respond`."""

    def replaced(state: Array, operands: PyTree, values: PyTree, donors: PyTree) -> dict[str, Array]:
        return respond(operands, jax.tree.map(lambda own, other: own.at[state].set(other[state], mode="drop"), values, donors))

    return jax.jit(replaced)


@functools.lru_cache(maxsize=4)
def apart(distance: Callable[[Array, Array], Array]) -> Callable[..., dict[str, Array]]:
    """A compiled function: the distance [T, B] between two versions of each target."""
    return jax.jit(lambda before, after: {name: distance(before[name], after[name]) for name in before})


def connected(ends: np.ndarray) -> np.ndarray:
    """Whether state s is at or after step t with no end between them, [T+1, T, B] for s, t and the stream; `ends` [T, B]."""
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
    """Mean change [S, T, B] over all linked pairs that are `distance` apart, with its interval over streams."""
    steps = np.arange(change.shape[1])
    states = steps + distance
    inside = states < change.shape[0]
    picked = np.where(linked[states[inside], steps[inside]], change[states[inside], steps[inside]], np.nan)  # [P, B]
    streams = np.broadcast_to(np.arange(change.shape[2]), picked.shape)
    return {"distance": distance, **over_groups(picked, streams)}


def donors_of(values: PyTree, seed: int) -> PyTree:
    """Replacements for predictions: those of another stream at the same time, so that they are realistic."""
    streams = jax.tree.leaves(values)[0].shape[1]
    # Never 0 where there is more than one stream: none may get its own predictions back.
    shift = int(np.random.default_rng(seed).integers(1, max(2, streams)))
    return jax.tree.map(lambda x: np.roll(np.asarray(x), shift, axis=1), values)
