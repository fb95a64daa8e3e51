"""Policies over actions of D real numbers, in units in which an environment's bounds are [-1, 1].

* `Gaussian` reaches beyond the bounds; the environment clips what it is given (envs/actions.py). Densities are those before
  clipping, which the rule learns from: to it, clipping is a part of the environment.
* `Squashed` is a Gaussian behind a tanh, so it stays between the bounds.
* `Beta` lies between the bounds as well, and needs no squashing to do so (Chou et al. 2017).

Each is a `RealPolicy` (types.py): a NamedTuple of arrays [..., D] with four methods. Dimensions are independent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, digamma

from rulax.types import Array

LOG_TWO_PI = math.log(2 * math.pi)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # means over a standard normal number, once divided by their sum
INSIDE = 1 - 1e-6  # how close to a bound a density is evaluated: at the bound itself it is infinite, or zero


class Gaussian(NamedTuple):
    """A diagonal Gaussian."""

    mean: Array  # [..., D]
    log_deviation: Array  # [..., D]

    def sample(self, key: Array) -> Array:
        return self.mean + jnp.exp(self.log_deviation) * jax.random.normal(key, self.mean.shape, self.mean.dtype)

    def greedy(self) -> Array:
        return self.mean

    def log_probability(self, action: Array) -> Array:
        distance = (action - self.mean) * jnp.exp(-self.log_deviation)
        return -jnp.sum(0.5 * jnp.square(distance) + self.log_deviation + 0.5 * LOG_TWO_PI, -1)

    def entropy(self) -> Array:
        return jnp.sum(self.log_deviation + 0.5 * (1 + LOG_TWO_PI), -1)


class Squashed(NamedTuple):
    """tanh of a number that a diagonal Gaussian draws."""

    mean: Array  # [..., D], before the tanh
    log_deviation: Array  # [..., D]

    def sample(self, key: Array) -> Array:
        return jnp.tanh(Gaussian(*self).sample(key))

    def greedy(self) -> Array:
        return jnp.tanh(self.mean)

    def log_probability(self, action: Array) -> Array:
        # Not differentiable at the bounds, nor need it be: actions are data. Numbers beyond them are read as the bound.
        drawn = jnp.arctanh(jnp.clip(action, -INSIDE, INSIDE))
        return Gaussian(*self).log_probability(drawn) - jnp.sum(log_slope(drawn), -1)

    def entropy(self) -> Array:
        """That of the Gaussian plus the mean of log d tanh(u) / du, which has no closed form: by Gauss-Hermite quadrature."""
        drawn = self.mean[..., None] + jnp.exp(self.log_deviation)[..., None] * jnp.asarray(NODES, self.mean.dtype)
        shrunk = log_slope(drawn) @ jnp.asarray(WEIGHTS / WEIGHTS.sum(), self.mean.dtype)
        return Gaussian(*self).entropy() + jnp.sum(shrunk, -1)


class Beta(NamedTuple):
    """Twice a Beta variable, minus one; both parameters are above 1, so that there is one peak."""

    rise: Array  # [..., D], alpha: the larger, the closer to 1
    fall: Array  # [..., D], beta: the larger, the closer to -1

    def sample(self, key: Array) -> Array:
        return 2 * jax.random.beta(key, self.rise, self.fall) - 1

    def greedy(self) -> Array:
        return 2 * self.rise / (self.rise + self.fall) - 1

    def log_probability(self, action: Array) -> Array:
        # 1 + a and 1 - a are twice the variable and its complement, without the cancellation in 1 - (1 + a) / 2.
        action = jnp.clip(action, -INSIDE, INSIDE)
        above, below = jnp.log1p(action), jnp.log1p(-action)
        scale = betaln(self.rise, self.fall) + (self.rise + self.fall - 1) * math.log(2)
        return jnp.sum((self.rise - 1) * above + (self.fall - 1) * below - scale, -1)

    def entropy(self) -> Array:
        both = self.rise + self.fall
        each = betaln(self.rise, self.fall) - (self.rise - 1) * digamma(self.rise) - (self.fall - 1) * digamma(self.fall)
        return jnp.sum(each + (both - 2) * digamma(both) + math.log(2), -1)


def log_slope(drawn: Array) -> Array:
    """log d tanh(u) / du = log(1 - tanh²(u)), which would be -inf from |u| = 9 on if it were computed like that."""
    return 2 * (math.log(2) - drawn - jax.nn.softplus(-2 * drawn))
