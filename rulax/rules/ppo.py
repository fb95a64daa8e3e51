"""Proximal policy optimisation: several gradient steps on the same experience, until the ratio leaves an interval around 1."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.rules.base import UpdateRule
from rulax.rules.drift import proximal
from rulax.settings import Fraction, Learning, Network
from rulax.types import Array
from rulax.values.two_hot import SMALL_BINS, Bins

LEARNING = Learning(
    streams=64,
    unroll=32,
    epochs=4,
    minibatches=8,
    learning_rate=1e-3,
    schedule="linear",
    schedule_steps=500_000,
    clip_gradient=0.5,
    adam_eps=1e-5,
)
NETWORK = Network(hidden=(64, 64), activation="tanh", action_distribution="gaussian")


def ppo(
    discount: Fraction = 0.99,
    trace: Fraction = 0.95,
    clip: float = 0.2,
    entropy_cost: float = 0.01,
    value_cost: float = 0.1,
    bins: Bins = SMALL_BINS,
) -> UpdateRule:
    """PPO with a clipped surrogate (Schulman et al. 2017, eq. 7 and 9).

    loss = -min(ratio A_t, clip(ratio, 1 +- clip) A_t) + value_cost CE(two-hot of G_t, V) - entropy_cost H(pi),  ratio = pi / mu

    A_t, G_t and all but the clip are those of every proximal rule (rules/drift.py).

    Args:
        discount: of the value.
        trace: lambda of the generalised advantages.
        clip: how far the ratio may move away from 1 before the gradient vanishes.
        entropy_cost: weight of the entropy bonus.
        value_cost: weight of the value's loss.
        bins: of the two-hot value.
    """

    def drift(rule_params, log_ratio, advantage):
        del rule_params
        return clip_drift(log_ratio, advantage, clip)

    def report(log_ratio):
        return {"clip_fraction": (jnp.abs(jnp.exp(log_ratio) - 1) > clip).astype(log_ratio.dtype)}

    return proximal(
        drift, discount=discount, trace=trace, entropy_cost=entropy_cost, value_cost=value_cost, bins=bins, report=report
    )


def clip_drift(log_ratio: Array, advantage: Array, clip: float) -> Array:
    """PPO's clip as a drift, elementwise: relu((ratio - clip(ratio, 1 - clip, 1 + clip)) A).

    ratio A minus this is min(ratio A, clip(ratio) A): nothing is gained by moving further than `clip` towards A.
    """
    ratio = jnp.exp(log_ratio)
    # The relu makes it pessimistic: a ratio that has moved the wrong way has no drift, and keeps its full gradient.
    return jax.nn.relu((ratio - jnp.clip(ratio, 1 - clip, 1 + clip)) * advantage)
