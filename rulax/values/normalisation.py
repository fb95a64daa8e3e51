"""Means over valid entries, and normalisation over an agent's lifetime: by moving averages, or by all that was ever seen."""

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
    """Move the averages towards the means over a batch; a batch without valid entries changes nothing.

    Args:
        moments: the averages so far, [] each.
        values: [...], the batch.
        valid: [...], which of them count; None means all.
        decay: weight of the averages so far.
    """
    keep = decay if valid is None else jnp.where(jnp.any(valid), decay, 1.0).astype(values.dtype)
    return Moments(
        keep * moments.moment1 + (1 - keep) * masked_mean(values, valid),
        keep * moments.moment2 + (1 - keep) * masked_mean(jnp.square(values), valid),
        keep * moments.decay_product,
    )


def normalise(values: Array, moments: Moments, subtract_mean: bool = True, eps: float = 1e-6) -> Array:
    """Values over their moving deviation, with their moving mean subtracted or not; both corrected for the start at zero.

    Args:
        values: [...].
        moments: their moving averages, [] each.
        subtract_mean: whether the mean is taken away.
        eps: added to the deviation.
    """
    # Bias correction as in Adam: averages that started at zero, divided by the weight of what has been seen.
    seen = 1 - moments.decay_product
    weight = 1 / jnp.where(seen > 0, seen, 1)
    mean = moments.moment1 * weight
    # Rounding may make the difference of two nearly equal moments negative.
    variance = jnp.maximum(0, moments.moment2 * weight - jnp.square(mean))
    # 1e-12 keeps the root differentiable at 0. Before the first update there is no scale: leave the values as they are.
    scale = jnp.where(seen > 0, jnp.sqrt(variance + 1e-12) + eps, 1)
    return (values - mean if subtract_mean else values) / scale


# -- by all that was ever seen -----------------------------------------------------------------------------------------------------


class Statistics(NamedTuple):
    """Mean and variance of everything so far."""

    number: Array  # [] of values
    mean: Array  # [*shape]
    variance: Array  # [*shape], that of the population: the mean squared distance from the mean


def start_statistics(shape: tuple[int, ...] = (), dtype=jnp.float32) -> Statistics:
    """Statistics that have seen nothing."""
    return Statistics(jnp.zeros((), dtype), jnp.zeros(shape, dtype), jnp.ones(shape, dtype))


def merge_statistics(statistics: Statistics, values: Array, valid: Array) -> Statistics:
    """Statistics of what they are of and of the valid values as well (Chan, Golub and LeVeque, 1979).

    Args:
        statistics: of values [*shape].
        values: [..., *shape].
        valid: [...], which of them count.
    """
    valid = valid.reshape(valid.shape + (1,) * (values.ndim - valid.ndim))
    axes = tuple(range(values.ndim - statistics.mean.ndim))
    new = jnp.sum(valid).astype(values.dtype)

    def mean_of(each: Array) -> Array:
        return jnp.sum(jnp.where(valid, each, 0), axes) / jnp.maximum(new, 1)

    mean = mean_of(values)
    variance = mean_of(jnp.square(values - mean))
    # Shares, not sums of squares, which would grow without end and lose their last digits. In float32 the number stops growing at
    # 2^24 batches; from there on the share of each stays the same, and the statistics are moving averages over that many.
    number = statistics.number + new
    share = new / jnp.maximum(number, 1)
    apart = mean - statistics.mean
    return Statistics(
        number,
        statistics.mean + share * apart,
        (1 - share) * statistics.variance + share * variance + share * (1 - share) * jnp.square(apart),
    )


def standardised(statistics: Statistics, values: Array, most: float = 10.0, eps: float = 1e-8) -> Array:
    """Values [..., *shape] less their mean and over their deviation, cut off at `most`; as they are before anything was seen.

    Args:
        statistics: of values [*shape].
        values: [..., *shape].
        most: largest absolute value of the result.
        eps: added to the variance.
    """
    scaled = jnp.clip((values - statistics.mean) / jnp.sqrt(statistics.variance + eps), -most, most)
    return jnp.where(statistics.number > 0, scaled, values)


def over_deviation(statistics: Statistics, values: Array, most: float = 10.0, eps: float = 1e-8) -> Array:
    """Values over the deviation of the statistics, cut off at `most`; their mean stays.

    Args:
        statistics: of values [*shape].
        values: [..., *shape].
        most: largest absolute value of the result.
        eps: added to the variance.
    """
    return jnp.clip(values / jnp.sqrt(statistics.variance + eps), -most, most)
