"""The two-hot code that Disco103 was found with, and its loss. Used by rules/disco.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.types import Array
from rulax.values.two_hot import Bins, signed_hyperbolic, two_hot

LEAN = 1e-5  # the reference divides by the width of a bin plus this, so that a value on a bin needs no special case


def leaning_two_hot(squashed: Array, bins: Bins) -> Array:
    """As `values.two_hot`, but leaning to the upper bin by a part in 1e5, as in the reference: [..., number].

    The lower bin's share is (upper - x) / (width + 1e-5) and the upper bin gets the rest; a value on a bin is one-hot.
    """
    middle = (bins.number - 1) / 2
    width, offset = bins.largest / middle, middle % 1  # bins lie on whole multiples of the width, or (even number) on halves
    position = jnp.clip(squashed, -bins.largest, bins.largest) / width - offset
    lower = jnp.floor(position)
    share = position - lower
    leaning = jnp.where(share > 0, 1 - (1 - share) * (width / (width + LEAN)), 0)
    return two_hot((lower + leaning + offset) * width, bins)


def leaning_value_loss(logits: Array, values: Array, bins: Bins) -> Array:
    """Cross-entropy [...] of a two-hot head [..., number] against the values [...] that it should say."""
    code = leaning_two_hot(signed_hyperbolic(values), bins)
    # The code sums to one, so the normaliser of the softmax comes out of the sum.
    return jax.nn.logsumexp(logits, -1) - jnp.sum(code * logits, -1)
