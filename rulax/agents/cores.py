"""What an agent remembers between observations: nothing, or a recurrent state.

Every leaf of memory has a `Level` and is cleared *before* an observation at which something of that level or above starts: by
default at every episode. A memory that lasts for a trial survives the episodes in it, and one that lasts for a life is never
cleared. Acting (`step`) and learning (`unroll`, `remember`) clear alike, so both read the same memory.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax import own
from rulax.agents.associative import AssociativeCore
from rulax.agents.clearing import clear
from rulax.agents.layers import GRU, LSTM, Linear, LSTMState, initial_weight, lstm_gates
from rulax.agents.memory import Memory, empty_memory, recall, write_if
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
        """The same as steps, without copying tables: which cell each step gets back is known before any cell is (`_sources`)."""
        gates, gate, context = self._project(x)
        streams = jnp.arange(first.shape[1])
        before = [jnp.zeros_like(memory.state.cell)[None], jnp.moveaxis(memory.table.values, 1, 0), memory.state.cell[None]]
        # [1 + C + 1 + T, B, H]: no cell, those of the table, the one before the unroll, and those after each of its steps.
        cells = jnp.concatenate([*before, jnp.zeros((len(x), *memory.state.cell.shape), x.dtype)])

        def advance(carry: tuple[LSTMState, Array], inputs: tuple[Array, ...]) -> tuple[tuple[LSTMState, Array], Array]:
            (state, cells), (number, gates, gate, source, first) = carry, inputs
            state = self._cell(clear(state, self.level, first), gates, gate, cells[source, streams])
            # No gradient through what is stored: it would lead through every episode before.
            return (state, cells.at[number].set(jax.lax.stop_gradient(state.cell))), state.hidden

        numbers = self.rows + 2 + jnp.arange(len(x))
        inputs = (numbers, gates, gate, self._sources(memory, context, first), first)
        return jax.lax.scan(advance, (memory.state, jax.lax.stop_gradient(cells)), inputs)[1]

    def remember(self, memory: EpisodicMemory, x: Array, first: Array) -> EpisodicMemory:
        def advance(memory: EpisodicMemory, inputs: tuple[tuple[Array, Array, Array], Array]) -> tuple[EpisodicMemory, None]:
            return self._advance(memory, *inputs), None

        return jax.lax.scan(advance, memory, (self._project(x), first))[0]

    def _sources(self, memory: EpisodicMemory, context: Array, first: Array) -> Array:
        """Which of the `cells` of an unroll each step gets back, [T, B]: the table is kept with their numbers for values."""
        rows = jnp.broadcast_to(1 + jnp.arange(self.rows), memory.table.values.shape[:-1])

        def advance(carry: tuple[Array, Memory], inputs: tuple[Array, Array, Array]) -> tuple[tuple[Array, Memory], Array]:
            (before, table), (number, context, first) = carry, inputs
            last = jnp.broadcast_to(number, first.shape)
            table = self._write(table, before, last, first)
            return (context, table), jax.vmap(_recall)(table, context)

        inputs = (self.rows + 1 + jnp.arange(len(context)), context, first)
        return jax.lax.scan(advance, (memory.context, memory.table._replace(values=rows)), inputs)[1]

    def _project(self, x: Array) -> tuple[Array, Array, Array]:
        """What depends on the input alone: the parts of the LSTM's gates and of the reinstatement gate, and the context."""
        features, context = jnp.split(x, [x.shape[-1] - self.context_size], -1)
        return self.cell.project(features), self.gate(features), context

    def _advance(self, memory: EpisodicMemory, projected: tuple[Array, Array, Array], first: Array) -> EpisodicMemory:
        gates, gate, context = projected
        # No gradient through what is stored, as above.
        table = self._write(memory.table, memory.context, jax.lax.stop_gradient(memory.state.cell), first)
        found = jax.lax.stop_gradient(jax.vmap(_recall)(table, context))
        return EpisodicMemory(self._cell(clear(memory.state, self.level, first), gates, gate, found), context, table)

    def _write(self, table: Memory, context: Array, values: Array, first: Array) -> Memory:
        """The tables [B, ...] after the ends of episodes, if any: values [B, ...] are written under the contexts [B, K]."""
        table = jax.vmap(functools.partial(write_if, tolerance=TOLERANCE))(table, starts(first, self.level), context, values)
        # After writing: where something starts that the table does not outlast, the row goes with it.
        return clear(table, Level(self.level + 1), first)

    def _cell(self, state: LSTMState, gates: Array, gate: Array, found: Array) -> LSTMState:
        """One step of the equations above, from the projected input and the cells [B, H] that were found."""
        reinstated = jax.nn.sigmoid(gate + state.hidden @ self.gate_hidden) * found
        return lstm_gates(gates + state.hidden @ self.cell.weight_hidden, state.cell, reinstated)


_recall = functools.partial(recall, tolerance=TOLERANCE)


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
        kind: none, lstm, gru, associative or episodic_lstm.
        inputs: width of the torso's output.
        size: width of the memory.
        level: what has to start for memory to be cleared.
        context_size: numbers of the context, which follow the torso's output; for episodic_lstm.
        rows: contexts that its table holds; for associative, the width of addresses.
    """
    if own.is_own(kind):
        return own.get("core", kind)(key, inputs, size, level)
    if kind == "none":
        return NoCore(), inputs
    if kind == "episodic_lstm":
        return EpisodicLSTM(key, inputs, size, level, context_size, rows), size
    if kind == "associative":
        return AssociativeCore(key, inputs, size, level, rows), size
    cell = LSTM if kind == "lstm" else GRU
    return RecurrentCore(cell(key, inputs, size), level), size
