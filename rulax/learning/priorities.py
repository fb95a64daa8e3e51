"""Prioritised replay (Schaul et al. 2016): trajectories with large errors are drawn more often, and weigh less where they are.

The unit is a trajectory, as in all replay here (`replay.py`). Its priority is made of the errors of its valid steps as in R2D2
(Kapturowski et al. 2019), with a share of 0.9 for the largest:

    p_i = 0.9 max_t |error_t| + 0.1 mean_t |error_t| + 1e-6
    P(i) = p_i^alpha / sum_j p_j^alpha        alpha = `Learning.replay_priority`
    w_i = (N P(i))^-beta / max_j w_j          beta = `Learning.replay_correction`, the maximum over those that were drawn

What is new has the largest priority of all that the buffer holds, so that it is soon learned from. The weights reach the loss as
`Experience.weight`. Errors are what a rule's `priority` says of the steps that it has just learned from.

Drawing takes a running sum over the whole buffer and not a tree of sums: one pass over C numbers is little beside the update that
follows, and it is the same few lines for either kind of buffer.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.types import Array

LARGEST = 0.9  # share of a trajectory's largest error in its priority
LEAST = 1e-6  # that every trajectory has, so that none is out of reach
FIRST = 1.0  # priority of the first trajectories, when there are no others to compare with


def trajectory_priority(errors: Array, valid: Array) -> Array:
    """Priorities [B] of trajectories, from the errors [T, B] of their steps."""
    # `where` before anything is added up: what an invalid step says may be a NaN.
    sizes = jnp.where(valid, jnp.abs(errors), 0)
    mean = jnp.sum(sizes, 0) / jnp.maximum(jnp.sum(valid, 0), 1)
    return LARGEST * jnp.max(sizes, 0) + (1 - LARGEST) * mean + LEAST


def priority_of_new(priority: Array) -> Array:
    """The priority [] of what is about to be stored, from those that are [..., C]; 0 marks a place that is still empty."""
    largest = jnp.max(priority, -1)
    return jnp.where(largest > 0, largest, FIRST)


def draw(key: Array, priority: Array, filled: Array, number: int, alpha: float) -> Array:
    """Places [number] of trajectories, drawn with replacement in proportion to priorities [C] to the power of alpha."""
    sums = jnp.cumsum(priority**alpha)
    drawn = jnp.searchsorted(sums, sums[-1] * jax.random.uniform(key, (number,), sums.dtype), side="right")
    # Rounding may reach the end of the last trajectory, behind which there are only empty places.
    return jnp.minimum(drawn, filled - 1).astype(jnp.int32)


def importance_weights(priority: Array, filled: Array, drawn: Array, alpha: float, beta: float) -> Array:
    """Weights [number] of the losses of trajectories at the places `drawn`; the largest of them is 1."""
    mass = priority**alpha
    weights = (filled * mass[drawn] / jnp.sum(mass)) ** -beta
    return weights / jnp.max(weights)
