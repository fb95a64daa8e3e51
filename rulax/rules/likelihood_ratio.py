"""The policy gradient as a likelihood ratio, whose second derivative is right as well: the inner rule of MAML."""

from __future__ import annotations

import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.rules.linear_baseline import fitted_values
from rulax.rules.ppo import clip_drift
from rulax.types import Head
from rulax.values.normalisation import masked_mean, standardise
from rulax.values.policies import entropy, log_probability
from rulax.values.returns import lambda_returns, over_streams


def likelihood_ratio(discount: float = 0.99, clip: float | None = None, standard: bool = True) -> UpdateRule:
    """REINFORCE with a linear baseline, as the surrogate of Foerster et al. (2018) and Rothfuss et al. (2019, eq. 8).

    G_t = r_t + discount G_{t+1};  A_t = G_t - b(o_t, t), b fitted to this batch, then standardised over it
    loss = -ratio A_t,  ratio = pi(a_t) / mu(a_t), where mu, the policy that acted, is data

    At pi = mu the ratio is 1 and its gradient is that of log pi. Its second derivative also has grad log pi grad log pi^T, which
    that of log pi lacks: how the update changes because other actions would have been sampled.

    Args:
        discount: of the return.
        clip: if given, bounds the gain of leaving mu as PPO does; for an outer loss with several steps on the same experience.
        standard: whether advantages are standardised over the batch.
    """

    def heads(num_actions):
        return {"policy": Head(num_actions)}

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience = batch.experience
        nothing = jnp.zeros_like(experience.first, experience.reward.dtype)  # an episode that was cut off is not bootstrapped
        arrays = (experience.reward, discount * experience.discount, nothing, experience.valid)
        returns = over_streams(lambda_returns, *arrays, trace=1.0)
        advantages = returns - fitted_values(experience, returns)
        metrics = {"return": masked_mean(returns, experience.valid), "advantage": masked_mean(advantages, experience.valid)}
        if standard:
            advantages = standardise(advantages, experience.valid)
        return {"advantage": advantages}, rule_state, metrics

    def loss(rule_params, taken, targets, experience):
        del rule_params
        log_ratio = log_probability(taken["policy"], experience.action) - log_probability(experience.behaviour, experience.action)
        ratio, advantage = jnp.exp(log_ratio), targets["advantage"]
        gain = ratio * advantage - (0 if clip is None else clip_drift(log_ratio, advantage, clip))
        metrics = {"entropy": entropy(taken["policy"]), "kl": ratio - 1 - log_ratio}
        return -gain, {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}

    return UpdateRule(heads, no_params, no_state, targets, loss)
