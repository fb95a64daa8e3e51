"""Layers that only meta-networks need: encoders of softmax predictions and the action-set convolution. Used by metanet/."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import MLP, initial_weight
from rulax.types import Array


class ActionSet(eqx.Module):
    """One layer over a set of actions: the same weights for every action, which also sees the mean over all of them.

    out_a = own(x_a) + mean(x) with two matrices, so the layer serves any number of actions and does not know their order.
    """

    weight_own: Array  # [inputs, outputs]
    weight_mean: Array  # [inputs, outputs]
    bias: Array  # [outputs]

    def __init__(self, key: Array, inputs: int, outputs: int, per_state: int = 0):
        weight = initial_weight(key, (2 * inputs, outputs))
        self.weight_own, self.weight_mean = weight[:inputs], weight[inputs:]
        if per_state:
            # Scaled as if alone: among hundreds of numbers per state, the few per action would hardly tell actions apart.
            self.weight_own = self.weight_own.at[per_state:].multiply((inputs / (inputs - per_state)) ** 0.5)
        self.bias = jnp.zeros(outputs)

    def __call__(self, per_action: Array, per_state: Array | None = None) -> Array:
        """From [..., A, C] to [..., A, outputs], ReLU included; `per_state` [..., D] stands before the C in every action."""
        depth = 0 if per_state is None else per_state.shape[-1]
        shared = jnp.mean(per_action, -2) @ self.weight_mean[depth:] + self.bias
        if per_state is not None:
            # What is the same for all actions is its own mean: one product per state instead of one per action.
            shared = shared + per_state @ (self.weight_own[:depth] + self.weight_mean[:depth])
        return jax.nn.relu(per_action @ self.weight_own[depth:] + shared[..., None, :])


class ActionSets(eqx.Module):
    """Several such layers, one after another."""

    layers: tuple[ActionSet, ...]

    def __init__(self, key: Array, inputs: int, channels: tuple[int, ...], per_state: int = 0):
        keys = jax.random.split(key, len(channels))
        widths = zip(keys, (inputs, *channels[:-1]), channels, (per_state, *(0 for _ in channels[1:])), strict=True)
        self.layers = tuple(ActionSet(k, i, o, depth) for k, i, o, depth in widths)

    def __call__(self, per_action: Array, per_state: Array | None = None) -> Array:
        per_action = self.layers[0](per_action, per_state)
        for layer in self.layers[1:]:
            per_action = layer(per_action)
        return per_action


def encode_softmax(logits: Array, encoders: Sequence[MLP]) -> list[Array]:
    """What each encoder (two layers, one number out) makes of softmax(logits) [..., N]: a list of [...].

    The exponentials are taken once and multiplied once with all first layers side by side; the normaliser divides the few
    numbers that come out, not the N that go in.
    """
    largest = jax.lax.stop_gradient(jnp.max(logits, -1, keepdims=True))  # only guards against overflow: it cancels
    powers = jnp.exp(logits - largest)
    first = [encoder.layers[0] for encoder in encoders]
    products = powers @ jnp.concatenate([layer.weight for layer in first], -1) / jnp.sum(powers, -1, keepdims=True)
    products = jax.nn.relu(products + jnp.concatenate([layer.bias for layer in first]))
    ends = list(itertools.accumulate(layer.bias.shape[0] for layer in first))[:-1]
    parts = jnp.split(products, ends, -1)
    return [encoder.layers[1](part)[..., 0] for encoder, part in zip(encoders, parts, strict=True)]
