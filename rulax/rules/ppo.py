"""Proximal policy optimisation: several gradient steps on the same experience, without moving the policy far."""

from __future__ import annotations

import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state, policy_and_value
from rulax.settings import Fraction, Learning, Network
from rulax.types import now
from rulax.values.normalisation import masked_mean, standardise
from rulax.values.policies import entropy, log_probability
from rulax.values.returns import generalised_advantages, over_streams
from rulax.values.two_hot import SMALL_BINS, Bins, expected_value, value_loss

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

    A_t = generalised advantages, standardised over the batch;  G_t = A_t + V_t before standardising
    loss = -min(ratio A_t, clip(ratio, 1 +- clip) A_t) + value_cost CE(two-hot of G_t, V) - entropy_cost H(pi),  ratio = pi / mu

    Advantages are computed once per batch; the learner then takes `epochs` x `minibatches` steps. The value is two-hot, so that its
    gradient does not grow with the scale of returns: policy and value share a torso, and the squared error of returns in the
    hundreds would drown the policy's gradient (docs/results/learning.md).

    Args:
        discount: of the value.
        trace: lambda of the generalised advantages.
        clip: how far the ratio may move away from 1 before the gradient vanishes.
        entropy_cost: weight of the entropy bonus.
        value_cost: weight of the value's loss.
        bins: of the two-hot value.
    """

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, values = batch.experience, expected_value(batch.online["value"], bins)
        arrays = (experience.reward, discount * experience.discount, values, experience.valid)
        advantages = over_streams(generalised_advantages, *arrays, trace=trace)
        # Before standardising: the critic predicts returns in the units of the reward.
        returns = advantages + now(values)
        metrics = {"advantage": masked_mean(advantages, experience.valid), "return": masked_mean(returns, experience.valid)}
        # Over the whole batch, since targets are made once, before minibatches are drawn.
        standard = standardise(advantages, experience.valid)
        return {"advantage": standard, "return": returns}, rule_state, metrics

    def loss(rule_params, taken, targets, experience):
        del rule_params
        log_ratio = log_probability(taken["policy"], experience.action) - log_probability(experience.behaviour, experience.action)
        ratio = jnp.exp(log_ratio)
        policy_loss = -clipped_surrogate(ratio, targets["advantage"], clip)
        critic_loss = value_loss(taken["value"], targets["return"], bins)
        randomness = entropy(taken["policy"])
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": critic_loss,
            "entropy": randomness,
            "clip_fraction": (jnp.abs(ratio - 1) > clip).astype(ratio.dtype),
            "kl": ratio - 1 - log_ratio,  # unbiased and never negative (Schulman 2020, "Approximating KL divergence")
        }
        metrics = {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}
        return policy_loss + value_cost * critic_loss - entropy_cost * randomness, metrics

    return UpdateRule(policy_and_value(bins.number), no_params, no_state, targets, loss)


def clipped_surrogate(ratio, advantage, clip):
    """min(ratio A, clip(ratio, 1 - clip, 1 + clip) A), elementwise: nothing is gained by moving further than `clip` towards A."""
    # The minimum is pessimistic: a ratio that has moved the wrong way keeps its full gradient.
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)
