"""Proximal rules: several gradient steps on the same experience, without moving the policy far from the one that collected it.

What keeps the policy near is a *drift function* D of the probability ratio and the advantage, which is subtracted from what is
gained (mirror learning, Kuba et al. 2022):

    gain = ratio A - D(ratio, A),   ratio = pi / mu,   with D >= 0 and, at ratio 1, D = 0 and dD/dratio = 0

At ratio 1 a drift is therefore inert, and all these rules follow the same gradient: it is from the second step on a batch that they
differ. PPO's clip is a drift (rules/ppo.py), DPO's has a closed form (rules/dpo.py), LPO's is a network (rules/lpo.py).
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state, policy_and_value
from rulax.types import Array, Metrics, PyTree, now
from rulax.values.normalisation import masked_mean, standardise
from rulax.values.policies import entropy, log_probability
from rulax.values.returns import generalised_advantages, over_streams
from rulax.values.two_hot import Bins, expected_value, value_loss

# (rule_params, log of the ratio, advantage) -> drift, all elementwise. Of the logarithm, because a ratio may underflow to 0.
Drift = Callable[[PyTree, Array, Array], Array]


def proximal(
    drift: Drift,
    *,
    discount: float,
    trace: float,
    entropy_cost: float,
    value_cost: float,
    bins: Bins,
    init: Callable[[Array], PyTree] = no_params,
    report: Callable[[Array], Metrics] = lambda log_ratio: {},
) -> UpdateRule:
    """The rule of a drift function, on generalised advantages.

    A_t = generalised advantages, standardised over the batch;  G_t = A_t + V_t before standardising
    loss = -(ratio A_t - D(ratio, A_t)) + value_cost CE(two-hot of G_t, V) - entropy_cost H(pi),  ratio = pi / mu

    Advantages are computed once per batch; the learner then takes `epochs` x `minibatches` steps. The value is two-hot, so that its
    gradient does not grow with the scale of returns: policy and value share a torso, and the squared error of returns in the
    hundreds would drown the policy's gradient (docs/results/learning.md).

    Args:
        drift: what leaving the policy that acted costs.
        discount: of the value.
        trace: lambda of the generalised advantages.
        entropy_cost: weight of the entropy bonus.
        value_cost: weight of the value's loss.
        bins: of the two-hot value.
        init: draws the parameters of the drift, if it has any.
        report: more metrics, per step, from the log of the ratio.
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
        log_ratio = log_probability(taken["policy"], experience.action) - log_probability(experience.behaviour, experience.action)
        ratio, advantage = jnp.exp(log_ratio), targets["advantage"]
        moved = drift(rule_params, log_ratio, advantage)
        policy_loss = moved - ratio * advantage
        critic_loss = value_loss(taken["value"], targets["return"], bins)
        randomness = entropy(taken["policy"])
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": critic_loss,
            "entropy": randomness,
            "drift": moved,
            "kl": ratio - 1 - log_ratio,  # unbiased and never negative (Schulman 2020, "Approximating KL divergence")
            **report(log_ratio),
        }
        metrics = {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}
        return policy_loss + value_cost * critic_loss - entropy_cost * randomness, metrics

    # A rule is called after the function that made its loss (rules/own.py): here that is whoever made the drift.
    loss.__qualname__ = drift.__qualname__
    return UpdateRule(policy_and_value(bins.number), init, no_state, targets, loss)
