"""From a state's embedding to the predictions that a rule needs: per state, and per action by a one-step model.

The action-conditional model is Muesli's (Hessel et al., 2021): the embedding becomes the state of an LSTM, each action is one
step of it, and a small MLP per prediction reads the result. Where actions have D dimensions, each choice of each is one step.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import LSTM, MLP, Linear, lstm_gates
from rulax.settings import Network
from rulax.types import Array, Factored, Head, Policy, Predictions, PyTree
from rulax.values.real_policies import Beta, Gaussian, Squashed

STATE_HEAD_STD = 1e-2  # flat heads start almost uniform, as in the reference: without it Disco103 learns badly


class ActionModel(eqx.Module):
    """Predictions per action: root embedding, one LSTM step per action, an MLP per prediction."""

    root: Linear  # embedding -> cell; the hidden state is its tanh
    step: LSTM  # input: a one-hot action, or dimension and choice
    heads: dict[str, MLP]
    dimensions: int = eqx.field(static=True)  # of an action; 0 where it is one choice

    def __init__(self, key: Array, inputs: int, num_actions: int, heads: dict[str, Head], network: Network, dimensions: int = 0):
        key_root, key_step, key_heads = jax.random.split(key, 3)
        self.dimensions = dimensions
        self.root = Linear(key_root, inputs, network.action_model)
        self.step = LSTM(key_step, num_actions * max(1, dimensions), network.action_model)
        sizes = (network.action_model, *network.action_hidden)
        keys = jax.random.split(key_heads, len(heads))
        self.heads = {name: MLP(k, (*sizes, head.size)) for k, (name, head) in zip(keys, heads.items(), strict=True)}
        if network.value_init == "zero" and "value" in heads:
            self.heads["value"] = starting_at_zero(self.heads["value"])

    def begin(self, embedding: Array) -> tuple[Array, Array]:
        """The part that all actions of a state share: the cell [..., H], and the gates [..., 4H] without an action's part."""
        cell = self.root(embedding)
        # The hidden state is multiplied once per state; a one-hot action is a row of the input matrix.
        return cell, jnp.tanh(cell) @ self.step.weight_hidden + self.step.bias

    def every(self, cell: Array, gates: Array) -> Predictions:
        """Predictions of all actions, [..., A, size] or [..., D, A, size]."""
        found = self._read(gates[..., None, :] + self.step.weight_input, cell[..., None, :])
        return {name: in_dimensions(each, -2, self.dimensions) for name, each in found.items()}

    def taken(self, action: Array, cell: Array, gates: Array) -> Predictions:
        """Predictions of one action per state, [..., size], or of each of its dimensions, [..., D, size]."""
        rows = self.step.weight_input.shape[0]
        if self.dimensions:
            # Dimension d has the rows d A to (d + 1) A - 1 of the input matrix.
            action = action + jnp.arange(self.dimensions) * (rows // self.dimensions)
            cell, gates = cell[..., None, :], gates[..., None, :]
        one_hot = jax.nn.one_hot(action, rows, dtype=cell.dtype)
        return self._read(gates + one_hot @ self.step.weight_input, cell)

    def _read(self, gates: Array, cell: Array) -> Predictions:
        hidden = lstm_gates(gates, cell).hidden
        return {name: head(hidden) for name, head in self.heads.items()}


def starting_at_zero(head: MLP) -> MLP:
    """The same head with a bias for which the two-hot value is close to zero: e^-1 times less likely with each bin from the middle.

    With weights as they are drawn, 601 bins up to 90,000 are almost equally likely, and their mean is some number within tens of
    zero, a different one for every action. A discovered rule reads those as advantages, and bootstrapping keeps them alive for
    hundreds of updates.
    """
    bias = head.layers[-1].bias
    distance = jnp.abs(jnp.arange(len(bias)) - (len(bias) - 1) / 2)
    return eqx.tree_at(lambda mlp: mlp.layers[-1].bias, head, -distance.astype(bias.dtype))


def in_dimensions(values: Array, axis: int, dimensions: int) -> Array:
    """Split the axis of D * A values, given as a negative number, into two, [D, A]; no change where an action is one choice."""
    if not dimensions:
        return values
    axis = values.ndim + axis
    return values.reshape(*values.shape[:axis], dimensions, -1, *values.shape[axis + 1 :])


class Embedded(NamedTuple):
    """What does not depend on the action: the predictions per state, and what those per action are computed from."""

    state: Predictions  # [..., size]
    model: PyTree  # cell and gates, see `ActionModel.begin`; () without predictions per action


class Heads(eqx.Module):
    """All predictions that a rule needs: `begin`, then `every` for all actions or `taken` for the one that was taken."""

    state: dict[str, Linear]
    action: ActionModel | None
    log_deviation: Array | None  # [D] of a Gaussian policy, the same in every state
    dimensions: int = eqx.field(static=True)
    distribution: str = eqx.field(static=True)  # of actions: a real policy's name, or "bins"

    def __init__(
        self,
        key: Array,
        inputs: int,
        num_actions: int,
        heads: dict[str, Head],
        network: Network,
        dimensions: int = 0,
        real_dimensions: int = 0,
    ):
        self.dimensions = dimensions
        self.distribution = network.action_distribution if real_dimensions else "bins"
        key_state, key_action = jax.random.split(key)
        per_state = {name: head for name, head in heads.items() if not head.per_action}
        per_action = {name: head for name, head in heads.items() if head.per_action}
        if real_dimensions and per_action:
            raise ValueError(
                f"this rule predicts {', '.join(per_action)} for every action, of which there are too many among real numbers: "
                "--action-distribution bins"
            )
        keys = jax.random.split(key_state, len(per_state))
        # Only the policy is factored; the other predictions per state are about the state as a whole.
        sizes = {name: head.size * (max(1, dimensions) if name == "policy" else 1) for name, head in per_state.items()}
        if real_dimensions:
            sizes["policy"] = real_dimensions * (2 if self.distribution == "beta" else 1)
        self.log_deviation = jnp.zeros(real_dimensions) if self.distribution in ("gaussian", "squashed") else None
        self.state = {n: Linear(k, inputs, size, STATE_HEAD_STD) for k, (n, size) in zip(keys, sizes.items(), strict=True)}
        self.action = ActionModel(key_action, inputs, num_actions, per_action, network, dimensions) if per_action else None

    def policy(self, embedding: Array) -> Policy:
        """The policy alone, which is all that acting needs."""
        numbers = self.state["policy"](embedding)
        if self.distribution == "beta":
            # Above 1, where a Beta has one peak and a finite density.
            return Beta(*(1 + jax.nn.softplus(half) for half in jnp.split(numbers, 2, -1)))
        if self.log_deviation is not None:
            made = Squashed if self.distribution == "squashed" else Gaussian
            return made(numbers, jnp.broadcast_to(self.log_deviation, numbers.shape))
        return Factored(in_dimensions(numbers, -1, self.dimensions)) if self.dimensions else numbers

    def begin(self, embedding: Array) -> Embedded:
        """The part that does not depend on the action, from embeddings [..., width]."""
        state: Predictions = {name: head(embedding) for name, head in self.state.items() if name != "policy"}
        if "policy" in self.state:
            state["policy"] = self.policy(embedding)
        return Embedded(state, self.action.begin(embedding) if self.action else ())

    def every(self, embedded: Embedded) -> Predictions:
        """All predictions for all actions."""
        return embedded.state | (self.action.every(*embedded.model) if self.action else {})

    def taken(self, embedded: Embedded, action: Array) -> Predictions:
        """All predictions, those per action only at the given one."""
        return embedded.state | (self.action.taken(action, *embedded.model) if self.action else {})

    def first_layers(self) -> list[Linear]:
        """The layers that read the embedding; all of them are linear."""
        return [*self.state.values(), *([self.action.root] if self.action else [])]

    def after(self, layer: Linear) -> Heads:
        """The same heads for inputs that have not passed `layer` yet."""
        # The products are part of the differentiated program, so the gradient reaches the weights of both layers.
        folded = [first.after(layer) for first in self.first_layers()]
        return eqx.tree_at(lambda heads: heads.first_layers(), self, folded)
