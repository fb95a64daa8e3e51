"""How rules write numbers so that networks can learn them: two-hot values, categorical losses, moving normalisation.

A value q is squashed by the signed hyperbola h, then spread over the two nearest of `Bins` (Bellemare et al. 2017; MuZero,
appendix F): a head of 601 logits says a value, and a cross-entropy teaches it. Nothing here knows about time.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.types import Array, Factored, Policy, logits_of


class Bins(NamedTuple):
    """`number` evenly spaced values from `-largest` to `largest`, in squashed space."""

    number: int = 601
    largest: float = 300.0


BINS = Bins()
SMALL_BINS = Bins(61, 60.0)  # values up to 3,300 at a tenth of the cost: enough where a value is only a baseline


class Moments(NamedTuple):
    """Exponential moving averages of a number and of its square, both started at zero."""

    moment1: Array  # []
    moment2: Array  # []
    decay_product: Array  # [] product of all decays so far: 1 before the first update


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


def at_action(values: Array, action: Array) -> Array:
    """Of values per action [..., A], the one at `action` [...]."""
    return jnp.take_along_axis(values, action[..., None], -1)[..., 0]


def log_probability(policy: Policy, action: Array) -> Array:
    """Log-probability [...] of an action, [...] or with all its dimensions [..., D], under a policy of logits [..., A]."""
    return joint(policy, at_action(jax.nn.log_softmax(logits_of(policy)), action))


def entropy(policy: Policy) -> Array:
    """Entropy [...] of the distribution over actions that a policy of logits [..., A] says."""
    logits = logits_of(policy)
    return joint(policy, -jnp.sum(jax.nn.softmax(logits) * jax.nn.log_softmax(logits), -1))


def kl(target_policy: Policy, policy: Policy) -> Array:
    """KL(target || prediction) [...] of two categorical distributions given as logits."""
    target = jax.nn.log_softmax(logits_of(target_policy))
    return joint(policy, jnp.sum(jnp.exp(target) * (target - jax.nn.log_softmax(logits_of(policy))), -1))


def joint(policy: Policy, values: Array) -> Array:
    """What holds of an action [...], from what holds of each of its dimensions [..., D]: they are independent, so it adds up."""
    return jnp.sum(values, -1) if isinstance(policy, Factored) else values


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
    seen = 1 - moments.decay_product
    weight = 1 / jnp.where(seen > 0, seen, 1)
    mean = moments.moment1 * weight
    variance = jnp.maximum(0, moments.moment2 * weight - jnp.square(mean))
    # 1e-12 keeps the root differentiable at 0. Before the first update there is no scale: leave the values as they are.
    scale = jnp.where(seen > 0, jnp.sqrt(variance + 1e-12) + eps, 1)
    return (values - mean if subtract_mean else values) / scale
