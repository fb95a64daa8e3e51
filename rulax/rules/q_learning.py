"""Q-learning: action values learned from replay, and a policy that follows them, because agents act by sampling the policy."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.rules.dimensions import each_dimension
from rulax.settings import Fraction, Learning, Network
from rulax.types import Array, Head, now
from rulax.values.normalisation import masked_mean
from rulax.values.policies import at_action, entropy, epsilon_greedy, exploring, kl
from rulax.values.returns import over_streams, q_lambda
from rulax.values.two_hot import SMALL_BINS, Bins, expected_value, value_loss

LEARNING = Learning(
    streams=4,
    unroll=8,
    batch=32,
    replay=0.875,
    capacity=4096,
    warmup=32,
    learning_rate=3e-3,
    clip_gradient=1.0,
    adam_eps=1e-5,
    slow_decay=0.9,
)
NETWORK = Network(hidden=(64, 64), activation="relu", action_model=64, action_hidden=(64,))


def q_learning(
    discount: Fraction = 0.99,
    trace: Fraction = 0.95,
    epsilon: Fraction = 0.1,
    temperature: float | None = None,
    cut_traces: bool = False,
    policy_cost: float = 0.3,
    value_cost: float = 1.0,
    bins: Bins = SMALL_BINS,
) -> UpdateRule:
    """Q(lambda) with double targets (Watkins 1989; Peng and Williams 1996; van Hasselt et al. 2016).

    V_t = q_slow(s_t, argmax_a q(s_t, a));  G_t = r_t + discount ((1 - lambda_t) V_{t+1} + lambda_t G_{t+1})
    pi' = (1 - epsilon) greedy + epsilon uniform
    loss = value_cost CE(two-hot of G_t, q(s_t, a_t)) + policy_cost KL(pi' || pi)

    Args:
        discount: of the value.
        trace: lambda.
        epsilon: share of uniform exploration in the policy's target.
        temperature: if given, softmax(q / temperature) takes the place of the greedy policy.
        cut_traces: whether lambda_t = 0 before an action that was not greedy (Watkins), so that old experience does not bias the
            values; otherwise Peng's Q(lambda).
        policy_cost: weight of the policy's loss.
        value_cost: weight of the value's loss.
        bins: of the two-hot value.
    """

    def heads(num_actions):
        return {"policy": Head(num_actions), "value": Head(bins.number, per_action=True)}

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, valid = batch.experience, batch.experience.valid
        online, slow = expected_value(batch.online["value"], bins), expected_value(batch.slow["value"], bins)  # [T+1, B, A]
        # The online values choose and the slow copy judges the choice: a maximum over one network's errors would be biased upwards.
        best = jnp.argmax(online, -1)
        values = at_action(slow, best)
        # Greedy by the present values, whatever was greedy when the action was taken.
        greedy = experience.action == now(best) if cut_traces else None
        arrays = (experience.reward, discount * experience.discount, values, valid, greedy)
        returns = over_streams(q_lambda, *arrays, trace=trace)
        targets = {"policy": _follow(now(online), epsilon, temperature), "value": returns}
        metrics = {
            "return": returns,
            "td_error": jnp.abs(returns - at_action(now(online), experience.action)),
            "greedy": (experience.action == now(best)).astype(values.dtype),
        }
        return targets, rule_state, {name: masked_mean(metric, valid) for name, metric in metrics.items()}

    def loss(rule_params, taken, targets, experience):
        del rule_params
        policy_loss = kl(targets["policy"], taken["policy"])
        q_loss = value_loss(taken["value"], targets["value"], bins)
        metrics = {"policy_loss": policy_loss, "value_loss": q_loss, "entropy": entropy(taken["policy"])}
        metrics = {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}
        return value_cost * q_loss + policy_cost * policy_loss, metrics

    def priority(targets, batch):
        predicted = at_action(expected_value(now(batch.online["value"]), bins), batch.experience.action)
        return jnp.abs(targets["value"] - predicted)

    return each_dimension(UpdateRule(heads, no_params, no_state, targets, loss, priority))


def _follow(values: Array, epsilon: float, temperature: float | None) -> Array:
    """Logits [..., A] of the exploring policy that follows values [..., A]."""
    return epsilon_greedy(values, epsilon) if temperature is None else exploring(jax.nn.softmax(values / temperature), epsilon)
