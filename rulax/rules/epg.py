"""Evolved policy gradients (Houthooft et al. 2018): the loss itself is a network, found by evolution over whole lives.

What a network says of a step becomes the loss of that step, and its slope with respect to the policy is how the agent learns. It
also reads a context: what convolutions over the latest steps of the life make of them. While it is young, PPO's loss may stand in.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import Linear, initial_weight
from rulax.rules.base import UpdateRule
from rulax.rules.epg_sizes import HANDOVER, EpgConstants, EpgSizes
from rulax.rules.ppo import LEARNING as LEARNING
from rulax.rules.ppo import NETWORK as NETWORK
from rulax.rules.ppo import ppo
from rulax.types import Array, Batch, Experience, Metrics, Predictions, PyTree, now
from rulax.values.normalisation import masked_mean, standardise
from rulax.values.policies import entropy, log_probability
from rulax.values.two_hot import Bins, expected_value, value_loss

RECORDED = 6  # numbers of a step that the buffer keeps
READ = RECORDED + 3  # and those that the loss reads beside the context: what the policy says of the action now, too
WIDTHS, STRIDES = (6, 4), (5, 2)


class LossNetwork(eqx.Module):
    """All parameters of the rule."""

    first: Array  # [width, RECORDED, channels]
    second: Array  # [width, channels, channels]
    context: Linear
    hidden: Linear
    output: Linear

    def __init__(self, key: Array, sizes: EpgSizes, first_std: float):
        keys = jax.random.split(key, 5)
        inputs = RECORDED, sizes.first_channels
        outputs = sizes.first_channels, sizes.second_channels
        shapes = zip(WIDTHS, inputs, outputs, strict=True)
        self.first, self.second = (
            initial_weight(k, (w * i, o)).reshape(w, i, o) for k, (w, i, o) in zip(keys[:2], shapes, strict=True)
        )
        self.context = Linear(keys[2], sizes.second_channels, sizes.context)
        self.hidden = Linear(keys[3], READ + sizes.context, sizes.loss_hidden)
        self.output = Linear(keys[4], sizes.loss_hidden, 1, first_std)


def epg(sizes: EpgSizes = EpgSizes(), constants: EpgConstants = EpgConstants()) -> UpdateRule:
    """A rule whose policy loss is a network. At first it says 0: a random loss would teach or harm, by luck.

    x_t = (r_t, d_t, valid, log mu(a_t), V_t, A_t), over the latest `buffer` steps of the life; r, V and A standardised
    c = dense(mean over time of two convolutions of x)
    l_t = dense(tanh dense(x_t, log pi(a_t), log ratio, H(pi), c)),   ratio = pi / mu
    loss = (1 - ppo_share) l_t + ppo_share (PPO's loss of policy and entropy) + value_cost CE(two-hot of G_t, V)

    Args:
        sizes: of the network.
        constants: hand-chosen numbers, among them those of PPO.
    """
    bins = Bins(constants.bins, constants.largest_value)
    # Without its value's loss, which is added whatever the share: the learned loss reads advantages.
    base = ppo(constants.discount, constants.trace, constants.clip, constants.entropy_cost, 0.0, bins)

    def start(key: Array) -> PyTree:
        del key
        # Zeros are steps that did not happen: their `valid` is 0.
        return {"buffer": jnp.zeros((sizes.buffer, RECORDED)), HANDOVER: jnp.float32(constants.ppo_share)}

    def targets(network: LossNetwork, state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        made, _, metrics = base.targets({}, {}, batch)
        recorded = record(batch, made, bins)
        buffer = append(state["buffer"], recorded)
        context = read_context(network, buffer)
        shape = recorded.shape[:2]
        made |= {
            "recorded": recorded,
            # Per step, because the loss may be asked for some of them at a time.
            "context": jnp.broadcast_to(context, (*shape, context.shape[-1])),
            HANDOVER: jnp.broadcast_to(state[HANDOVER], shape),
        }
        return made, state | {"buffer": buffer}, metrics | {HANDOVER: state[HANDOVER]}

    def loss(network: LossNetwork, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        plain, metrics = base.loss({}, taken, targets, experience)
        log_pi = log_probability(taken["policy"], experience.action)
        log_ratio = log_pi - log_probability(experience.behaviour, experience.action)
        # An inverse hyperbolic sine bounds no density of a real action, and has slope 1 where the ratio is 1.
        said = jnp.stack([jnp.arcsinh(log_pi), jnp.arcsinh(log_ratio), entropy(taken["policy"])], -1)
        read = jnp.concatenate([targets["recorded"], said, targets["context"]], -1)
        learned = network.output(jnp.tanh(network.hidden(read)))[..., 0]
        share = targets[HANDOVER]
        # `where`, because 0 times what has overflowed would be NaN: with a share of 1 this is PPO, with 0 the network alone.
        policy_loss = jnp.where(share < 1, (1 - share) * learned, 0) + jnp.where(share > 0, share * plain, 0)
        value_part = constants.value_cost * value_loss(taken["value"], targets["return"], bins)
        return policy_loss + value_part, metrics | {"learned_loss": masked_mean(learned, experience.valid)}

    return UpdateRule(base.heads, lambda key: LossNetwork(key, sizes, constants.first_std), start, targets, loss)


def record(batch: Batch, made: PyTree, bins: Bins) -> Array:
    """What the buffer keeps of every step, [T, B, RECORDED]; zeros where it may not be learned from."""
    experience = batch.experience
    valid = experience.valid
    value = now(expected_value(batch.online["value"], bins))
    kept = (
        standardise(experience.reward, valid),
        experience.discount,
        jnp.ones_like(experience.reward),
        jnp.arcsinh(log_probability(experience.behaviour, experience.action)),
        standardise(value, valid),
        made["advantage"],
    )
    return jnp.where(valid[..., None], jnp.stack(kept, -1), 0)


def append(buffer: Array, recorded: Array) -> Array:
    """The latest rows of a buffer [N, RECORDED] and of new steps [T, B, RECORDED], stream after stream."""
    rows = jnp.swapaxes(recorded, 0, 1).reshape(-1, RECORDED)
    return jnp.concatenate([buffer, rows.astype(buffer.dtype)])[-len(buffer) :]


def read_context(network: LossNetwork, buffer: Array) -> Array:
    """What the network makes of the buffer as a whole, [context]."""
    found = buffer[None]
    for kernel, stride in zip((network.first, network.second), STRIDES, strict=True):
        dimensions = ("NWC", "WIO", "NWC")
        found = jax.nn.leaky_relu(jax.lax.conv_general_dilated(found, kernel, (stride,), "VALID", dimension_numbers=dimensions))
    return jnp.tanh(network.context(jnp.mean(found[0], 0)))
