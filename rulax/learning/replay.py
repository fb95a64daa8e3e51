"""A ring buffer of trajectories on the device: `start`, `add`, `sample`, and `mix` of fresh and replayed experience.

A trajectory is what one stream did in one unroll. The buffer keeps the axes of `Experience`, [T, C, ...] with capacity C in
the place of the streams, so that a sample is experience without any transposing. Sampling is with replacement, uniform unless the
buffer keeps priorities (`priorities.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.learning import priorities
from rulax.learning.update import take_streams
from rulax.types import Array, Experience


class Replay(NamedTuple):
    """The buffer's contents, where the next trajectory goes, how many there are, and how much each is preferred."""

    storage: Experience  # [T, C, ...], memory [C, ...]
    position: Array  # [] int32
    filled: Array  # [] int32
    priority: Array | tuple[()] = ()  # [C] of each trajectory, 0 where there is none yet; () where all are drawn alike


class Choice(NamedTuple):
    """What a batch is made of."""

    fresh: Array  # [F] streams of the fresh experience
    replayed: Array  # [R] places in the buffer
    weight: Array | None  # [R] of the losses of what is replayed; None where all are drawn alike, and weigh 1


class Drawn(NamedTuple):
    """A batch, and where each of its trajectories lies in the buffer."""

    experience: Experience  # [T, N]
    places: Array | tuple[()]  # [N]; () where the buffer keeps no priorities, so that nobody asks


def start(example: Experience, capacity: int, prioritised: bool = False) -> Replay:
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
    priority = jnp.zeros(capacity) if prioritised else ()
    return Replay(storage, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), priority)


def add(replay: Replay, experience: Experience) -> Replay:
    """Write experience [T, B], one trajectory per stream, over the oldest ones."""
    streams, capacity = experience.action.shape[1], replay.storage.action.shape[1]

    def write(axis: int):
        # A slice, not a scatter: the compiler then writes in place. It never wraps, see `start`.
        return lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new.astype(ring.dtype), replay.position, axis)

    storage = jax.tree.map(write(1), replay.storage._replace(memory=()), experience._replace(memory=()))
    storage = storage._replace(memory=jax.tree.map(write(0), replay.storage.memory, experience.memory))
    position = (replay.position + streams) % capacity
    priority = replay.priority
    if isinstance(priority, Array):
        new = jnp.broadcast_to(priorities.priority_of_new(priority), (streams,))
        priority = jax.lax.dynamic_update_slice_in_dim(priority, new, replay.position, 0)
    return Replay(storage, position, jnp.minimum(replay.filled + streams, capacity), priority)


def choose(
    key: Array,
    filled: Array,
    priority: Array | tuple[()],
    streams: int,
    fresh: int,
    replayed: int,
    powers: tuple[float, float] = (0.0, 0.0),
) -> Choice:
    """Which trajectories make up a batch. Both kinds of buffer ask here, so that a run draws the same batches with either.

    Args:
        key: randomness.
        filled: [] trajectories in the buffer.
        priority: [C] of each, or () for all alike.
        streams: of the fresh experience.
        fresh: how many to take of those.
        replayed: how many to take of the buffer, with replacement.
        powers: alpha and beta of `priorities.py`.
    """
    key_fresh, key_replay = jax.random.split(key)
    chosen = jax.random.permutation(key_fresh, streams)[:fresh]
    if isinstance(priority, tuple):
        # What was collected is stored before anything is drawn, so `filled` is at least 1. With replacement, because drawing
        # without it would permute the whole buffer for every batch.
        return Choice(chosen, jax.random.randint(key_replay, (replayed,), 0, filled), None)
    alpha, beta = powers
    drawn = priorities.draw(key_replay, priority, filled, replayed, alpha)
    return Choice(chosen, drawn, priorities.importance_weights(priority, filled, drawn, alpha, beta))


def mix(replay: Replay | None, fresh: Experience, batch: int, fraction: float, key: Array) -> Experience:
    """A batch [T, batch] of which `fraction` is replayed and the rest is a random subset of the fresh streams."""
    return draw(replay, fresh, batch, fraction, key).experience


def draw(
    replay: Replay | None, fresh: Experience, batch: int, fraction: float, key: Array, powers: tuple[float, float] = (0.0, 0.0)
) -> Drawn:
    """As `mix`, with the places of all trajectories; the fresh ones have been put into the buffer already.

    Where the buffer keeps priorities, `powers` are their alpha and beta, and the experience has weights: 1 for what is fresh.
    """
    streams, replayed = fresh.action.shape[1], round(batch * fraction) if replay else 0
    if replay is None or replayed == 0:
        key_fresh, _ = jax.random.split(key)
        return Drawn(take_streams(fresh, jax.random.permutation(key_fresh, streams)[:batch]), ())
    filled, priority = replay.filled, replay.priority
    choice = choose(key, filled, priority, streams, batch - replayed, replayed, powers)
    drawn = take_streams(replay.storage, choice.replayed)
    if replayed < batch:
        drawn = joined(take_streams(fresh, choice.fresh), drawn)
    if choice.weight is None:
        return Drawn(drawn, ())
    capacity = replay.storage.action.shape[1]
    places = jnp.concatenate([(replay.position - streams + choice.fresh) % capacity, choice.replayed])
    weight = jnp.concatenate([jnp.ones(batch - replayed), choice.weight])
    return Drawn(drawn._replace(weight=jnp.broadcast_to(weight, drawn.reward.shape)), places)


def joined(one: Experience, other: Experience) -> Experience:
    """Experience of the streams of both."""
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), one._replace(memory=()), other._replace(memory=()))
    return both._replace(memory=jax.tree.map(lambda a, b: jnp.concatenate([a, b], 0), one.memory, other.memory))
