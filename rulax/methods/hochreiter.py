"""A recurrent network with fixed weights as a learning algorithm (Hochreiter et al. 2001).

    h_i = LSTM(h_{i-1}, [x_i, y_{i-1}]),  prediction_i = w h_i + b,  h_0 = 0, y_0 = 0

At each example the LSTM sees the input and the correct output of the example before. The mean squared error over whole sequences
of many functions is differentiated through all their steps. In a test the weights stay as they are, so whatever is learned about
a new function is in the memory.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from rulax.agents.cores import Core, make_core
from rulax.agents.layers import Linear
from rulax.envs.regression import Quadratic
from rulax.types import Array, Metrics, PyTree


class Regressor(eqx.Module):
    """The LSTM and its linear output."""

    core: Core
    head: Linear

    def __init__(self, key: Array, inputs: int, size: int):
        key_core, key_head = jax.random.split(key)
        self.core, width = make_core(key_core, "lstm", inputs + 1, size)
        self.head = Linear(key_head, width, 1)

    def __call__(self, x: Array, y: Array) -> Array:
        """Predictions [T, B] of y [T, B] from x [T, B, inputs]: each from the inputs up to its own and the outputs before it."""
        previous = jnp.concatenate([jnp.zeros_like(y[:1]), y[:-1]])
        inputs = jnp.concatenate([x, previous[..., None]], -1)
        never = jnp.zeros(y.shape, bool)  # one function per sequence: memory is never cleared within it
        return self.head(self.core.unroll(self.core.initial(y.shape[1:]), inputs, never))[..., 0]


class RegressorState(NamedTuple):
    """What training changes."""

    params: Regressor
    optimiser_state: PyTree
    key: Array


def init_regressor_state(optimiser: optax.GradientTransformation, memory: int, key: Array) -> RegressorState:
    """A random network with `memory` LSTM cells."""
    key_params, key_training = jax.random.split(key)
    params = Regressor(key_params, Quadratic.inputs, memory)
    return RegressorState(params, optimiser.init(params), key_training)


def meta_update(
    optimiser: optax.GradientTransformation, functions: int, examples: int, state: RegressorState
) -> tuple[RegressorState, Metrics]:
    """One gradient step on new functions: back-propagation through whole sequences of `examples` steps."""
    key, key_sample = jax.random.split(state.key)
    x, y = sample_functions(functions, examples, key_sample)
    loss, grads = jax.value_and_grad(mean_squared_error)(state.params, x, y)
    changes, optimiser_state = optimiser.update(grads, state.optimiser_state, state.params)
    return RegressorState(optax.apply_updates(state.params, changes), optimiser_state, key), {"loss": loss}


def mean_squared_error(params: Regressor, x: Array, y: Array) -> Array:
    """Over all examples of all functions, []; x [T, B, inputs] and y [T, B]."""
    return jnp.mean(jnp.square(params(x, y) - y))


def sample_functions(number: int, examples: int, key: Array) -> tuple[Array, Array]:
    """Inputs [examples, number, 2] and outputs [examples, number] of random quadratic functions."""
    environment = Quadratic()

    def one(key: Array) -> tuple[Array, Array]:
        key_task, key_examples = jax.random.split(key)
        return environment.examples(environment.sample_task(key_task), key_examples, examples)

    # Functions take the place of streams, [T, B].
    return jax.vmap(one, out_axes=1)(jax.random.split(key, number))
