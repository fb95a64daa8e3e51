"""What an agent remembers between observations: nothing, or a recurrent state.

Every leaf of memory has a `Level` and is cleared *before* an observation at which something of that level or above starts: by
default at every episode. A memory that lasts for a trial survives the episodes in it, and one that lasts for a life is never
cleared. Acting (`step`) and learning (`unroll`, `remember`) clear alike, so both read the same memory.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax import own
from rulax.agents.layers import GRU, LSTM, Linear, LSTMState, initial_weight, lstm_gates
from rulax.agents.memory import Match, Memory, Newest, empty_memory, nearest, read, write
from rulax.types import Array, Level, PyTree, starts

TOLERANCE = 1e-3  # contexts no further apart than this are the same: rounding must not make a known one new
CLOSED = -1.0  # bias of a new reinstatement gate; see `EpisodicLSTM`


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


class EpisodicMemory(NamedTuple):
    """What an episodic LSTM remembers: of this episode, and of those before it."""

    state: LSTMState  # [B, H] each
    context: Array  # [B, K], the last that was seen
    table: Memory  # [B, C, ...]: contexts, and the cells [H] that their episodes ended with


class EpisodicLSTM(eqx.Module):
    """An LSTM that gets back the cell with which the last episode of the same context ended (Ritter et al. 2018).

        c_t = i * c_in + f * c_{t-1} + r * c_ep,     r = sigmoid(x W + h_{t-1} U + b)

    c_ep is read from a table by the context, and is 0 for a context that is not in it. Hidden state and cell are cleared at starts
    of `level`; before that the cell is written under the context it was last seen in. The table lasts one level longer, and
    nothing is differentiated through what is stored in it. So all of it is memory like any other: each stream has its own, it is
    stored with the experience, and acting and learning write and read alike.

    The context is the last K numbers of each input; `agents/torsos.py` puts it there.
    """

    cell: LSTM
    gate: Linear  # [inputs, H], of the reinstatement
    gate_hidden: Array  # [H, H]
    context_size: int = eqx.field(static=True)  # K
    rows: int = eqx.field(static=True)  # C
    level: Level = eqx.field(static=True)

    def __init__(self, key: Array, inputs: int, size: int, level: Level, context_size: int, rows: int):
        if level == Level.LIFE:
            raise ValueError(
                "the core episodic_lstm writes its table where its memory is cleared, which with memory_level life is nowhere; "
                "use episode or trial"
            )
        key_cell, key_gate, key_hidden = jax.random.split(key, 3)
        self.cell = LSTM(key_cell, inputs, size)
        gate = Linear(key_gate, inputs, size)
        # Mostly closed at first. What is reinstated is added at every step and written again: with forget gates of
        # sigmoid(1) = 0.73, a gate of sigmoid(-1) = 0.27 is the largest at which cells do not grow from episode to episode.
        self.gate = eqx.tree_at(lambda layer: layer.bias, gate, jnp.full(size, CLOSED))
        self.gate_hidden = initial_weight(key_hidden, (size, size))
        self.context_size, self.rows, self.level = context_size, rows, level

    def initial(self, shape: tuple[int, ...]) -> EpisodicMemory:
        one = EpisodicMemory(
            self.cell.initial(()), jnp.zeros(self.context_size), empty_memory(self.rows, self.context_size, (self.cell.size,))
        )
        return jax.tree.map(lambda leaf: jnp.zeros((*shape, *leaf.shape), leaf.dtype), one)

    def step(self, memory: EpisodicMemory, x: Array, first: Array) -> tuple[EpisodicMemory, Array]:
        memory = self._advance(memory, self._project(x), first)
        return memory, memory.state.hidden

    def unroll(self, memory: EpisodicMemory, x: Array, first: Array) -> Array:
        return self._scan(memory, x, first)[1]

    def remember(self, memory: EpisodicMemory, x: Array, first: Array) -> EpisodicMemory:
        return self._scan(memory, x, first)[0]

    def _project(self, x: Array) -> tuple[Array, Array, Array]:
        """What depends on the input alone: the parts of the LSTM's gates and of the reinstatement gate, and the context."""
        features, context = jnp.split(x, [x.shape[-1] - self.context_size], -1)
        return self.cell.project(features), self.gate(features), context

    def _scan(self, memory: EpisodicMemory, x: Array, first: Array) -> tuple[EpisodicMemory, Array]:
        def advance(memory: EpisodicMemory, inputs: tuple[tuple[Array, Array, Array], Array]) -> tuple[EpisodicMemory, Array]:
            memory = self._advance(memory, *inputs)
            return memory, memory.state.hidden

        return jax.lax.scan(advance, memory, (self._project(x), first))

    def _advance(self, memory: EpisodicMemory, projected: tuple[Array, Array, Array], first: Array) -> EpisodicMemory:
        gates, gate, context = projected
        memory = memory._replace(table=jax.vmap(_write_if)(starts(first, self.level), memory))
        # After writing: where something starts that the table does not outlast, the row goes with it.
        levels = EpisodicMemory(self.level, self.level, Level(self.level + 1))  # type: ignore[arg-type]  # a level for each part
        (hidden, cell), _, table = clear(memory, levels, first)
        found = jax.vmap(_recall)(table, context)
        reinstated = jax.nn.sigmoid(gate + hidden @ self.gate_hidden) * found
        state = lstm_gates(gates + hidden @ self.cell.weight_hidden, cell, reinstated)
        return EpisodicMemory(state, context, table)


def _write_if(ended: Array, memory: EpisodicMemory) -> Memory:
    """The table of one stream, with the cell written under its context if an episode ended there."""
    # No gradient: it would lead through every episode before.
    after = write(memory.table, memory.context, jax.lax.stop_gradient(memory.state.cell), Newest(), TOLERANCE)
    return jax.tree.map(lambda new, old: jnp.where(ended, new, old), after, memory.table)


def _recall(table: Memory, context: Array) -> Array:
    """The cell [H] that one stream's table has for a context [K]; zeros for an unknown one."""
    neighbours = nearest(table, context, 1)
    return jax.lax.stop_gradient(read(table, neighbours, Match(TOLERANCE)(neighbours)))


def hidden(memory: PyTree) -> Array:
    """What a recurrent cell shows of its memory."""
    return memory.hidden if isinstance(memory, LSTMState) else memory


def make_core(
    key: Array, kind: str, inputs: int, size: int, level: Level = Level.EPISODE, context_size: int = 0, rows: int = 0
) -> tuple[Core, int]:
    """The core that the settings ask for, and the width of its output.

    One of the user's own is made by `make(key, inputs, size, level)`, which returns the same pair; `Core` says what it must do.

    Args:
        key: for its weights.
        kind: none, lstm, gru or episodic_lstm.
        inputs: width of the torso's output.
        size: width of the memory.
        level: what has to start for memory to be cleared.
        context_size: numbers of the context, which follow the torso's output; for episodic_lstm.
        rows: contexts that its table holds.
    """
    if own.is_own(kind):
        return own.get("core", kind)(key, inputs, size, level)
    if kind == "none":
        return NoCore(), inputs
    if kind == "episodic_lstm":
        return EpisodicLSTM(key, inputs, size, level, context_size, rows), size
    cell = LSTM if kind == "lstm" else GRU
    return RecurrentCore(cell(key, inputs, size), level), size
