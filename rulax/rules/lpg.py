"""Learned policy gradient (Oh et al. 2020, "Discovering reinforcement learning algorithms"): the rule before DiscoRL.

A network reads a trajectory backwards and says, for every step, by how much the action taken should become more probable, and what
the agent should have predicted. There is no value function: what the prediction y means is for discovery to find.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import LSTM, MLP, Linear
from rulax.metanet.estimates import episode_ends, nothing_follows
from rulax.metanet.layers import encode_softmax
from rulax.metanet.network import unroll_backwards
from rulax.rules.base import UpdateRule, no_state
from rulax.rules.lpg_sizes import LpgConstants, LpgSizes
from rulax.settings import Learning, Network
from rulax.types import Array, Batch, Experience, Head, Metrics, Predictions, PyTree, later, now
from rulax.values.normalisation import masked_mean
from rulax.values.policies import entropy, kl, log_probability

INPUTS = 6  # reward, discount of the step, discount of the rule, probability of the action, y now, y later
LEARNING = Learning(streams=32, unroll=16, learning_rate=5e-3, clip_update=1.0)
NETWORK = Network(hidden=(64, 64), activation="tanh")


class LpgNetwork(eqx.Module):
    """All parameters of the rule."""

    encoder: MLP  # y's distribution to one number, the same for now and later
    trajectory: LSTM
    policy_weight: Linear
    state_prediction: Linear

    def __init__(self, key: Array, sizes: LpgSizes):
        key_encoder, key_lstm, key_weight, key_prediction = jax.random.split(key, 4)
        self.encoder = MLP(key_encoder, (sizes.prediction_size, sizes.encoder_hidden, 1))
        self.trajectory = LSTM(key_lstm, INPUTS, sizes.hidden)
        self.policy_weight = Linear(key_weight, sizes.hidden, 1)
        self.state_prediction = Linear(key_prediction, sizes.hidden, sizes.prediction_size)


def lpg(sizes: LpgSizes = LpgSizes(), constants: LpgConstants = LpgConstants()) -> UpdateRule:
    """A rule whose weights on the policy's gradient and targets of y come from a network with random weights, drawn by `init`.

    w_t, y'_t = backward LSTM over x_t = (r_t, d_t, discount, pi(a_t), f(y_t), d_t f(y_{t+1})),   f: 30 -> 16 -> 1
    loss = -w_t log pi(a_t) + prediction_cost KL(y || y'_t)

    Of the policy only the probability of the action taken is read, so that one rule serves any number of actions. An outer gradient
    passes from one update to the next through everything that the network reads.

    Args:
        sizes: of the network.
        constants: hand-chosen numbers.
    """

    def heads(num_actions: int) -> dict[str, Head]:
        return {"policy": Head(num_actions), "state_prediction": Head(sizes.prediction_size)}

    def init(key: Array) -> LpgNetwork:
        return LpgNetwork(key, sizes)

    def targets(network: LpgNetwork, state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        experience = batch.experience
        ends = episode_ends(experience)
        # Beside a step of which nobody knows what came of it, y alone tells what follows.
        features = unroll_backwards(
            network.trajectory, inputs(network, batch, ends, constants.discount), nothing_follows(experience)
        )
        weight = network.policy_weight(features)[..., 0]
        made = {"policy_weight": weight, "state_prediction": network.state_prediction(features)}
        shown = {"policy_weight": weight, "target_entropy": entropy(made["state_prediction"])}
        return made, state, {name: masked_mean(metric, experience.valid) for name, metric in shown.items()}

    def loss(network: LpgNetwork, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        # All that is learned is in the targets.
        del network
        policy_loss = -targets["policy_weight"] * log_probability(taken["policy"], experience.action)
        prediction_loss = kl(taken["state_prediction"], targets["state_prediction"])
        metrics = {"policy_loss": policy_loss, "state_prediction_loss": prediction_loss, "entropy": entropy(taken["policy"])}
        total = policy_loss + constants.prediction_cost * prediction_loss
        return total, {name: masked_mean(metric, experience.valid) for name, metric in metrics.items()}

    return UpdateRule(heads, init, no_state, targets, loss)


def inputs(network: LpgNetwork, batch: Batch, ends: Array, discount: float) -> Array:
    """What the network reads of every step, [T, B, INPUTS]; where an episode ends, what comes later belongs to another one."""
    experience = batch.experience
    (encoded,) = encode_softmax(batch.online["state_prediction"], [network.encoder])
    probability = jnp.exp(log_probability(now(batch.online["policy"]), experience.action))
    read = (
        experience.reward,
        experience.discount,
        jnp.full_like(experience.reward, discount),
        probability,
        now(encoded),
        jnp.where(ends, 0, later(encoded)),
    )
    return jnp.stack(read, -1)
