"""Actor-critic with V-trace: learns from its own experience and, with importance weights, from that of older policies."""

from __future__ import annotations

import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state, policy_and_value
from rulax.settings import Fraction, Learning, Network
from rulax.types import now
from rulax.values.normalisation import masked_mean, normalise, start_moments, update_moments
from rulax.values.policies import entropy, log_probability
from rulax.values.returns import Clips, over_streams, vtrace
from rulax.values.two_hot import SMALL_BINS, Bins, expected_value, value_loss

LEARNING = Learning(
    streams=32,
    unroll=8,
    learning_rate=3e-3,
    schedule="linear",
    schedule_steps=500_000,
    clip_gradient=0.5,
    adam_eps=1e-5,
)
NETWORK = Network(hidden=(64, 64), activation="tanh", action_distribution="gaussian")


def actor_critic(
    discount: Fraction = 0.99,
    trace: Fraction = 0.95,
    entropy_cost: float = 0.01,
    value_cost: float = 0.1,
    clip_ratio: float = 1.0,
    normalise_advantages: bool = True,
    bins: Bins = SMALL_BINS,
) -> UpdateRule:
    """V-trace actor-critic (Espeholt et al. 2018), corrected for the policy that acted, whose logits the experience holds.

    v_t, A_t = V-trace with ratio pi(a_t) / mu(a_t), every ratio clipped at `clip_ratio`
    loss = -A_t log pi(a_t) + value_cost CE(two-hot of v_t, V_t) - entropy_cost H(pi)

    Args:
        discount: of the value.
        trace: lambda of V-trace.
        entropy_cost: weight of the entropy bonus.
        value_cost: weight of the value's loss.
        clip_ratio: upper bound of every importance ratio.
        normalise_advantages: whether the policy's loss uses (A - mean) / deviation, both moving averages over the agent's lifetime,
            so that costs mean the same whatever the scale of rewards.
        bins: of the two-hot value.
    """

    def start(key):
        return start_moments() if normalise_advantages else no_state(key)

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, values = batch.experience, expected_value(batch.online["value"], bins)
        policy = now(batch.online["policy"])
        action, valid = experience.action, experience.valid
        # As a difference of logarithms, because probabilities of rare actions may underflow.
        ratios = jnp.exp(log_probability(policy, action) - log_probability(experience.behaviour, action))
        arrays = (experience.reward, discount * experience.discount, values, ratios, valid)
        estimate = over_streams(vtrace, *arrays, trace=trace, clips=Clips(clip_ratio, clip_ratio, clip_ratio))
        advantages = estimate.advantages
        if normalise_advantages:
            # Updated before they normalise, so that the first batch of a lifetime has a scale already.
            rule_state = update_moments(rule_state, advantages, valid)
            advantages = normalise(advantages, rule_state)
        # Logged as they were: normalised advantages look alike whatever the rewards.
        metrics = {"advantage": estimate.advantages, "return": estimate.targets, "ratio": ratios}
        metrics = {name: masked_mean(metric, valid) for name, metric in metrics.items()}
        return {"advantage": advantages, "return": estimate.targets}, rule_state, metrics

    def loss(rule_params, taken, targets, experience):
        del rule_params
        policy_loss = -targets["advantage"] * log_probability(taken["policy"], experience.action)
        critic_loss = value_loss(taken["value"], targets["return"], bins)
        randomness = entropy(taken["policy"])
        metrics = {"policy_loss": policy_loss, "value_loss": critic_loss, "entropy": randomness}
        metrics = {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}
        return policy_loss + value_cost * critic_loss - entropy_cost * randomness, metrics

    return UpdateRule(policy_and_value(bins.number), no_params, start, targets, loss)
