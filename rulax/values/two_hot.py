"""Values as distributions that a network can learn: squashed, then two-hot.

A value q is squashed by the signed hyperbola h, then spread over the two nearest of `Bins` (Bellemare et al. 2017; MuZero,
appendix F): a head of 601 logits says a value, and a cross-entropy teaches it. Nothing here knows about time.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from rulax.settings import Bounds
from rulax.types import Array


class Bins(NamedTuple):
    """`number` evenly spaced values from `-largest` to `largest`, in squashed space."""

    number: Annotated[int, Bounds(at_least=2)] = 601
    largest: Annotated[float, Bounds(above=0)] = 300.0


BINS = Bins()
SMALL_BINS = Bins(61, 60.0)  # values up to 3,300 at a tenth of the cost: enough where a value is only a baseline


def signed_hyperbolic(x: Array, eps: float = 1e-3) -> Array:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x  (Pohlen et al. 2018); written without its cancellation near 0."""
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + eps * x


def signed_parabolic(x: Array, eps: float = 1e-3) -> Array:
    """The inverse of `signed_hyperbolic`: sign(x) (z^2 - 1) with z = (sqrt(1 + 4 eps (eps + 1 + |x|)) - 1) / (2 eps).

    The textbook form subtracts large numbers (1e-4 off in float32). Here z - 1 = |x| * ratio is formed without subtraction.
    """
    root = jnp.sqrt(1 + 4 * eps * (eps + 1 + jnp.abs(x)))
    ratio = 2 * (1 - 2 * eps / (root + 1 + 2 * eps)) / (root + 1)
    return x * ratio * (jnp.abs(x) * ratio + 2)


def sign_log(x: Array) -> Array:
    """sign(x) log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def support(bins: Bins = BINS, dtype=None) -> Array:
    """The values of the bins, [number]."""
    return jnp.linspace(-bins.largest, bins.largest, bins.number, dtype=dtype)


def two_hot(x: Array, bins: Bins = BINS) -> Array:
    """The distribution over the two bins nearest to `x` whose mean is `x`, [..., number]; beyond the ends, the end."""
    middle = (bins.number - 1) / 2
    # Counted from the middle, where values are small and floats are fine: from the lower end, 300 + x would lose digits of x.
    position = jnp.clip(x, -bins.largest, bins.largest) * (middle / bins.largest)
    # A hat function around x gives both shares at once, without rounding down and without a scatter.
    distance = jnp.abs(position[..., None] - (jnp.arange(bins.number, dtype=position.dtype) - middle))
    return jnp.maximum(0, 1 - distance)


def two_hot_value(values: Array, bins: Bins = BINS) -> Array:
    """A value as the distribution that a head should predict: squashed, then two-hot, [..., number]."""
    return two_hot(signed_hyperbolic(values), bins)


def mean_of_bins(logits: Array, bins: Bins = BINS) -> Array:
    """The mean of the distribution that logits [..., number] say, in squashed space."""
    # A sum, not a matrix product: accelerators round the inputs of products, and 1 part in 256 of a value is too much.
    return jnp.sum(jax.nn.softmax(logits) * support(bins, logits.dtype), -1)


def expected_value(logits: Array, bins: Bins = BINS) -> Array:
    """The value that a two-hot head says, [...]: the inverse of `two_hot_value`."""
    return signed_parabolic(mean_of_bins(logits, bins))


def value_loss(logits: Array, values: Array, bins: Bins = BINS) -> Array:
    """Cross-entropy [...] of a two-hot head [..., number] against the values [...] that it should say."""
    # The target sums to one, so the normaliser of the softmax comes out of the sum.
    return jax.nn.logsumexp(logits, -1) - jnp.sum(two_hot_value(values, bins) * logits, -1)
