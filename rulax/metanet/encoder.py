"""Learned encodings of y, z and the set of actions. Between metanet/features.py and the two LSTMs."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import MLP
from rulax.metanet.features import Signals, of_action_set, of_actions, of_states
from rulax.metanet.layers import ActionSets, encode_softmax
from rulax.metanet.sizes import Sizes
from rulax.types import Array, now


class Encoder(eqx.Module):
    """Parameters of one encoder. There are two of them: one for the LSTM over time, one for the LSTM over updates."""

    state_prediction: MLP | None
    action_prediction: MLP | None
    actions: ActionSets

    def __init__(self, key: Array, sizes: Sizes):
        key_state, key_action, key_set = jax.random.split(key, 3)
        widths = (sizes.prediction_size, sizes.embedding, 1)
        self.state_prediction = MLP(key_state, widths) if sizes.predictions else None
        self.action_prediction = MLP(key_action, widths) if sizes.predictions else None
        self.actions = ActionSets(key_set, sizes.channels, sizes.action_channels)


class Encoding(NamedTuple):
    """The output of one encoder for one batch."""

    inputs: Array  # [T, B, I]
    handed_on: Array | None  # [T, B, I] the part that may reach the steps before; None: all of it, predictions included
    actions: Array  # [T, B, A, C]


def encode(encoders: tuple[Encoder, ...], signals: Signals) -> list[Encoding]:
    """The output of each encoder. What does not depend on an encoder, such as the softmax of y and z, is computed only once."""
    states = _by_encoder(signals.state_predictions, [encoder.state_prediction for encoder in encoders])
    actions = _by_encoder(signals.action_predictions, [encoder.action_prediction for encoder in encoders])
    return [_assemble(*parts, signals) for parts in zip(encoders, states, actions, strict=True)]


def _by_encoder(logits: tuple[Array, ...], encoders: list) -> list[tuple[Array, ...]]:
    """For each encoder, its encodings of the online and the slow predictions; () if there are none."""
    if not logits:
        return [()] * len(encoders)
    return list(zip(*(encode_softmax(one, encoders) for one in logits), strict=True))


def _assemble(encoder: Encoder, states: tuple[Array, ...], actions: tuple[Array, ...], signals: Signals) -> Encoding:
    of_z = [now(encoded)[..., None] for encoded in actions]
    # The channels of z stand in the middle, because Disco103's weights expect them there.
    encoding = encoder.actions(jnp.concatenate([signals.channels_before, *of_z, signals.channels_after], -1))
    predicted = [view for encoded in states for view in of_states(encoded, signals.bootstrap)]
    for encoded in actions:
        predicted += of_actions(encoded, signals.probabilities, signals.action, signals.bootstrap)
    others = [*([jnp.stack(predicted, -1)] if predicted else []), *of_action_set(encoding, signals.action)]
    inputs = jnp.concatenate([signals.scalars, *others], -1)
    if signals.bootstrap:
        return Encoding(inputs, None, encoding)
    # Zeros for every prediction: earlier steps may learn what happened, but not what was predicted.
    scalars = signals.scalars * signals.scalars_handed_on
    return Encoding(inputs, jnp.concatenate([scalars, *(jnp.zeros_like(part) for part in others)], -1), encoding)
