"""How an agent reads an observation: from [..., *shape] to a vector per observation. Called by agents/agent.py."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import ACTIVATIONS, MLP, Conv
from rulax.settings import Network
from rulax.types import Array


def as_float(observation: Array, dtype: jnp.dtype) -> Array:
    """Numbers a network can read: bytes become [0, 1], everything else is only cast."""
    scale = 1 / 255 if observation.dtype == jnp.uint8 else 1
    return observation.astype(dtype) * jnp.asarray(scale, dtype)


class MLPTorso(eqx.Module):
    """Flattens the observation and passes it through fully connected layers."""

    mlp: MLP
    rank: int = eqx.field(static=True)  # axes of one observation

    def __init__(self, key: Array, shape: tuple[int, ...], network: Network):
        self.mlp = MLP(key, (math.prod(shape), *network.hidden), network.activation, network.activate_last)
        self.rank = len(shape)

    def __call__(self, observation: Array) -> Array:
        return self.mlp(self.flat(observation))

    def flat(self, observation: Array) -> Array:
        """What the fully connected layers read."""
        lead = observation.shape[: observation.ndim - self.rank]
        return as_float(observation, self.mlp.layers[0].weight.dtype).reshape(*lead, -1)


class ConvTorso(eqx.Module):
    """3x3 convolutions, then fully connected layers: enough for small images such as MinAtar's."""

    convs: tuple[Conv, ...]
    mlp: MLP

    def __init__(self, key: Array, shape: tuple[int, ...], network: Network):
        key_mlp, *keys = jax.random.split(key, len(network.channels) + 1)
        inputs = (shape[-1], *network.channels[:-1])
        self.convs = tuple(Conv(k, i, o) for k, i, o in zip(keys, inputs, network.channels, strict=True))
        flat = shape[0] * shape[1] * network.channels[-1]
        self.mlp = MLP(key_mlp, (flat, *network.hidden), network.activation, network.activate_last)

    def __call__(self, observation: Array) -> Array:
        return self.mlp(self.flat(observation))

    def flat(self, observation: Array) -> Array:
        """What the fully connected layers read."""
        lead, image = observation.shape[:-3], observation.shape[-3:]
        x = as_float(observation, self.convs[0].weight.dtype).reshape(-1, *image)  # [N, H, W, C]
        for conv in self.convs:
            x = ACTIVATIONS[self.mlp.activation](conv(x))
        return x.reshape(*lead, -1)


def make_torso(key: Array, shape: tuple[int, ...], network: Network) -> MLPTorso | ConvTorso:
    """The torso that the settings ask for, or that fits the observation."""
    if not network.hidden:
        raise ValueError("the torso needs at least one hidden layer: give --hidden one or more widths")
    image = len(shape) == 3 and min(shape[0], shape[1]) >= 8
    kind = ("conv" if image else "mlp") if network.torso == "auto" else network.torso
    if kind == "conv" and len(shape) != 3:
        raise ValueError(f"torso 'conv' needs images [height, width, channels], but an observation has shape {shape}; use 'mlp'")
    return ConvTorso(key, shape, network) if kind == "conv" else MLPTorso(key, shape, network)
