"""Learned policy optimisation: PPO whose drift function is a small network, for evolution to find. It starts exactly as PPO.

Lu et al., "Discovered policy optimisation" (2022). What they found in this form, they then wrote down as DPO (rules/dpo.py).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.agents.layers import initial_weight
from rulax.rules.base import UpdateRule
from rulax.rules.drift import proximal
from rulax.rules.lpo_sizes import DriftConstants, DriftSizes
from rulax.rules.ppo import LEARNING as LEARNING
from rulax.rules.ppo import NETWORK as NETWORK
from rulax.rules.ppo import clip_drift
from rulax.types import Array, PyTree
from rulax.values.two_hot import Bins

FEATURES = 8
FARTHEST = 20.0  # of a log ratio that the network still tells from others: beyond, squares of the ratio would overflow


def lpo(sizes: DriftSizes = DriftSizes(), constants: DriftConstants = DriftConstants()) -> UpdateRule:
    """A proximal rule whose drift is PPO's plus what a network of the ratio and the advantage says.

    D = relu(PPO's drift + shrink(f)),  f = tanh(x W) w,  shrink(f) = f without its first `flat`, of either sign
    x = (l, l^2, d, d^2, l A, l^2 A, d A, d^2 A),  l = log ratio,  d = ratio - 1

    For any weights this is a drift function: the relu keeps D from being negative, and at ratio 1 all features are 0, so that f is
    0 because there are no biases, and its gradient does not count because f is within `flat`. With w = 0 it is PPO's drift.

    Args:
        sizes: of the network.
        constants: hand-chosen numbers, among them those of PPO.
    """

    def init(key: Array) -> dict[str, Array]:
        key_in, key_out = jax.random.split(key)
        hidden = sizes.drift_hidden
        output = initial_weight(key_out, (hidden, 1), constants.first_std)
        return {"hidden": initial_weight(key_in, (FEATURES, hidden)), "output": output}

    def drift(rule_params: PyTree, log_ratio: Array, advantage: Array) -> Array:
        plain = clip_drift(log_ratio, advantage, constants.clip)
        return jax.nn.relu(plain + shrink(network(rule_params, log_ratio, advantage), constants.flat))

    return proximal(
        drift,
        init=init,
        discount=constants.discount,
        trace=constants.trace,
        entropy_cost=constants.entropy_cost,
        value_cost=constants.value_cost,
        bins=Bins(constants.bins, constants.largest_value),
    )


def network(rule_params: PyTree, log_ratio: Array, advantage: Array) -> Array:
    """f above, elementwise."""
    near = jnp.clip(log_ratio, -FARTHEST, FARTHEST)
    away = jnp.expm1(near)
    moved = jnp.stack([near, near**2, away, away**2], -1)
    features = jnp.concatenate([moved, moved * advantage[..., None]], -1)
    return (jnp.tanh(features @ rule_params["hidden"]) @ rule_params["output"])[..., 0]


def shrink(value: Array, by: float) -> Array:
    """A number without its first `by`: 0, with gradient 0, up to there on both sides."""
    return jnp.where(jnp.abs(value) > by, value - by * jnp.sign(value), 0)
