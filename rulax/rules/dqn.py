"""DQN: action values learned from replay, judged by a slow copy; the agent acts on them, epsilon-greedy (Mnih et al. 2015).

The agent is that of agents/value_agent.py, whose options (`dueling`, `epsilon`, ...) are options of this rule.
"""

from __future__ import annotations

from typing import Annotated

import jax.numpy as jnp
import optax

from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.rules.dimensions import each_dimension
from rulax.settings import Bounds, Fraction, Learning, Network
from rulax.types import Array, Head, Predictions, now
from rulax.values.normalisation import masked_mean
from rulax.values.policies import at_action, entropy
from rulax.values.returns import n_step_returns, over_streams

LEARNING = Learning(
    streams=2,
    unroll=8,
    batch=32,
    replay=1.0,
    capacity=4096,
    warmup=64,
    learning_rate=1e-3,
    clip_gradient=10.0,
    slow_decay=0.0,
    slow_period=20,
)
NETWORK = Network(hidden=(64,), activation="relu", action_hidden=(64,))


def dqn(
    discount: Fraction = 0.99,
    double: bool = False,
    steps: Annotated[int, Bounds(at_least=1)] = 1,
    huber: Annotated[float, Bounds(above=0)] = 100.0,
) -> UpdateRule:
    """DQN (Mnih et al. 2015), with double targets (van Hasselt et al. 2016) and returns of several steps as options.

    V_t = max_a q_slow(s_t, a), or q_slow(s_t, argmax_a q(s_t, a)) if `double`
    G_t = r_t + discount r_{t+1} + ... + discount^n V_{t+n},  n = `steps`
    loss = Huber(q(s_t, a_t) - G_t)

    Args:
        discount: of the value.
        double: whether the online values choose the action that the slow ones judge.
        steps: rewards in a return before a value takes over; at most those of a trajectory.
        huber: error from which on the loss grows linearly, so that its gradient is no larger than this. The paper's 1 is for
            rewards that are clipped to 1: with values up to 100, as in CartPole, those have diverged.
    """

    def heads(num_actions: int) -> dict[str, Head]:
        return {"policy": Head(num_actions), "value": Head(1, per_action=True)}

    def targets(rule_params, rule_state, batch):
        del rule_params
        experience, valid = batch.experience, batch.experience.valid
        if steps > len(experience.reward):
            raise ValueError(
                f"steps ({steps}) is more than the {len(experience.reward)} steps that are learned from in a trajectory: "
                "lower it, or raise --unroll"
            )
        online, slow = _values(batch.online), _values(batch.slow)  # [T+1, B, A]
        best = jnp.argmax(online, -1)
        values = at_action(slow, best) if double else jnp.max(slow, -1)
        arrays = (experience.reward, discount * experience.discount, values, valid)
        returns = over_streams(n_step_returns, *arrays, steps=steps)
        taken = at_action(now(online), experience.action)
        metrics = {
            "return": returns,
            "q": taken,
            "td_error": jnp.abs(returns - taken),
            "greedy": (experience.action == now(best)).astype(values.dtype),
        }
        return {"value": returns}, rule_state, {name: masked_mean(metric, valid) for name, metric in metrics.items()}

    def loss(rule_params, taken, targets, experience):
        del rule_params
        q_loss = optax.huber_loss(taken["value"][..., 0], targets["value"], delta=huber)
        metrics = {"value_loss": q_loss, "entropy": entropy(taken["policy"])}
        return q_loss, {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}

    def priority(targets, batch):
        return jnp.abs(targets["value"] - at_action(_values(now(batch.online)), batch.experience.action))

    return each_dimension(UpdateRule(heads, no_params, no_state, targets, loss, priority))


def _values(predictions: Predictions) -> Array:
    return predictions["value"][..., 0]
