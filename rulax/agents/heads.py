"""From a state's embedding to the predictions that a rule asks for: per state, and per action by a one-step model.

The action-conditional model is Muesli's (Hessel et al., 2021): the embedding becomes the state of an LSTM, each action is one
step of it, and a small MLP per prediction reads the result.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import LSTM, MLP, Linear, lstm_gates
from rulax.settings import Network
from rulax.types import Array, Head, Predictions

STATE_HEAD_STD = 1e-2  # flat heads start almost uniform, as in the reference: without it Disco103 learns badly


class ActionModel(eqx.Module):
    """Predictions per action: root embedding, one LSTM step per action, an MLP per prediction."""

    root: Linear  # embedding -> cell; the hidden state is its tanh
    step: LSTM  # input: a one-hot action
    heads: dict[str, MLP]

    def __init__(self, key: Array, inputs: int, num_actions: int, heads: dict[str, Head], network: Network):
        key_root, key_step, key_heads = jax.random.split(key, 3)
        self.root = Linear(key_root, inputs, network.action_model)
        self.step = LSTM(key_step, num_actions, network.action_model)
        sizes = (network.action_model, *network.action_hidden)
        keys = jax.random.split(key_heads, len(heads))
        self.heads = {name: MLP(k, (*sizes, head.size)) for k, (name, head) in zip(keys, heads.items(), strict=True)}

    def every(self, embedding: Array) -> Predictions:
        """Predictions of all actions, [..., A, size]."""
        cell = self.root(embedding)
        # The hidden state is multiplied once per state; a one-hot action is a row of the input matrix.
        shared = jnp.tanh(cell) @ self.step.weight_hidden + self.step.bias
        gates = shared[..., None, :] + self.step.weight_input
        return self._read(gates, cell[..., None, :])

    def taken(self, embedding: Array, action: Array) -> Predictions:
        """Predictions of one action per state, [..., size]."""
        cell = self.root(embedding)
        shared = jnp.tanh(cell) @ self.step.weight_hidden + self.step.bias
        one_hot = jax.nn.one_hot(action, self.step.weight_input.shape[0], dtype=cell.dtype)
        return self._read(shared + one_hot @ self.step.weight_input, cell)

    def _read(self, gates: Array, cell: Array) -> Predictions:
        hidden = lstm_gates(gates, cell).hidden
        return {name: head(hidden) for name, head in self.heads.items()}


class Heads(eqx.Module):
    """Everything a rule asked for, in two readings: all actions, or only the one that was taken."""

    state: dict[str, Linear]
    action: ActionModel | None

    def __init__(self, key: Array, inputs: int, num_actions: int, heads: dict[str, Head], network: Network):
        key_state, key_action = jax.random.split(key)
        per_state = {name: head for name, head in heads.items() if not head.per_action}
        per_action = {name: head for name, head in heads.items() if head.per_action}
        keys = jax.random.split(key_state, len(per_state))
        self.state = {n: Linear(k, inputs, h.size, STATE_HEAD_STD) for k, (n, h) in zip(keys, per_state.items(), strict=True)}
        self.action = ActionModel(key_action, inputs, num_actions, per_action, network) if per_action else None

    def every(self, embedding: Array) -> Predictions:
        predictions = {name: head(embedding) for name, head in self.state.items()}
        return predictions | (self.action.every(embedding) if self.action else {})

    def taken(self, embedding: Array, action: Array) -> Predictions:
        predictions = {name: head(embedding) for name, head in self.state.items()}
        return predictions | (self.action.taken(embedding, action) if self.action else {})
