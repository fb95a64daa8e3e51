"""The few layers that agents and meta-networks are built from: array-only equinox modules, so a network is a plain pytree.

Weights are stored [inputs, outputs] and start truncated normal with std 1/sqrt(inputs), as in the reference.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.types import Array

SMALL_IMAGE = 1024  # pixels, up to which a convolution is a matrix product
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


class Conv(eqx.Module):
    """Convolution over images [N, H, W, C]. With stride 1 and an odd kernel the image keeps its size; with a stride nothing is
    padded."""

    weight: Array  # [kernel, kernel, inputs, outputs]
    bias: Array  # [outputs]
    stride: int = eqx.field(static=True)

    def __init__(self, key: Array, inputs: int, outputs: int, kernel: int = 3, stride: int = 1):
        self.weight = initial_weight(key, (kernel, kernel, inputs, outputs))
        self.bias = jnp.zeros(outputs)
        self.stride = stride

    def __call__(self, x: Array) -> Array:
        small = x.shape[1] * x.shape[2] <= SMALL_IMAGE
        if small and self.stride == 1 and self.weight.shape[0] == 3:
            return self._by_matrix(x)
        if self.stride > 1 and self.weight.shape[0] % self.stride == 0:
            return self._by_blocks(x)
        padding, layout = "SAME" if self.stride == 1 else "VALID", ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, self.weight, (self.stride,) * 2, padding, dimension_numbers=layout) + self.bias

    def _by_blocks(self, x: Array) -> Array:
        """Blocks of stride x stride pixels become one pixel with more channels; what is left to do has stride 1 and a few shifts,
        each a matrix product. The compiler's own convolution is faster forwards, but inside of a loop (PPO's passes) its
        gradient takes fifteen times as long on a CPU (docs/performance.md)."""
        side, (kernel, _, inputs, outputs) = self.stride, self.weight.shape
        rows, columns, shifts = x.shape[1] // side, x.shape[2] // side, kernel // side
        blocks = x[:, : rows * side, : columns * side].reshape(-1, rows, side, columns, side, inputs)
        blocks = jnp.swapaxes(blocks, 2, 3).reshape(-1, rows, columns, side * side * inputs)
        weight = self.weight.reshape(shifts, side, shifts, side, inputs, outputs)
        weight = jnp.swapaxes(weight, 1, 2).reshape(shifts, shifts, side * side * inputs, outputs)
        height, width = rows - shifts + 1, columns - shifts + 1
        places = [(i, j) for i in range(shifts) for j in range(shifts)]
        parts = [blocks[:, i : i + height, j : j + width] @ weight[i, j] for i, j in places]
        return sum(parts[1:], parts[0]) + self.bias

    def _by_matrix(self, x: Array) -> Array:
        """One matrix product over nine shifted copies. For small images on a CPU this takes half the time of the compiler's own
        convolution, and under a vmap over agents it stays a matrix product, where a convolution would become a slow grouped one.
        For large ones (84 x 84) the copies cost more than they save."""
        height, width = x.shape[1:3]
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        shifts = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        patches = jnp.concatenate(shifts, axis=-1)  # [N, H, W, 9 * inputs]
        return patches @ self.weight.reshape(-1, self.weight.shape[-1]) + self.bias


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


def lstm_gates(gates: Array, cell: Array) -> LSTMState:
    """From pre-activations [..., 4H] and the cell to the next state."""
    write, candidate, forget, output = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(forget + 1.0) * cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
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
        candidate = jnp.tanh(candidate_in + reset * candidate_hidden)
        return (1.0 - update) * candidate + update * state
