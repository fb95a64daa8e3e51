"""Discovered policy optimisation: PPO whose clip is replaced by a smooth drift, the closed form of one that evolution had found."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp

from rulax.rules.base import UpdateRule
from rulax.rules.drift import proximal
from rulax.rules.ppo import LEARNING as LEARNING
from rulax.rules.ppo import NETWORK as NETWORK
from rulax.settings import Bounds, Fraction
from rulax.types import Array
from rulax.values.two_hot import SMALL_BINS, Bins


def dpo(
    discount: Fraction = 0.99,
    trace: Fraction = 0.95,
    alpha: Annotated[float, Bounds(above=0)] = 2.0,
    beta: Annotated[float, Bounds(above=0)] = 0.6,
    entropy_cost: float = 0.01,
    value_cost: float = 0.1,
    bins: Bins = SMALL_BINS,
) -> UpdateRule:
    """DPO (Lu et al. 2022, "Discovered policy optimisation"), the drift that people read off a learned one.

    D = relu(x - alpha tanh(x / alpha)) with x = (ratio - 1) A where A >= 0,
        relu(x - beta tanh(x / beta))   with x = A log ratio   where A < 0
    loss = -(ratio A_t - D) + value_cost CE(two-hot of G_t, V) - entropy_cost H(pi),  ratio = pi / mu

    A_t, G_t and all but the drift are those of every proximal rule (rules/drift.py).

    Args:
        discount: of the value.
        trace: lambda of the generalised advantages.
        alpha: what can be gained by a good action, at most: the gradient fades as (ratio - 1) A approaches it.
        beta: the same scale for bad actions, of A log ratio; far beyond it the gradient reverses and pulls the policy back.
        entropy_cost: weight of the entropy bonus.
        value_cost: weight of the value's loss.
        bins: of the two-hot value.
    """

    def drift(rule_params, log_ratio, advantage):
        del rule_params
        return dpo_drift(log_ratio, advantage, alpha, beta)

    return proximal(drift, discount=discount, trace=trace, entropy_cost=entropy_cost, value_cost=value_cost, bins=bins)


def dpo_drift(log_ratio: Array, advantage: Array, alpha: float, beta: float) -> Array:
    """The closed form above, elementwise. It vanishes where the ratio moves against the advantage."""
    good = advantage >= 0
    moved = jnp.where(good, jnp.expm1(log_ratio), log_ratio) * advantage
    scale = jnp.where(good, alpha, beta)
    return jax.nn.relu(moved - scale * jnp.tanh(moved / scale))
