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
    """One layer over a set of actions, with the same weights for every action.

    out_a = relu(x_a W_own + mean_b(x_b) W_mean + bias), so the layer takes any number of actions in any order.
    """

    weight_own: Array  # [inputs, outputs]
    weight_mean: Array  # [inputs, outputs]
    bias: Array  # [outputs]

    def __init__(self, key: Array, inputs: int, outputs: int, per_state: int = 0):
        # Drawn as one matrix: an output adds up both halves, so the fan-in that sets the scale is that of both.
        weight = initial_weight(key, (2 * inputs, outputs))
        self.weight_own, self.weight_mean = weight[:inputs], weight[inputs:]
        if per_state:
            # Scaled by their own number: among hundreds of inputs per state, the few per action would hardly matter otherwise.
            self.weight_own = self.weight_own.at[per_state:].multiply((inputs / (inputs - per_state)) ** 0.5)
        self.bias = jnp.zeros(outputs)

    def __call__(self, per_action: Array, per_state: Array | None = None) -> Array:
        """One layer, ReLU included.

        Args:
            per_action: [..., A, C].
            per_state: [..., F] inputs shared by all actions, which come before the C inputs of each; or None.

        Returns:
            [..., A, outputs].
        """
        depth = 0 if per_state is None else per_state.shape[-1]
        shared = jnp.mean(per_action, -2) @ self.weight_mean[depth:] + self.bias
        if per_state is not None:
            # Inputs shared by all actions equal their mean, so one product per state is enough.
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
    """Encode softmax(logits) [..., N] by each encoder (two layers, one output): a list of [...].

    Exponentials are computed once and multiplied by the first layers of all encoders in one product; the normaliser is applied to
    the few outputs rather than to the N inputs.
    """
    largest = jax.lax.stop_gradient(jnp.max(logits, -1, keepdims=True))  # only guards against overflow: it cancels
    powers = jnp.exp(logits - largest)
    first = [encoder.layers[0] for encoder in encoders]
    products = powers @ jnp.concatenate([layer.weight for layer in first], -1) / jnp.sum(powers, -1, keepdims=True)
    products = jax.nn.relu(products + jnp.concatenate([layer.bias for layer in first]))
    ends = list(itertools.accumulate(layer.bias.shape[0] for layer in first))[:-1]
    parts = jnp.split(products, ends, -1)
    return [encoder.layers[1](part)[..., 0] for encoder, part in zip(encoders, parts, strict=True)]
