"""Means over valid entries, and normalisation by moving averages over an agent's lifetime."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rulax.types import Array


class Moments(NamedTuple):
    """Exponential moving averages of a number and of its square, both started at zero."""

    moment1: Array  # []
    moment2: Array  # []
    decay_product: Array  # [] product of all decays so far: 1 before the first update


def masked_mean(values: Array, valid: Array | None = None) -> Array:
    """Mean over the entries where `valid`; 0 if there are none."""
    if valid is None:
        return jnp.mean(values)
    # A choice, not a product: an invalid entry may hold anything.
    return jnp.sum(jnp.where(valid, values, 0)) / jnp.maximum(jnp.sum(valid), 1).astype(values.dtype)


def standardise(values: Array, valid: Array | None = None, eps: float = 1e-8) -> Array:
    """Values with mean 0 and deviation 1 over the valid entries; 0 elsewhere."""
    centred = values - masked_mean(values, valid)
    scaled = centred / (jnp.sqrt(masked_mean(jnp.square(centred), valid)) + eps)
    return scaled if valid is None else jnp.where(valid, scaled, 0)


def start_moments(dtype=None) -> Moments:
    """Moments that have seen nothing."""
    return Moments(jnp.zeros((), dtype), jnp.zeros((), dtype), jnp.ones((), dtype))


def update_moments(moments: Moments, values: Array, valid: Array | None = None, decay: float = 0.99) -> Moments:
    """Move the averages towards the means over a batch; a batch without valid entries changes nothing."""
    keep = decay if valid is None else jnp.where(jnp.any(valid), decay, 1.0).astype(values.dtype)
    return Moments(
        keep * moments.moment1 + (1 - keep) * masked_mean(values, valid),
        keep * moments.moment2 + (1 - keep) * masked_mean(jnp.square(values), valid),
        keep * moments.decay_product,
    )


def normalise(values: Array, moments: Moments, subtract_mean: bool = True, eps: float = 1e-6) -> Array:
    """Values over their moving deviation, with their moving mean subtracted or not; both corrected for the start at zero."""
    # Bias correction as in Adam: averages that started at zero, divided by the weight of what has been seen.
    seen = 1 - moments.decay_product
    weight = 1 / jnp.where(seen > 0, seen, 1)
    mean = moments.moment1 * weight
    # Rounding may make the difference of two nearly equal moments negative.
    variance = jnp.maximum(0, moments.moment2 * weight - jnp.square(mean))
    # 1e-12 keeps the root differentiable at 0. Before the first update there is no scale: leave the values as they are.
    scale = jnp.where(seen > 0, jnp.sqrt(variance + 1e-12) + eps, 1)
    return (values - mean if subtract_mean else values) / scale
