"""A ring buffer of trajectories in host memory, for environments that step there: what `replay.py` is on the device.

A buffer of images is too large for most accelerators, and what fills it is on the host anyway. Trajectories are kept as they were
shown (uint8 stays uint8), stacks of frames once per frame (`frames.py`), and each in one piece, [K, C, T, ...] for K seeds and C
trajectories: to draw one is to copy one block. What is drawn is the same, number by number, as `replay.mix` would draw.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.learning import replay as ring
from rulax.learning.frames import fold_observation, folded_form, stacked
from rulax.learning.priorities import priority_of_new
from rulax.learning.replay import Choice
from rulax.parallel.machine import free_memory
from rulax.text import bytes_text
from rulax.types import Array, Experience, PyTree

SHARE_OF_FREE = 0.8  # of the memory that is free when a run starts, unless the user sets a limit


class HostReplay:
    """The buffers of K seeds. `form` is one trajectory as shapes, [T, ...]; capacity is a multiple of the streams."""

    def __init__(self, form: Experience, seeds: int, streams: int, capacity: int, prioritised: bool = False):
        self.capacity = -(-capacity // streams) * streams
        self.storage = jax.tree.map(lambda leaf: np.zeros((seeds, self.capacity, *leaf.shape), leaf.dtype), form)
        # As `replay.Replay.priority`, [K, C].
        self.priority: np.ndarray | tuple[()] = np.zeros((seeds, self.capacity), np.float32) if prioritised else ()
        self.stored = 0  # trajectories per seed so far, those that have been overwritten included

    @property
    def filled(self) -> int:
        """How many trajectories it holds."""
        return min(self.stored, self.capacity)

    def add(self, fresh: Experience) -> None:
        """Write one trajectory per stream, [K, B, T, ...], over the oldest ones."""
        streams, position = fresh.action.shape[1], self.stored % self.capacity

        def write(ring: np.ndarray, new: np.ndarray) -> None:
            # One slice, which never wraps: the capacity is a multiple of the streams.
            ring[:, position : position + streams] = new

        jax.tree.map(write, self.storage, fresh)
        if isinstance(self.priority, np.ndarray):
            write(self.priority, np.asarray(priority_of_new(jnp.asarray(self.priority)))[:, None])
        self.stored += streams

    def renew(self, places: np.ndarray, priority: np.ndarray) -> None:
        """Set the priorities [K, N] of the trajectories at these places."""
        if isinstance(self.priority, np.ndarray):
            np.put_along_axis(self.priority, places, priority, 1)


class HostDrawn(NamedTuple):
    """Batches, and where each of their trajectories lies in the buffers: `replay.Drawn` on the host."""

    experience: Experience  # [K, N, T, ...]
    places: np.ndarray | tuple[()]  # [K, N]


def mix(replay: HostReplay | None, fresh: Experience, batch: int, fraction: float, keys: Array) -> Experience:
    """Batches [K, N, T, ...] of which `fraction` is replayed and the rest is a random subset of the fresh streams."""
    return draw(replay, fresh, batch, fraction, keys).experience


def draw(
    replay: HostReplay | None, fresh: Experience, batch: int, fraction: float, keys: Array, powers: tuple[float, float] = (0.0, 0.0)
) -> HostDrawn:
    """As `mix`, with the places of all trajectories and, where the buffers keep priorities, with weights."""
    streams, replayed = fresh.action.shape[1], round(batch * fraction) if replay else 0
    priority = replay.priority if replay and replayed else ()
    # `filled` changes with every unroll; as an array and not a static argument it does not compile `choose` again.
    filled = np.int32(replay.filled if replay else 1)
    choice = jax.tree.map(np.asarray, choose(keys, filled, priority, streams, batch - replayed, replayed, powers))

    def take(new: np.ndarray, old: np.ndarray) -> np.ndarray:
        taken = np.empty((len(new), batch, *new.shape[2:]), new.dtype)
        for seed, into in enumerate(taken):  # `take` into its place copies each trajectory once
            # All indices are in range. `clip`, because NumPy buffers `out` in its default mode, which would be a second copy.
            np.take(new[seed], choice.fresh[seed], axis=0, out=into[: batch - replayed], mode="clip")
            np.take(old[seed], choice.replayed[seed], axis=0, out=into[batch - replayed :], mode="clip")
        return taken

    drawn = jax.tree.map(take, fresh, replay.storage if replay else fresh)
    if replay is None or choice.weight is None:
        return HostDrawn(drawn, ())
    places = np.concatenate([(replay.stored - streams + choice.fresh) % replay.capacity, choice.replayed], 1)
    weight = np.concatenate([np.ones_like(choice.weight, shape=choice.fresh.shape), choice.weight], 1)
    return HostDrawn(drawn._replace(weight=np.broadcast_to(weight[..., None], drawn.reward.shape)), places)


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def choose(
    keys: Array,
    filled: Array,
    priority: Array | tuple[()],
    streams: int,
    fresh: int,
    replayed: int,
    powers: tuple[float, float],
) -> Choice:
    """Which fresh streams and which trajectories of the buffers make up the batches of K seeds: `replay.choose` for each."""
    one = lambda key, priority: ring.choose(key, filled, priority, streams, fresh, replayed, powers)  # noqa: E731
    return jax.vmap(one)(keys, priority)


# -- form and size -------------------------------------------------------------------------------------------------------------


def stored_form(form: Experience, observation: PyTree, frames: int) -> Experience:
    """One trajectory as it is stored; `observation` is the environment's own, which says what is a stack of frames."""
    fold = lambda spec, leaf: folded_form(leaf, frames) if stacked(spec, frames) else leaf  # noqa: E731
    return form._replace(observation=jax.tree.map(fold, observation, form.observation))


def to_store(fresh: Experience, observation: PyTree, frames: int) -> Experience:
    """Fresh experience in that form."""
    return fresh._replace(observation=fold_observation(fresh.observation, observation, frames))


def size_of(form: Experience) -> int:
    """Bytes of one trajectory."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(form))


def reserve(form: Experience, seeds: int, streams: int, capacity: int, limit: int = 0) -> str:
    """Say what the buffers will take, before they are filled; more than the limit is an error that says what would fit."""
    held, each = -(-capacity // streams) * streams, size_of(form) * seeds
    allowed = limit or int(SHARE_OF_FREE * free_memory())
    # Where free memory is not known it is 0, and nothing is refused.
    if allowed and held * each > allowed:
        fits = allowed // each // streams * streams
        free = f"only {bytes_text(allowed)} may be used (80 % of what is free)"
        bound = f"--replay-limit is {bytes_text(limit)}" if limit else free
        advice = f"--capacity {fits} would fit" if fits else "not even one trajectory per stream would fit; lower --streams"
        raise ValueError(f"the replay buffer of {held} trajectories would take {bytes_text(held * each)}, but {bound}; {advice}")
    several = f" x {seeds} seeds" if seeds > 1 else ""
    return f"replay: {held} trajectories{several}, {bytes_text(held * each)} in host memory"
