"""Proximal policy optimisation: several gradient steps on the same experience, none of which may move the policy far."""

from __future__ import annotations

import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.rules.returns import generalised_advantages, over_streams
from rulax.rules.values import entropy, log_probability, masked_mean, standardise
from rulax.settings import Learning, Network
from rulax.types import Head, now

LEARNING = Learning(
    streams=64,
    unroll=32,
    epochs=4,
    minibatches=4,
    learning_rate=1e-3,
    schedule="linear",
    clip_gradient=0.5,
    adam_eps=1e-5,
)
NETWORK = Network(hidden=(64, 64), activation="tanh")


def ppo(
    discount: float = 0.99,
    trace: float = 0.95,
    clip: float = 0.2,
    entropy_cost: float = 0.01,
    value_cost: float = 0.5,
    clip_value: float | None = None,
) -> UpdateRule:
    """PPO with a clipped surrogate (Schulman et al. 2017, eq. 7 and 9).

    A_t = generalised advantages, standardised over the batch;  G_t = A_t + V_t before standardising
    loss = -min(ratio A_t, clip(ratio, 1 +- clip) A_t) + value_cost (V - G_t)^2 / 2 - entropy_cost H(pi),  ratio = pi / mu

    The advantages are computed once per batch; the learner then makes `epochs` x `minibatches` steps. `clip_value` keeps V
    within that distance of what it was, in units of reward. It is off: its scale is that of the returns, and Andrychowicz et
    al. (2021) found it harmful at every threshold they tried.
    """

    def heads(num_actions):
        return {"policy": Head(num_actions), "value": Head(1)}

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, values = batch.experience, batch.online["value"][..., 0]
        arrays = (experience.reward, discount * experience.discount, values, experience.valid)
        advantages = over_streams(generalised_advantages, *arrays, trace=trace)
        returns = advantages + now(values)
        metrics = {"advantage": masked_mean(advantages, experience.valid), "return": masked_mean(returns, experience.valid)}
        standard = standardise(advantages, experience.valid)
        return {"advantage": standard, "return": returns, "old_value": now(values)}, rule_state, metrics

    def loss(taken, targets, experience):
        log_ratio = log_probability(taken["policy"], experience.action) - log_probability(
            experience.behaviour, experience.action
        )
        ratio = jnp.exp(log_ratio)
        policy_loss = -clipped_surrogate(ratio, targets["advantage"], clip)
        value_loss = _value_loss(taken["value"][..., 0], targets, clip_value)
        randomness = entropy(taken["policy"])
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": randomness,
            "clip_fraction": (jnp.abs(ratio - 1) > clip).astype(ratio.dtype),
            "kl": ratio - 1 - log_ratio,  # unbiased and never negative (Schulman 2020, "Approximating KL divergence")
        }
        metrics = {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}
        return policy_loss + value_cost * value_loss - entropy_cost * randomness, metrics

    return UpdateRule(heads, no_params, no_state, targets, loss)


def clipped_surrogate(ratio, advantage, clip):
    """min(ratio A, clip(ratio, 1 - clip, 1 + clip) A): no reward for moving further than `clip` in the direction of A."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def _value_loss(value, targets, clip_value):
    error = jnp.square(value - targets["return"])
    if clip_value is not None:
        near = targets["old_value"] + jnp.clip(value - targets["old_value"], -clip_value, clip_value)
        error = jnp.maximum(error, jnp.square(near - targets["return"]))
    return 0.5 * error
