"""What a policy's numbers mean: how an action is drawn from them, and how likely it was. Discrete policies are logits (how likely
an action was is in values/policies.py); here is also the one for actions that are vectors of real numbers."""

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
    """An action [...] from logits [..., A]; each dimension of a factored one by itself, [..., D]."""
    return jax.random.categorical(key, logits_of(policy))


def likeliest_choice(policy: Policy) -> Array:
    """The most likely action: in every dimension the most likely choice."""
    return jnp.argmax(logits_of(policy), -1)


def sample_gaussian(key: Array, numbers: Array) -> Array:
    """An action [..., D] from means and log-deviations [..., 2 D]."""
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
