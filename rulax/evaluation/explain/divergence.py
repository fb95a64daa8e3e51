"""KL divergence between targets that hardly differ: the analyses measure small changes with it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.types import Array

NEAR = 0.1  # difference of log probabilities below which a series is used


def divergence(before: Array, after: Array) -> Array:
    """KL(before || after) [...] of categorical distributions given as logits [..., N], accurate where it is tiny, never negative.

        sum p log(p / q) = sum p (exp(d) - 1 - d)        with d = log q - log p, because both sum to one

    The left side is a sum of large terms that cancel: in single precision its error is about 1e-7, of either sign, which is more
    than a rule's targets change when a distant input changes. On the right no term is negative.
    """
    old, new = jax.nn.log_softmax(before), jax.nn.log_softmax(after)
    share, gap = jnp.exp(old), new - old
    series = gap**2 * (1 / 2 + gap * (1 / 6 + gap * (1 / 24 + gap / 120)))  # exp(d) - 1 - d without its cancellation
    terms = jnp.where(jnp.abs(gap) < NEAR, share * series, jnp.exp(new) - share - share * gap)
    # No term is negative in exact arithmetic; what is below 0 is rounding.
    return jnp.sum(jnp.maximum(terms, 0), -1)
