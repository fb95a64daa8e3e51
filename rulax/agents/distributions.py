"""How actions are drawn from a policy's numbers. Those of a discrete policy are logits, whose log-probabilities are in
values/policies.py; those of a Gaussian policy are means and log-deviations, and everything about them is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.types import Array, Policy, logits_of

LOG_TWO_PI = 1.8378770664093453


class Distribution(NamedTuple):
    """Three functions of a policy's numbers [..., P]."""

    sample: Callable[[Array, Array], Array]  # (key, numbers) -> action
    log_probability: Callable[[Array, Array], Array]  # (numbers, action) -> [...]
    entropy: Callable[[Array], Array]  # (numbers) -> [...]


def sample_choice(key: Array, policy: Policy) -> Array:
    """Draw actions [...] from logits [..., A], or [..., D] from a factored policy, each dimension independently."""
    return jax.random.categorical(key, logits_of(policy))


def likeliest_choice(policy: Policy) -> Array:
    """The most likely actions: [...] from logits [..., A], or [..., D] from a factored policy."""
    return jnp.argmax(logits_of(policy), -1)


def sample_gaussian(key: Array, numbers: Array) -> Array:
    """Draw actions [..., D] from means and log-deviations [..., 2 D]."""
    mean, log_deviation = jnp.split(numbers, 2, -1)
    return mean + jnp.exp(log_deviation) * jax.random.normal(key, mean.shape, mean.dtype)


def gaussian_log_probability(numbers: Array, action: Array) -> Array:
    """Log-density [...] of an action [..., D]."""
    mean, log_deviation = jnp.split(numbers, 2, -1)
    distance = (action - mean) * jnp.exp(-log_deviation)
    return -jnp.sum(0.5 * jnp.square(distance) + log_deviation + 0.5 * LOG_TWO_PI, -1)


def gaussian_entropy(numbers: Array) -> Array:
    """Differential entropy [...]."""
    _, log_deviation = jnp.split(numbers, 2, -1)
    return jnp.sum(log_deviation + 0.5 * (1 + LOG_TWO_PI), -1)


gaussian = Distribution(sample_gaussian, gaussian_log_probability, gaussian_entropy)
