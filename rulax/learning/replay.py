"""A ring buffer of trajectories on the device: `start`, `add`, `sample`, and `mix` of fresh and replayed experience.

A trajectory is what one stream did in one unroll. The buffer keeps the axes of `Experience`, [T, C, ...] with capacity C in
the place of the streams, so that a sample is experience without any transposing. Sampling is uniform, with replacement.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.learning.update import take_streams
from rulax.types import Array, Experience


class Replay(NamedTuple):
    """The buffer's contents, where the next trajectory goes, and how many there are."""

    storage: Experience  # [T, C, ...], memory [C, ...]
    position: Array  # [] int32
    filled: Array  # [] int32


def start(example: Experience, capacity: int) -> Replay:
    """An empty buffer for experience like the example; the capacity is rounded up to a multiple of its streams."""
    streams = example.action.shape[1]
    # All streams are written at once. With a multiple of them no write reaches past the end, where `dynamic_update_slice` would
    # shift it back without a word and overwrite the wrong trajectories.
    capacity = -(-capacity // streams) * streams

    def empty(axis: int):
        def make(x: Array) -> Array:
            return jnp.zeros((*x.shape[:axis], capacity, *x.shape[axis + 1 :]), x.dtype)

        return make

    # Memory is that of the start of a trajectory: it has no time axis, so trajectories are its axis 0.
    storage = jax.tree.map(empty(1), example._replace(memory=()))
    storage = storage._replace(memory=jax.tree.map(empty(0), example.memory))
    return Replay(storage, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(replay: Replay, experience: Experience) -> Replay:
    """Write experience [T, B], one trajectory per stream, over the oldest ones."""
    streams, capacity = experience.action.shape[1], replay.storage.action.shape[1]

    def write(axis: int):
        # A slice, not a scatter: the compiler then writes in place. It never wraps, see `start`.
        return lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new.astype(ring.dtype), replay.position, axis)

    storage = jax.tree.map(write(1), replay.storage._replace(memory=()), experience._replace(memory=()))
    storage = storage._replace(memory=jax.tree.map(write(0), replay.storage.memory, experience.memory))
    position = (replay.position + streams) % capacity
    return Replay(storage, position, jnp.minimum(replay.filled + streams, capacity))


def sample(replay: Replay, number: int, key: Array) -> Experience:
    """Experience [T, number] of trajectories drawn uniformly, with replacement, from those that the buffer holds."""
    # What was collected is stored before anything is drawn, so `filled` is at least 1. With replacement, because drawing without
    # it would permute the whole buffer for every batch.
    return take_streams(replay.storage, jax.random.randint(key, (number,), 0, replay.filled))


def mix(replay: Replay | None, fresh: Experience, batch: int, fraction: float, key: Array) -> Experience:
    """A batch [T, batch] of which `fraction` is replayed and the rest is a random subset of the fresh streams."""
    # `host_replay.choose` splits and draws in the same way; they have to change together.
    key_fresh, key_replay = jax.random.split(key)
    replayed = round(batch * fraction) if replay else 0
    chosen = take_streams(fresh, jax.random.permutation(key_fresh, fresh.action.shape[1])[: batch - replayed])
    if replay is None or replayed == 0:
        return chosen
    old = sample(replay, replayed, key_replay)
    if replayed == batch:
        return old
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), chosen._replace(memory=()), old._replace(memory=()))
    return joined._replace(memory=jax.tree.map(lambda a, b: jnp.concatenate([a, b], 0), chosen.memory, old.memory))
