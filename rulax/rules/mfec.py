"""Model-free episodic control: the best return so far of every situation, in a table; there is nothing for a gradient to do."""

from __future__ import annotations

import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.settings import Learning, Network
from rulax.types import Head, now
from rulax.values.normalisation import masked_mean
from rulax.values.policies import at_action, entropy

LEARNING = Learning(streams=4, unroll=8)
NETWORK = Network()


def mfec() -> UpdateRule:
    """Model-free episodic control (Blundell et al. 2016). The agent (agents/mfec.py) learns by writing; its options are there.

    R_t = r_t + discount R_{t+1};  Q(s_t, a_t) <- max(Q(s_t, a_t), R_t) at the end of each episode
    Q(s, a) = the stored value of s, or else the mean of its nearest neighbours;  pi = (1 - epsilon) greedy + epsilon uniform
    """

    def heads(num_actions):
        return {"policy": Head(num_actions), "value": Head(1, per_action=True)}

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, values = batch.experience, now(batch.online["value"])[..., 0]
        metrics = {
            "value": at_action(values, experience.action),
            "greedy": (experience.action == jnp.argmax(values, -1)).astype(values.dtype),
            "entropy": entropy(now(batch.online["policy"])),
        }
        return {}, rule_state, {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}

    def loss(rule_params, taken, targets, experience):
        del rule_params, taken, targets
        return jnp.zeros_like(experience.reward), {}

    return UpdateRule(heads, no_params, no_state, targets, loss, by_gradient=False)
