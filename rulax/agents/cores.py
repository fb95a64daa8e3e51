"""What an agent remembers between observations: nothing, or a recurrent state that every new episode clears.

A core has `initial(shape)`, `step(memory, x, first)` for acting, `unroll(memory, x, first)` for learning, and `remember` for the
memory that an unroll ends with. All clear the memory *before* an observation that starts an episode, so that acting and learning
read the same thing.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.layers import GRU, LSTM, LSTMState
from rulax.types import Array, PyTree


class NoCore(eqx.Module):
    """Remembers nothing."""

    def initial(self, shape: tuple[int, ...]) -> tuple[()]:
        return ()

    def step(self, memory: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        return memory, x

    def unroll(self, memory: PyTree, x: Array, first: Array) -> Array:
        return x

    def remember(self, memory: PyTree, x: Array, first: Array) -> PyTree:
        return memory


class RecurrentCore(eqx.Module):
    """An LSTM or GRU whose output is its hidden state."""

    cell: LSTM | GRU

    def initial(self, shape: tuple[int, ...]) -> PyTree:
        return self.cell.initial(shape)

    def step(self, memory: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        memory = self._advance(memory, self.cell.project(x), first)
        return memory, hidden(memory)

    def unroll(self, memory: PyTree, x: Array, first: Array) -> Array:
        return self._scan(memory, x, first)[1]

    def remember(self, memory: PyTree, x: Array, first: Array) -> PyTree:
        return self._scan(memory, x, first)[0]

    def _scan(self, memory: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        def advance(memory: PyTree, inputs: tuple[Array, Array]) -> tuple[PyTree, Array]:
            memory = self._advance(memory, *inputs)
            return memory, hidden(memory)

        # All inputs are multiplied in one go; only the hidden state's product has to wait for the step before.
        return jax.lax.scan(advance, memory, (self.cell.project(x), first))

    def _advance(self, memory: PyTree, projected: Array, first: Array) -> PyTree:
        kept = jax.tree.map(lambda m: jnp.where(first[..., None], 0.0, m).astype(m.dtype), memory)
        return self.cell.step(kept, projected)


def hidden(memory: PyTree) -> Array:
    """What a recurrent cell shows of its memory."""
    return memory.hidden if isinstance(memory, LSTMState) else memory


def make_core(key: Array, kind: str, inputs: int, size: int) -> tuple[NoCore | RecurrentCore, int]:
    """The core that the settings ask for, and the width of what it puts out."""
    if kind == "none":
        return NoCore(), inputs
    cell = LSTM if kind == "lstm" else GRU
    return RecurrentCore(cell(key, inputs, size)), size
