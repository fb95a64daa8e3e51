"""Neural episodic control: tables of n-step values whose keys are learned; the gradient makes keys that are good for reading."""

from __future__ import annotations

import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.settings import Fraction, Learning, Network
from rulax.types import Head, now
from rulax.values.normalisation import masked_mean
from rulax.values.policies import at_action, entropy
from rulax.values.returns import over_streams, q_lambda

# Two steps are replayed for each new one, as in the paper (32 for every 16).
LEARNING = Learning(streams=4, unroll=8, batch=8, replay=1.0, capacity=4096, warmup=32, learning_rate=3e-4, clip_gradient=1.0)
NETWORK = Network(hidden=(64, 64), activation="relu")


def nec(discount: Fraction = 0.99) -> UpdateRule:
    """Neural episodic control (Pritzel et al. 2017). Reading and writing the tables is the agent's work (agents/nec.py).

    G_t = r_t + ... + discount^n max_a Q(s_{t+n}, a), up to the end of the trajectory or of the episode
    loss = (Q(s_t, a_t) - G_t)^2 / 2, with respect to the torso, and to the keys and values of the neighbours that were read

    Args:
        discount: of the value.
    """

    def heads(num_actions):
        return {"policy": Head(num_actions), "value": Head(1, per_action=True)}

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, valid = batch.experience, batch.experience.valid
        # Of the agent and not of its slow copy, which knows nothing of rows that were written since.
        values = batch.online["value"][..., 0]
        arrays = (experience.reward, discount * experience.discount, jnp.max(values, -1), valid)
        returns = over_streams(q_lambda, *arrays, trace=1.0)
        metrics = {
            "return": returns,
            "td_error": jnp.abs(returns - at_action(now(values), experience.action)),
            "greedy": (experience.action == jnp.argmax(now(values), -1)).astype(values.dtype),
            "entropy": entropy(now(batch.online["policy"])),
        }
        return {"value": returns}, rule_state, {name: masked_mean(metric, valid) for name, metric in metrics.items()}

    def loss(rule_params, taken, targets, experience):
        del rule_params
        value_loss = 0.5 * jnp.square(taken["value"][..., 0] - targets["value"])
        return value_loss, {"value_loss": masked_mean(value_loss, experience.valid)}

    return UpdateRule(heads, no_params, no_state, targets, loss)
