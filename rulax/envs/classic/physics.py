"""What the classic environments share: a task is a record of constants, and a random task is the default one, rescaled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rulax.types import Array

Constant = Any  # a float where it is written down, a scalar array in a task


def as_numbers(constants: Any) -> Any:
    """The record with every constant as a float32 scalar, so that all tasks have equal types."""
    return jax.tree.map(jnp.float32, constants)


def vary(key: Array, constants: Any, ranges: dict[str, tuple[float, float]]) -> Any:
    """Multiply each named constant by a number drawn uniformly from its range."""
    keys = jax.random.split(key, len(ranges))
    factors = {
        name: jax.random.uniform(each, (), jnp.float32, *bounds) for each, (name, bounds) in zip(keys, ranges.items(), strict=True)
    }
    numbers = as_numbers(constants)
    return numbers._replace(**{name: getattr(numbers, name) * factor for name, factor in factors.items()})


def wrap_angle(angle: Array) -> Array:
    """The same angle in [-pi, pi)."""
    return (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
