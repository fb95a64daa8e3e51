"""The table against a table in NumPy that does everything the slow way, over random sequences of operations."""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from rulax.agents.memory import (
    Average,
    ExactOrMean,
    InverseDistance,
    Largest,
    Match,
    Newest,
    empty_memory,
    mark_used,
    nearest,
    read,
    recall,
    write,
    write_if,
)

CAPACITY, NEIGHBOURS, KEY, VALUE, LENGTH, TABLES = 4, 3, 2, (2,), 16, 2
TOLERANCE, DELTA, RATE = 1.0, 0.5, 0.25
WRITES = (Largest(), Average(RATE), None)
READS = (ExactOrMean(TOLERANCE), InverseDistance(DELTA))


class SlowTable:
    """A list of rows, each a dictionary; the rules of the table, one at a time."""

    def __init__(self):
        self.rows, self.clock = [None] * CAPACITY, 0

    def distance(self, row, key):
        return float(np.sum((row["key"] - key) ** 2))

    def write(self, kind, key, value):
        self.clock += 1
        present = [row for row in self.rows if row is not None]
        near = min(present, key=lambda row: self.distance(row, key), default=None)  # the first of several
        if kind < 2 and near is not None and self.distance(near, key) <= TOLERANCE**2:
            old = near["value"]
            near["value"] = np.maximum(old, value) if kind == 0 else old + RATE * (value - old)
            near["stamp"] = self.clock
            return
        if None in self.rows:
            place = self.rows.index(None)
        else:
            place = min(range(CAPACITY), key=lambda index: self.rows[index]["stamp"])
        self.rows[place] = {"key": key, "value": value, "stamp": self.clock}

    def read(self, kind, key):
        self.clock += 1
        present = sorted((row for row in self.rows if row is not None), key=lambda row: self.distance(row, key))[:NEIGHBOURS]
        if kind == 0 and present and self.distance(present[0], key) <= TOLERANCE**2:
            present = present[:1]
        weights = [1.0 if kind == 0 else 1 / (self.distance(row, key) + DELTA) for row in present]
        for row in present:
            row["stamp"] = self.clock
        return sum((w * row["value"] for w, row in zip(weights, present, strict=True)), np.zeros(VALUE)) / max(sum(weights), 1e-30)


def looked_up(weigh, memory, key):
    neighbours = nearest(memory, key[None], NEIGHBOURS)
    weights = weigh(neighbours)
    return mark_used(memory, neighbours, weights), read(memory, neighbours, weights)[0]


def operations():
    """Of a stack of tables: the table that an operation is about is an argument, except that reading maps over all of them."""
    made = [
        lambda memory, table, key, value, combine=combine: (write(memory, key, value, combine, TOLERANCE, (table,)), value)
        for combine in WRITES
    ]
    for weigh in READS:

        def every(memory, table, key, value, weigh=weigh):
            after, values = jax.vmap(functools.partial(looked_up, weigh), in_axes=(0, None))(memory, key)
            # Only one of them is kept.
            return jax.tree.map(lambda new, old: old.at[table].set(new[table]), after, memory), values[table]

        made.append(every)
    return made


@jax.jit
def run(steps):
    """All operations in one compiled program, on a stack of tables."""
    empty = empty_memory(CAPACITY, KEY, VALUE)
    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (TABLES, *x.shape)), empty)
    return jax.lax.scan(lambda memory, step: jax.lax.switch(step[0], operations(), memory, *step[1:]), start, steps)


# Whole numbers: distances are exact, and ties, matches at exactly the tolerance and keys that come again are frequent.
coordinate = st.integers(-2, 2)
step = st.tuples(
    st.integers(0, 4), st.integers(0, TABLES - 1), st.tuples(coordinate, coordinate), st.tuples(coordinate, coordinate)
)


@given(st.lists(step, min_size=LENGTH, max_size=LENGTH))
@settings(max_examples=60, deadline=None)
def test_any_sequence_of_operations_is_that_of_the_slow_table(steps):
    kinds, which, keys, values = (np.array(part) for part in zip(*steps, strict=True))
    memory, read_values = run((kinds, which, keys.astype(np.float32), values.astype(np.float32)))
    slow = [SlowTable() for _ in range(TABLES)]
    for number, (kind, table, key, value) in enumerate(zip(kinds, which, keys.astype(float), values.astype(float), strict=True)):
        if kind < 3:
            slow[table].write(kind, key, value)
        else:
            np.testing.assert_allclose(read_values[number], slow[table].read(kind - 3, key), rtol=1e-5, atol=1e-6)
    for table in range(TABLES):
        assert int(memory.clock[table]) == slow[table].clock
        for index, row in enumerate(slow[table].rows):
            assert bool(memory.valid[table, index]) == (row is not None)
            if row is not None:
                np.testing.assert_array_equal(memory.keys[table, index], row["key"])
                np.testing.assert_allclose(memory.values[table, index], row["value"], rtol=1e-5, atol=1e-6)
                assert int(memory.stamp[table, index]) == row["stamp"]


