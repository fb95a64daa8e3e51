"""PPO in the form of a discovered rule: targets for the policy, the action value and the next policy, and a KL to each."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.rules.dimensions import each_dimension
from rulax.settings import Fraction, Learning, Network
from rulax.types import Head, later, now
from rulax.values.normalisation import masked_mean, standardise
from rulax.values.policies import entropy, kl
from rulax.values.returns import generalised_advantages, over_streams
from rulax.values.two_hot import SMALL_BINS, Bins, expected_value, value_loss

LEARNING = Learning(
    streams=32,
    unroll=16,
    epochs=4,
    minibatches=4,
    learning_rate=3e-3,
    schedule="linear",
    schedule_steps=500_000,
    clip_gradient=0.5,
    adam_eps=1e-5,
)
NETWORK = Network(hidden=(64, 64), activation="tanh", action_model=64, action_hidden=(64,))


def ppo_targets(
    discount: Fraction = 0.99,
    trace: Fraction = 0.95,
    temperature: float = 1.0,
    clip: float = 2.0,
    entropy_cost: float = 0.001,
    value_cost: float = 0.05,
    next_policy_cost: float = 0.02,
    bins: Bins = SMALL_BINS,
) -> UpdateRule:
    """PPO in the form of targets, to compare with discovered rules; the policy's target is that of MPO and Muesli.

    policy:      pi' ~ pi^(1 - entropy_cost) exp(clip(A / temperature, +- clip) at the action taken), A standardised
    value:       q' = A + V, A not standardised;  V = sum_a pi(a) q(a)
    next_policy: p' = pi(s'), if the episode goes on
    loss = KL(pi' || pi) + value_cost KL(q' || q) + next_policy_cost KL(p' || p), up to a constant

    pi is the policy that the targets are computed from. For small A the gradient of KL(pi' || pi) at pi is pi(a) / temperature
    times that of -A log pi(a), and the power of pi acts as an entropy bonus: its gradient is that of -entropy_cost H(pi).

    Args:
        discount: of the value.
        trace: lambda of the generalised advantages.
        temperature: what advantages are divided by.
        clip: largest change of a logit.
        entropy_cost: strength of the entropy bonus.
        value_cost: weight of the value's loss.
        next_policy_cost: weight of the next policy's loss.
        bins: of the two-hot value.
    """

    def heads(num_actions):
        return {
            "policy": Head(num_actions),
            "value": Head(bins.number, per_action=True),
            "next_policy": Head(num_actions, per_action=True),
        }

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, log_policy = batch.experience, jax.nn.log_softmax(batch.online["policy"])
        # The policy's mean of q: like a discovered rule, this one has no value per state.
        values = jnp.sum(jnp.exp(log_policy) * expected_value(batch.online["value"], bins), -1)
        arrays = (experience.reward, discount * experience.discount, values, experience.valid)
        advantages = over_streams(generalised_advantages, *arrays, trace=trace)
        push = jnp.clip(standardise(advantages, experience.valid) / temperature, -clip, clip)
        taken = jax.nn.one_hot(experience.action, log_policy.shape[-1], dtype=log_policy.dtype)
        targets = {
            # Not normalised: `kl` takes the softmax of its arguments.
            "policy": (1 - entropy_cost) * now(log_policy) + push[..., None] * taken,
            "value": advantages + now(values),
            "next_policy": later(log_policy),
        }
        metrics = {"advantage": advantages, "return": targets["value"], "target_kl": kl(targets["policy"], now(log_policy))}
        return targets, rule_state, {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}

    def loss(rule_params, taken, targets, experience):
        del rule_params
        policy_loss = kl(targets["policy"], taken["policy"])
        q_loss = value_loss(taken["value"], targets["value"], bins)
        # The state after the end of an episode belongs to the next one, which this action cannot predict.
        next_loss = jnp.where(experience.discount > 0, kl(targets["next_policy"], taken["next_policy"]), 0)
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": q_loss,
            "next_policy_loss": next_loss,
            "entropy": entropy(taken["policy"]),
            "kl": kl(experience.behaviour, taken["policy"]),
        }
        metrics = {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}
        return policy_loss + value_cost * q_loss + next_policy_cost * next_loss, metrics

    return each_dimension(UpdateRule(heads, no_params, no_state, targets, loss))
