"""The few layers that agents and meta-networks are built from: array-only equinox modules, so a network is a plain pytree.

Weights are stored [inputs, outputs] and start truncated normal with std 1/sqrt(inputs), as in the reference.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.types import Array

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "elu": jax.nn.elu, "gelu": jax.nn.gelu, "swish": jax.nn.swish}


def initial_weight(key: Array, shape: tuple[int, ...], std: float | None = None) -> Array:
    """Truncated normal (cut at two standard deviations, not rescaled); the default std is 1/sqrt(fan-in)."""
    fan_in = 1
    for size in shape[:-1]:
        fan_in *= size
    std = fan_in**-0.5 if std is None else std
    return std * jax.random.truncated_normal(key, -2.0, 2.0, shape)


class Linear(eqx.Module):
    """y = x W + b."""

    weight: Array  # [inputs, outputs]
    bias: Array  # [outputs]

    def __init__(self, key: Array, inputs: int, outputs: int, std: float | None = None):
        self.weight = initial_weight(key, (inputs, outputs), std)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias

    def after(self, first: Linear) -> Linear:
        """One layer that does what `first` and then this one do."""
        weight, bias = first.weight @ self.weight, self(first.bias)
        return eqx.tree_at(lambda layer: (layer.weight, layer.bias), self, (weight, bias))


class MLP(eqx.Module):
    """Linear layers with a non-linearity between them, and after the last if `activate_last`."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)
    activate_last: bool = eqx.field(static=True)

    def __init__(self, key: Array, sizes: tuple[int, ...], activation: str = "relu", activate_last: bool = False):
        keys = jax.random.split(key, max(len(sizes) - 1, 1))
        self.layers = tuple(Linear(k, i, o) for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=False))
        self.activation = activation
        self.activate_last = activate_last

    def __call__(self, x: Array) -> Array:
        x = self.layers[-1](self.before_last(x))
        return ACTIVATIONS[self.activation](x) if self.activate_last else x

    def before_last(self, x: Array) -> Array:
        """What the last layer reads."""
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](layer(x))
        return x


class LSTMState(NamedTuple):
    """What an LSTM remembers."""

    hidden: Array  # [..., H]
    cell: Array  # [..., H]


class LSTM(eqx.Module):
    """One LSTM cell. Gate blocks in the order input, candidate, forget, output; 1 is added to the forget gate.

    The two matrices are kept apart so that a caller can multiply all inputs of a sequence at once, or look a one-hot input up
    in a table, and so that the hidden state is multiplied once per state and not once per action.
    """

    weight_input: Array  # [inputs, 4H]
    weight_hidden: Array  # [H, 4H]
    bias: Array  # [4H]

    def __init__(self, key: Array, inputs: int, size: int):
        # Drawn as one matrix, so that the fan-in counts the input and the hidden state together.
        weight = initial_weight(key, (inputs + size, 4 * size))
        self.weight_input, self.weight_hidden = weight[:inputs], weight[inputs:]
        self.bias = jnp.zeros(4 * size)

    @property
    def size(self) -> int:
        return self.weight_hidden.shape[0]

    def initial(self, shape: tuple[int, ...]) -> LSTMState:
        zeros = jnp.zeros((*shape, self.size), self.bias.dtype)
        return LSTMState(zeros, zeros)

    def project(self, x: Array) -> Array:
        """The part of the gates that depends on the input alone, [..., 4H]."""
        return x @ self.weight_input + self.bias

    def step(self, state: LSTMState, projected: Array) -> LSTMState:
        """Advance by one projected input."""
        return lstm_gates(projected + state.hidden @ self.weight_hidden, state.cell)


def lstm_gates(gates: Array, cell: Array, reinstated: Array | None = None) -> LSTMState:
    """From pre-activations [..., 4H] and the cell to the next state; what is `reinstated` [..., H] is added to the cell."""
    write, candidate, forget, output = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(forget + 1.0) * cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
    cell = cell if reinstated is None else cell + reinstated
    return LSTMState(jax.nn.sigmoid(output) * jnp.tanh(cell), cell)


class GRU(eqx.Module):
    """One GRU cell; gate blocks in the order reset, update, candidate."""

    weight_input: Array  # [inputs, 3H]
    weight_hidden: Array  # [H, 3H]
    bias: Array  # [3H]

    def __init__(self, key: Array, inputs: int, size: int):
        key_input, key_hidden = jax.random.split(key)
        self.weight_input = initial_weight(key_input, (inputs, 3 * size))
        self.weight_hidden = initial_weight(key_hidden, (size, 3 * size))
        self.bias = jnp.zeros(3 * size)

    @property
    def size(self) -> int:
        return self.weight_hidden.shape[0]

    def initial(self, shape: tuple[int, ...]) -> Array:
        return jnp.zeros((*shape, self.size), self.bias.dtype)

    def project(self, x: Array) -> Array:
        """The part of the gates that depends on the input alone, [..., 3H]."""
        return x @ self.weight_input + self.bias

    def step(self, state: Array, projected: Array) -> Array:
        """Advance by one projected input."""
        reset_in, update_in, candidate_in = jnp.split(projected, 3, axis=-1)
        reset_hidden, update_hidden, candidate_hidden = jnp.split(state @ self.weight_hidden, 3, axis=-1)
        reset = jax.nn.sigmoid(reset_in + reset_hidden)
        update = jax.nn.sigmoid(update_in + update_hidden)
        # The reset gate acts after the matrix product, not before: one product then serves all three gates.
        candidate = jnp.tanh(candidate_in + reset * candidate_hidden)
        return (1.0 - update) * candidate + update * state