def filled(number, size=3, capacity=None):
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(number, size)).astype(np.float32)
    memory = empty_memory(capacity or number, size)
    valid = jnp.arange(memory.capacity) < number
    rows = jnp.zeros_like(memory.keys).at[:number].set(keys)
    return memory._replace(keys=rows, values=jnp.arange(memory.capacity, dtype=jnp.float32), valid=valid), keys


def test_neighbours_are_those_of_sorting_all_distances():
    memory, keys = filled(50, capacity=60)
    queries = np.random.default_rng(1).normal(size=(2, 4, 3)).astype(np.float32)
    found = nearest(memory, jnp.asarray(queries), 5)
    distances = ((queries[..., None, :] - keys) ** 2).sum(-1)
    np.testing.assert_array_equal(found.rows, np.argsort(distances, -1)[..., :5])
    np.testing.assert_allclose(found.distances, np.sort(distances, -1)[..., :5], rtol=1e-5)
    assert found.found.all()


def test_a_match_is_found_among_keys_of_large_norm():
    """|q|^2 - 2 q k + |k|^2 is wrong by more than the distances here, which differ by a thousandth."""
    memory, keys = filled(8, size=4)
    memory = memory._replace(keys=1000 + 1e-2 * jnp.asarray(keys))
    found = nearest(memory, memory.keys, 1)
    np.testing.assert_array_equal(found.rows[:, 0], np.arange(8))
    np.testing.assert_array_equal(found.distances, 0)


def test_gradients_reach_keys_values_and_queries():
    """Against finite differences, in double precision; rows that are no neighbours get none."""
    with jax.enable_x64(True):
        memory, _ = filled(6)
        memory = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, memory)

        def value(keys, values, query):
            table = memory._replace(keys=keys, values=values)
            neighbours = nearest(table, query, 2)
            return read(table, neighbours, InverseDistance(0.1)(neighbours))

        point = memory.keys, memory.values, jnp.array([0.1, -0.2, 0.3])
        gradients = jax.grad(value, argnums=(0, 1, 2))(*point)
        rng = np.random.default_rng(2)
        for number, gradient in enumerate(gradients):
            direction = jnp.asarray(rng.normal(size=gradient.shape))
            ends = [value(*point[:number], point[number] + side * direction, *point[number + 1 :]) for side in (1e-6, -1e-6)]
            np.testing.assert_allclose(jnp.sum(gradient * direction), (ends[0] - ends[1]) / 2e-6, rtol=1e-5)
        near = set(np.asarray(nearest(memory, point[2], 2).rows).tolist())
        assert set(np.flatnonzero(np.abs(gradients[0]).sum(-1)).tolist()) == near


def test_an_empty_table_gives_zero_and_no_broken_gradient():
    memory = empty_memory(3, 2)

    def value(query):
        neighbours = nearest(memory, query, 2)
        return read(memory, neighbours, InverseDistance()(neighbours))

    assert float(value(jnp.ones(2))) == 0
    np.testing.assert_array_equal(jax.grad(value)(jnp.ones(2)), 0)


def test_sizes_that_make_no_sense():
    with pytest.raises(ValueError, match="capacity of at least 1 row, not 0"):
        empty_memory(0, 2)
    with pytest.raises(ValueError, match="4 neighbours cannot be found in a memory of 3 rows"):
        nearest(empty_memory(3, 2), jnp.zeros(2), 4)


def test_small_tables_are_written_and_read_like_any_other():
    """`write_if` and `recall`, which compare all rows, against `write`, `nearest` and `read`, which rank them: bit by bit."""
    rng = np.random.default_rng(0)
    keys, values = rng.integers(0, 3, (60, 2)).astype(np.float32), rng.standard_normal((60, 2)).astype(np.float32)
    when = rng.random(60) < 0.6

    @jax.jit
    def both(memory, when, key, value):
        written = jax.tree.map(lambda new, old: jnp.where(when, new, old), write(memory, key, value, Newest(), 0.5), memory)
        neighbours = nearest(written, key + 0.25, 1)
        found = read(written, neighbours, Match(0.5)(neighbours))
        return (written, found), (write_if(memory, when, key, value, 0.5), recall(written, key + 0.25, 0.5))

    memory, hits = empty_memory(4, 2, (2,)), 0  # fewer rows than there are keys, so that rows are given up
    for each in zip(when, keys, values, strict=True):
        expected, found = both(memory, *each)
        jax.tree.map(np.testing.assert_array_equal, found, expected)
        memory, hits = found[0], hits + bool(np.any(found[1]))
    assert 20 < hits < 60
