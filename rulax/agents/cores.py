"""What an agent remembers between observations: nothing, or a recurrent state.

Every leaf of memory has a `Level` and is cleared *before* an observation at which something of that level or above starts: by
default at every episode. A memory that lasts for a trial survives the episodes in it, and one that lasts for a life is never
cleared. Acting (`step`) and learning (`unroll`, `remember`) clear alike, so both read the same memory.
"""

from __future__ import annotations

from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax import own
from rulax.agents.layers import GRU, LSTM, LSTMState
from rulax.types import Array, Level, PyTree, starts


class Core(Protocol):
    """Memory between torso and heads. Shapes: x [..., features], `first` [...] int8 (`Level`), leaves of memory [B, ...]."""

    def initial(self, shape: tuple[int, ...]) -> PyTree:
        """The memory of streams [shape] that have seen nothing."""

    def step(self, memory: PyTree, x: Array, first: Array) -> tuple[PyTree, Array]:
        """One observation per stream, features x [B, F]: the memory after it, and the output [B, H]."""

    def unroll(self, memory: PyTree, x: Array, first: Array) -> Array:
        """T observations per stream, features x [T, B, F], after `memory`: the outputs [T, B, H]."""

    def remember(self, memory: PyTree, x: Array, first: Array) -> PyTree:
        """The memory at the end of the same unroll."""


def clear(memory: PyTree, levels: PyTree, first: Array) -> PyTree:
    """Memory [B, ...] with zeros wherever something of a leaf's level or above starts.

    Args:
        memory: any tree of arrays whose leading axes are those of `first`.
        levels: a `Level` for every leaf, or for every subtree of `memory`; one alone is for all of it.
        first: [B] int8, what starts at the observation that comes next.
    """

    def one(level: int, leaf: Array) -> Array:
        # Axes of size 1 for whatever a leaf has beyond `first`, so that each stream is cleared as a whole.
        cleared = starts(first, level).reshape(*first.shape, *[1] * (leaf.ndim - first.ndim))
        # `where`, not a product: a memory that became NaN is cleared, too.
        return jnp.where(cleared, 0, leaf).astype(leaf.dtype)

    # `levels` is mapped first: it may be a prefix of the memory's tree, with one level for a whole subtree.
    return jax.tree.map(lambda level, part: jax.tree.map(lambda leaf: one(level, leaf), part), levels, memory)


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
    """An LSTM or GRU whose output is its hidden state. All of its memory is cleared at starts of `level` and above."""

    cell: LSTM | GRU
    level: Level = eqx.field(static=True, default=Level.EPISODE)

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
        return self.cell.step(clear(memory, self.level, first), projected)


def hidden(memory: PyTree) -> Array:
    """What a recurrent cell shows of its memory."""
    return memory.hidden if isinstance(memory, LSTMState) else memory


def make_core(key: Array, kind: str, inputs: int, size: int, level: Level = Level.EPISODE) -> tuple[Core, int]:
    """The core that the settings ask for (`kind` none, lstm or gru), and the width of its output.

    One of the user's own is made by `make(key, inputs, size, level)`, which returns the same pair; `Core` says what it must do.
    """
    if own.is_own(kind):
        return own.get("core", kind)(key, inputs, size, level)
    if kind == "none":
        return NoCore(), inputs
    cell = LSTM if kind == "lstm" else GRU
    return RecurrentCore(cell(key, inputs, size), level), size
