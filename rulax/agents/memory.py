"""A table of keys and values that is read by nearness: episodic memory, of a fixed size, as pure functions of arrays.

    memory = empty_memory(capacity=1000, key_size=64)
    memory = write(memory, key, value, Largest(), tolerance=1e-3)   # a row that matches is combined, else a row is added
    neighbours = nearest(memory, queries, 11)                       # rows, squared distances, and which of them exist
    weights = InverseDistance()(neighbours)                         # or ExactOrMean(), Match()
    values = read(memory, neighbours, weights)
    memory = mark_used(memory, neighbours, weights)

A full table gives up the row that was least recently used: written, or read with a weight above zero. Each write and each query is
one tick of the table's clock, in the order in which they are given.

Many tables are one `Memory` with leading axes: `vmap` over them, or `write(..., at=(index,))`, which copies no table. Values are
numbers, or arrays of one shape. Gradients reach keys, values and queries through distances and weights, not the choice of rows.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from rulax.types import Array

SPARE = 8  # more candidates than neighbours: their distances are computed again, without the rounding of the fast formula


class Memory(NamedTuple):
    """One table of C rows. Rows that are not valid hold nothing, whatever their key and value are."""

    keys: Array  # [C, K]
    values: Array  # [C, ...]
    stamp: Array  # [C] int32, the tick at which a row was last used
    valid: Array  # [C] bool
    clock: Array  # [] int32, ticks so far

    @property
    def capacity(self) -> int:
        """C."""
        return self.keys.shape[-2]


class Neighbours(NamedTuple):
    """The rows that are nearest to queries [...], the nearest first and at equal distances the lower row."""

    rows: Array  # [..., k] int32
    distances: Array  # [..., k], squared
    found: Array  # [..., k] bool: False where the table has fewer than k rows


class Weigh(Protocol):
    """How much each neighbour counts: a pure function, hashable, so that it can be a fixed part of an agent."""

    def __call__(self, neighbours: Neighbours) -> Array:
        """Weights [..., k] that add up to 1, or are all 0 where nothing is found."""


class Combine(Protocol):
    """What becomes of the value of a row when its key is written again."""

    def __call__(self, old: Array, new: Array) -> Array:
        """The value [...] to keep."""


# -- how values are read -----------------------------------------------------------------------------------------------------------


class ExactOrMean(NamedTuple):
    """The value of a row within `tolerance` of the query, the nearest such; if there is none, the mean of all neighbours."""

    tolerance: float = 0.0

    def __call__(self, neighbours: Neighbours) -> Array:
        distances, found = neighbours.distances, neighbours.found
        nearest_one = jnp.arange(distances.shape[-1]) == 0
        hit = found[..., :1] & (distances[..., :1] <= self.tolerance**2)
        return _shares(jnp.where(hit, nearest_one, found).astype(distances.dtype))


class InverseDistance(NamedTuple):
    """Weights in proportion to 1 / (squared distance + delta), as in NEC (Pritzel et al. 2017, eq. 5)."""

    delta: float = 1e-3

    def __call__(self, neighbours: Neighbours) -> Array:
        return _shares(jnp.where(neighbours.found, 1 / (neighbours.distances + self.delta), 0))


class Match(NamedTuple):
    """The value of the nearest row if it is within `tolerance` of the query; else nothing, which is read as zeros."""

    tolerance: float = 0.0

    def __call__(self, neighbours: Neighbours) -> Array:
        near = neighbours.found & (neighbours.distances <= self.tolerance**2)
        return (near & (jnp.arange(near.shape[-1]) == 0)).astype(neighbours.distances.dtype)


def _shares(weights: Array) -> Array:
    """Weights [..., k] over their sum; 0 where the sum is 0."""
    total = jnp.sum(weights, -1, keepdims=True)
    # The inner `where` keeps 0 / 0 out of the gradient as well.
    return jnp.where(total > 0, weights / jnp.where(total > 0, total, 1), 0)


# -- how values are combined -------------------------------------------------------------------------------------------------------


class Largest(NamedTuple):
    """Keeps the larger value: the best that has ever followed."""

    def __call__(self, old: Array, new: Array) -> Array:
        return jnp.maximum(old, new)


class Newest(NamedTuple):
    """Keeps the new value."""

    def __call__(self, old: Array, new: Array) -> Array:
        return new


class Average(NamedTuple):
    """Moves the value by a share of the difference: a running average."""

    rate: float

    def __call__(self, old: Array, new: Array) -> Array:
        return old + self.rate * (new - old)


# -- the table ---------------------------------------------------------------------------------------------------------------------


def empty_memory(capacity: int, key_size: int, value_shape: tuple[int, ...] = ()) -> Memory:
    """A table of `capacity` rows without any content."""
    if capacity < 1:
        raise ValueError(f"a memory needs a capacity of at least 1 row, not {capacity}")
    return Memory(
        keys=jnp.zeros((capacity, key_size)),
        values=jnp.zeros((capacity, *value_shape)),
        stamp=jnp.zeros(capacity, jnp.int32),
        valid=jnp.zeros(capacity, bool),
        clock=jnp.zeros((), jnp.int32),
    )


def nearest(memory: Memory, queries: Array, number: int) -> Neighbours:
    """The `number` (k, at most C) rows nearest to each query.

    Args:
        memory: one table.
        queries: [..., K].
        number: how many neighbours.
    """
    if not 1 <= number <= memory.capacity:
        raise ValueError(f"{number} neighbours cannot be found in a memory of {memory.capacity} rows")
    flat = queries.reshape(-1, queries.shape[-1])
    keys, asked = jax.lax.stop_gradient((memory.keys, flat))
    # |q - k|^2 = |q|^2 - 2 q k + |k|^2 is one matrix product, but it cancels: near keys of large norm would be confused.
    rough = 2 * asked @ keys.T - jnp.sum(keys**2, -1)
    _, rows = jax.lax.top_k(jnp.where(memory.valid, rough, -jnp.inf), min(memory.capacity, number + SPARE))
    exact = jnp.where(memory.valid[rows], -jnp.sum((asked[:, None] - keys[rows]) ** 2, -1), -jnp.inf)
    _, order = jax.lax.top_k(exact, number)
    rows = jnp.take_along_axis(rows, order, -1)
    # Once more, from what gradients may reach.
    distances = jnp.sum((flat[:, None] - memory.keys[rows]) ** 2, -1)
    lead = queries.shape[:-1]
    found = Neighbours(rows, distances, memory.valid[rows])
    return jax.tree.map(lambda x: x.reshape(*lead, number), found)


def read(memory: Memory, neighbours: Neighbours, weights: Array) -> Array:
    """The weighted sum [..., *value_shape] of the neighbours' values; zeros where nothing is found."""
    values = memory.values[neighbours.rows]  # [..., k, *value_shape]
    extra = (1,) * (values.ndim - weights.ndim)
    return jnp.sum(weights.reshape(*weights.shape, *extra) * values, axis=weights.ndim - 1)


