"""REINFORCE with a learned baseline, the simplest rule: actions that led to more than expected become more likely."""

from __future__ import annotations

from rulax.rules.base import UpdateRule, no_params, no_state, policy_and_value
from rulax.settings import Fraction, Learning, Network
from rulax.types import now
from rulax.values.normalisation import masked_mean
from rulax.values.policies import entropy, log_probability
from rulax.values.returns import lambda_returns, over_streams
from rulax.values.two_hot import SMALL_BINS, Bins, expected_value, value_loss

LEARNING = Learning(streams=16, unroll=16, learning_rate=3e-3, clip_gradient=0.5, adam_eps=1e-5)
NETWORK = Network(hidden=(64, 64), activation="relu", action_distribution="gaussian")


def policy_gradient(
    discount: Fraction = 0.99, entropy_cost: float = 0.01, baseline_cost: float = 0.03, bins: Bins = SMALL_BINS
) -> UpdateRule:
    """REINFORCE with a learned baseline (Williams 1992; Sutton and Barto 2018, section 13.4).

    G_t = r_t + discount G_{t+1}, bootstrapped from V at the end of the trajectory and where an episode was cut off
    loss = -(G_t - V_t) log pi(a_t) + baseline_cost CE(two-hot of G_t, V_t) - entropy_cost H(pi)

    On-policy only: it assumes that the policy that acted is the one that learns, so there is no replay and one epoch.

    Args:
        discount: of the return.
        entropy_cost: weight of the entropy bonus.
        baseline_cost: weight of the baseline's loss.
        bins: of the two-hot baseline.
    """

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, values = batch.experience, expected_value(batch.online["value"], bins)
        discounts = discount * experience.discount
        returns = over_streams(lambda_returns, experience.reward, discounts, values, experience.valid, trace=1.0)
        advantages = returns - now(values)
        metrics = {"advantage": masked_mean(advantages, experience.valid), "return": masked_mean(returns, experience.valid)}
        return {"advantage": advantages, "return": returns}, rule_state, metrics

    def loss(rule_params, taken, targets, experience):
        del rule_params
        policy_loss = -targets["advantage"] * log_probability(taken["policy"], experience.action)
        baseline_loss = value_loss(taken["value"], targets["return"], bins)
        randomness = entropy(taken["policy"])
        metrics = {"policy_loss": policy_loss, "value_loss": baseline_loss, "entropy": randomness}
        metrics = {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}
        return policy_loss + baseline_cost * baseline_loss - entropy_cost * randomness, metrics

    return UpdateRule(policy_and_value(bins.number), no_params, no_state, targets, loss)
