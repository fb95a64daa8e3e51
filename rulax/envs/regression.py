"""Supervised tasks as data that can be mapped over: `sample_task(key)`, then `examples(task, key, number)`."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rulax.types import Array, PyTree


class Regression(Protocol):
    """A distribution of supervised tasks."""

    @property
    def inputs(self) -> int:
        """The size D of an input."""

    def sample_task(self, key: Array) -> PyTree:
        """A random task."""

    def examples(self, task: PyTree, key: Array, number: int) -> tuple[Array, Array]:
        """Random inputs [number, D] and their outputs [number]."""


class SinusoidTask(NamedTuple):
    """One wave."""

    amplitude: Array  # []
    phase: Array  # []


@dataclasses.dataclass(frozen=True)
class Sinusoid:
    """y = A sin(x - phase) with A uniform in [0.1, 5] and x in [-5, 5] (Finn et al. 2017, section 5.1).

    MAML draws phases up to pi, Reptile up to 2 pi. `points` puts x on as many fixed places, evenly spaced, of which each example
    takes another one (Reptile's demonstration); 0 draws x anywhere.
    """

    largest_phase: float = jnp.pi
    points: int = 0

    inputs = 1

    def sample_task(self, key: Array) -> SinusoidTask:
        key_amplitude, key_phase = jax.random.split(key)
        amplitude = jax.random.uniform(key_amplitude, (), jnp.float32, 0.1, 5.0)
        return SinusoidTask(amplitude, jax.random.uniform(key_phase, (), jnp.float32, 0.0, self.largest_phase))

    def examples(self, task: SinusoidTask, key: Array, number: int) -> tuple[Array, Array]:
        """Inputs [number, 1] and outputs [number]."""
        if self.points:
            x = jax.random.permutation(key, jnp.linspace(-5.0, 5.0, self.points, dtype=jnp.float32))[:number]
        else:
            x = jax.random.uniform(key, (number,), jnp.float32, -5.0, 5.0)
        return x[:, None], task.amplitude * jnp.sin(x - task.phase)


class QuadraticTask(NamedTuple):
    """One polynomial of second degree."""

    coefficients: Array  # [6] of x1², x2², x1 x2, x1, x2, 1


@dataclasses.dataclass(frozen=True)
class Quadratic:
    """y = a x1² + b x2² + c x1 x2 + d x1 + e x2 + f, coefficients and inputs uniform in [-1, 1] (Hochreiter et al. 2001)."""

    inputs = 2

    def sample_task(self, key: Array) -> QuadraticTask:
        return QuadraticTask(jax.random.uniform(key, (6,), jnp.float32, -1.0, 1.0))

    def examples(self, task: QuadraticTask, key: Array, number: int) -> tuple[Array, Array]:
        """Inputs [number, 2] and outputs [number]."""
        x = jax.random.uniform(key, (number, 2), jnp.float32, -1.0, 1.0)
        return x, self.features(x) @ task.coefficients

    def features(self, x: Array) -> Array:
        """What the output is linear in, [..., 6]."""
        one, two = x[..., 0], x[..., 1]
        return jnp.stack([one**2, two**2, one * two, one, two, jnp.ones_like(one)], -1)
