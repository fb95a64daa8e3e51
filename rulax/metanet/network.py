"""The meta-network: from what happened and what was predicted to what should have been predicted. Called by rules/disco.py.

inputs [T, B, I] -> LSTM backwards in time -> times a gate set by the lifetime's memory -> heads for pi, y and z
                                                                                    `-> lifetime's memory, for the next update
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import LSTM, Linear, LSTMState, lstm_gates
from rulax.metanet.encoder import Encoder, Encoding, encode
from rulax.metanet.features import Signals
from rulax.metanet.layers import ActionSets
from rulax.metanet.lifetime import Lifetime
from rulax.metanet.sizes import Sizes
from rulax.types import Array, Predictions, PyTree

HEAD_STD = 0.3  # deviation of the heads' initial weights
POLICY_STD = 3.0  # larger than in the reference (0.3): discovery takes very long to leave policy targets that are almost uniform
GATE_STD = 1.0
GATE_BIAS = 1.0  # with 0, as in the reference, the memory of a new agent (all zeros) would shut the gate completely


class MetaReading(NamedTuple):
    """The targets for one batch, and the intermediate results (which cost nothing: what is not used is not computed)."""

    targets: Predictions  # logits: policy [T, B, A], state_prediction [T, B, N], action_prediction [T, B, N] at the action taken
    summary: Array | None  # [T, B, 1] the features' contribution to the lifetime's memory
    encodings: tuple[Encoding, ...]  # the trajectory's, and the lifetime's if there is one
    recurrent: Array  # [T, B, H] the backward LSTM's outputs
    features: Array  # [T, B, H] after the gate


class MetaNetwork(eqx.Module):
    """All parameters of a discovered rule; the module is the pytree that discovery differentiates."""

    encoder: Encoder
    trajectory: LSTM
    gate: Linear | None
    summary: Linear | None
    state_prediction: Linear | None
    action_prediction: Linear | None
    policy_set: ActionSets
    policy: Linear
    lifetime: Lifetime | None

    def __init__(self, key: Array, sizes: Sizes):
        keys = iter(jax.random.split(key, 9))
        hidden = sizes.hidden
        self.encoder = Encoder(next(keys), sizes)
        self.trajectory = LSTM(next(keys), sizes.inputs, hidden)
        # Keys are drawn whether or not a part exists, so that an ablation does not shift the keys of the other parts.
        key_y, key_z, key_gate, key_summary = (next(keys) for _ in range(4))
        self.state_prediction = Linear(key_y, hidden, sizes.prediction_size, HEAD_STD) if sizes.predictions else None
        self.action_prediction = Linear(key_z, hidden, sizes.prediction_size, HEAD_STD) if sizes.predictions else None
        self.policy_set = ActionSets(next(keys), hidden + sizes.action_channels[-1], sizes.policy_channels, per_state=hidden)
        self.policy = Linear(next(keys), sizes.policy_channels[-1], 1, POLICY_STD)
        gate = Linear(key_gate, sizes.lifetime_hidden, hidden, GATE_STD)
        self.gate = eqx.tree_at(lambda layer: layer.bias, gate, gate.bias + GATE_BIAS) if sizes.lifetime else None
        self.summary = Linear(key_summary, hidden, 1, HEAD_STD) if sizes.lifetime else None
        self.lifetime = Lifetime(next(keys), sizes) if sizes.lifetime else None

    def read(self, signals: Signals, memory: PyTree) -> tuple[PyTree, MetaReading]:
        """Compute the targets of one batch.

        Args:
            signals: the inputs, before any learned encoding.
            memory: the lifetime's memory before this update, which sets the gate; () for a rule without one.

        Returns:
            The memory after this update, and the targets with all intermediate results.
        """
        encoders = (self.encoder,) if self.lifetime is None else (self.encoder, self.lifetime.encoder)
        encodings = encode(encoders, signals)
        recurrent = unroll_backwards(self.trajectory, encodings[0].inputs, signals.ends, encodings[0].handed_on)
        # By the memory before this update, which does not know this batch.
        features = recurrent if self.gate is None else recurrent * self.gate(memory.hidden)
        per_action = self.policy_set(encodings[0].actions, features)
        targets = {"policy": self.policy(per_action)[..., 0]}
        if self.state_prediction is not None and self.action_prediction is not None:
            targets["state_prediction"] = self.state_prediction(features)
            targets["action_prediction"] = self.action_prediction(features)
        summary = None
        if self.lifetime is not None and self.summary is not None:
            summary = self.summary(features)
            memory = self.lifetime.remember(memory, encodings[1].inputs, summary, targets.get("state_prediction"), signals.known)
        return memory, MetaReading(targets, summary, tuple(encodings), recurrent, features)


def unroll_backwards(lstm: LSTM, inputs: Array, ends: Array, handed_on: Array | None = None) -> Array:
    """Run an LSTM from the last step to the first, clearing its state where an episode ends.

    Args:
        lstm: the cell.
        inputs: [T, B, I], of every step.
        ends: [T, B], True where nothing may reach back across a step.
        handed_on: [T, B, I], from which the state is computed that a step hands to the one before, if not from its inputs: where
            predictions may not bootstrap, a step's output still depends on its own predictions, but no other step's does.

    Returns:
        The outputs, [T, B, H].
    """
    shown = lstm.project(inputs)  # all inputs in one product; only the hidden state's has to wait
    handed_on = None if handed_on is None else lstm.project(handed_on)

    def step(state: LSTMState, inputs: tuple[Array, Array | None, Array]) -> tuple[LSTMState, Array]:
        shown, handed_on, end = inputs
        # Time runs backwards: the state comes from t + 1, and an end at t has to cut it off before step t reads it.
        hidden, cell = (jnp.where(end[:, None], 0, part).astype(part.dtype) for part in state)
        recurrent = hidden @ lstm.weight_hidden
        output = lstm_gates(shown + recurrent, cell)
        return output if handed_on is None else lstm_gates(handed_on + recurrent, cell), output.hidden

    _, outputs = jax.lax.scan(step, lstm.initial(ends.shape[1:]), (shown, handed_on, ends), reverse=True)
    return outputs


def as_in_reference(network: MetaNetwork) -> MetaNetwork:
    """A freshly drawn network, rescaled to the reference's initialisation.

    There the gate's bias is 0, the policy head has a deviation of 0.3, and in the layer before it the few weights that read single
    actions are drawn like the many that read the state. A weight is drawn as a multiple of its deviation, so rescaling is enough.
    """
    layer, depth = network.policy_set.layers[0], network.trajectory.size
    inputs = layer.weight_own.shape[0]
    own = layer.weight_own.at[depth:].multiply(((inputs - depth) / inputs) ** 0.5)
    policy = network.policy.weight * (HEAD_STD / POLICY_STD)
    network = eqx.tree_at(lambda net: (net.policy_set.layers[0].weight_own, net.policy.weight), network, (own, policy))
    if network.gate is None:
        return network
    return eqx.tree_at(lambda net: net.gate.bias, network, network.gate.bias - GATE_BIAS)