def mark_used(memory: Memory, neighbours: Neighbours, weights: Array) -> Memory:
    """The table after rows were read, each query being one tick: rows with a weight above zero count as used."""
    weights = weights.reshape(-1, weights.shape[-1])
    ticks = memory.clock + 1 + jnp.arange(len(weights), dtype=jnp.int32)
    stamps = jnp.where(weights > 0, ticks[:, None], 0)
    stamp = memory.stamp.at[neighbours.rows.reshape(stamps.shape)].max(stamps)
    return memory._replace(stamp=stamp, clock=memory.clock + len(weights))


def write(
    memory: Memory,
    key: Array,
    value: Array,
    combine: Combine | None = None,
    tolerance: float = 0.0,
    at: tuple[int | Array, ...] = (),
) -> Memory:
    """Write one row: into the nearest row within `tolerance`, or else into an empty one, or else the least recently used one.

    Args:
        memory: one table, or a stack of tables.
        key: [K].
        value: [*value_shape].
        combine: what becomes of the value of a row that matches; None appends without looking for one.
        tolerance: largest distance at which a row matches.
        at: which table of the stack.
    """
    table = jax.tree.map(lambda x: x[at], memory)
    # The lowest stamp of all is that of an empty row. `argmin` takes the first of several.
    row = jnp.argmin(jnp.where(table.valid, table.stamp, -1))
    if combine is not None:
        distances = jnp.where(table.valid, jnp.sum((table.keys - key) ** 2, -1), jnp.inf)
        match = jnp.argmin(distances)
        hit = distances[match] <= tolerance**2
        old = table.values[match]
        row = jnp.where(hit, match, row)
        key, value = jnp.where(hit, table.keys[match], key), jnp.where(hit, combine(old, value), value)
    tick = table.clock + 1
    place = (*at, row)
    return Memory(
        keys=memory.keys.at[place].set(key),
        values=memory.values.at[place].set(value),
        stamp=memory.stamp.at[place].set(tick),
        valid=memory.valid.at[place].set(True),
        clock=memory.clock.at[at].set(tick),
    )


# -- small tables, one per stream --------------------------------------------------------------------------------------------------


def recall(memory: Memory, key: Array, tolerance: float) -> Array:
    """The value [*value_shape] of the nearest row if it is within `tolerance` of the key [K]; else zeros.

    As `read` with `nearest` and `Match`. All rows are compared and summed instead of ranked and fetched: for tables of a few rows,
    of which every stream has its own, that is faster.
    """
    match = _matches(memory, key, tolerance).astype(memory.values.dtype)
    return jnp.tensordot(match, memory.values, 1)


def write_if(memory: Memory, when: Array, key: Array, value: Array, tolerance: float) -> Memory:
    """The table after `write` with `Newest`, or as it was if `when` [] is False; for small tables, like `recall`."""
    match = _matches(memory, key, tolerance)
    oldest = jnp.arange(memory.capacity) == jnp.argmin(jnp.where(memory.valid, memory.stamp, -1))
    hit = jnp.any(match)
    row = when & jnp.where(hit, match, oldest)  # [C]
    tick = memory.clock + 1

    def put(old: Array, new: Array) -> Array:
        return jnp.where(row.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return Memory(
        keys=jnp.where((row & ~hit)[:, None], key, memory.keys),
        values=put(memory.values, value),
        stamp=put(memory.stamp, tick),
        valid=memory.valid | row,
        clock=jnp.where(when, tick, memory.clock),
    )


def _matches(memory: Memory, key: Array, tolerance: float) -> Array:
    """[C] bool: True for the nearest row, the first of several, if it is within `tolerance`."""
    distances = jnp.where(memory.valid, jnp.sum((memory.keys - key) ** 2, -1), jnp.inf)
    nearest_row = jnp.argmin(distances)
    return (jnp.arange(memory.capacity) == nearest_row) & (distances <= tolerance**2)
