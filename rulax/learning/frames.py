"""Stacked frames, each stored once: an environment that shows its last F frames shows every frame F times.

`fold` (NumPy, when a trajectory is stored) keeps each frame once and, for every observation, which frames it consists of; `unfold`
(JAX, when a batch is learned from) rebuilds the stacks bit by bit. A batch is also copied to the device in its folded form.

From one observation to the next a stack moves on by one frame or starts again, and then its older frames are black or copies of the
newest, as in common wrappers of Atari games. The frames themselves tell which, so `fold` does not need to know about episodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.types import Array, PyTree


class Folded(NamedTuple):
    """T + 1 stacks of F frames: T + F frames, and the number of each frame of each stack; T + F means a black one."""

    frames: Any  # [..., T+F, H, W, C], of C colours
    number: Any  # [..., T+1, F]


def stacked(leaf: Any, frames: int) -> bool:
    """Whether this part of an observation is a stack: an image with its frames, the oldest first, on the last axis."""
    return frames > 1 and len(leaf.shape) == 3 and leaf.shape[-1] % frames == 0


def folded_form(leaf: jax.ShapeDtypeStruct, frames: int) -> Any:
    """The shapes into which [T+1, H, W, F C] is folded."""
    length, height, width, depth = leaf.shape
    kept = length - 1 + frames
    numbers = jax.ShapeDtypeStruct((length, frames), np.min_scalar_type(kept))
    return Folded(jax.ShapeDtypeStruct((kept, height, width, depth // frames), leaf.dtype), numbers)


def fold(stacks: np.ndarray, frames: int) -> Folded:
    """Stacks [..., T+1, H, W, F C] with every frame kept once."""
    *lead, length, height, width, _ = stacks.shape
    stacks = stacks.reshape(*lead, length, height, width, frames, -1)
    # The first stack contributes all of its frames, every later one only its newest.
    older = np.moveaxis(stacks[..., 0, :, :, :-1, :], -2, -4)
    kept = np.concatenate([older, stacks[..., -1, :]], axis=-4)
    black = length - 1 + frames
    number = np.empty((*lead, length, frames), np.min_scalar_type(black))
    number[..., 0, :] = np.arange(frames)
    goes_on = moves_on(stacks)
    for time in range(1, length):
        newest = frames - 1 + time
        number[..., time, :-1], number[..., time, -1] = number[..., time - 1, 1:], newest
        # New starts are rare, so only those stacks are compared frame by frame.
        for stream in np.argwhere(~goes_on[..., time - 1]):
            at = (*stream, time)
            number[at] = started_anew(stacks[at], newest, black)
    return Folded(kept, number)


def moves_on(stacks: np.ndarray) -> np.ndarray:
    """Whether each stack of [..., T+1, H, W, F, C] but the first is the one before it, moved on by a frame: [..., T].

    Bytes are compared with the bytes one frame further on, except where the newest frame is. Comparing rows of bytes is ten times
    as fast as comparing slices of frames.
    """
    *lead, length, _, _, frames, depth = stacks.shape
    frame = depth * stacks.itemsize
    rows = np.ascontiguousarray(stacks).view(np.uint8).reshape(*lead, length, -1)
    older = np.arange(rows.shape[-1] - frame) % (frames * frame) < (frames - 1) * frame
    counts = np.where(older, 255, 0).astype(np.uint8)
    result = np.empty((*lead, length - 1), bool)
    for time in range(1, length):  # one at a time stays in the cache
        differ = rows[..., time, :-frame] ^ rows[..., time - 1, frame:]
        differ &= counts
        result[..., time - 1] = ~differ.any(-1)
    return result


def started_anew(stack: np.ndarray, newest: int, black: int) -> np.ndarray:
    """The numbers of the frames in a stack [H, W, F, C] that does not go on from the one before it."""
    dark, same = ~stack.any((0, 1, 3)), (stack == stack[..., -1:, :]).all((0, 1, 3))
    if not (dark | same).all():
        raise ValueError(
            "this environment says that its observations are stacks of frames, but one of them neither moves on by a frame nor "
            "starts with black or repeated frames; set `frames` of the environment to 1, and they are stored whole"
        )
    return np.where(same, newest, black)


def unfold(folded: Folded) -> Array:
    """[T+1, B, H, W, F C] from frames [T+F, B, H, W, C]."""
    # A black frame after the last one: `number` refers to it as T + F.
    frames = jnp.concatenate([folded.frames, jnp.zeros_like(folded.frames[:1])])
    streams = jnp.arange(frames.shape[1])[None, :, None]
    stacks = jnp.moveaxis(frames[folded.number.astype(jnp.int32), streams], 2, -2)  # [T+1, B, H, W, F, C]
    return stacks.reshape(*stacks.shape[:-2], -1)


def fold_observation(observation: PyTree, spec: PyTree, frames: int) -> PyTree:
    """Fold the parts of an observation that are stacks; `spec` gives the shapes of one observation."""
    return jax.tree.map(lambda one, x: fold(x, frames) if stacked(one, frames) else x, spec, observation)


def unfold_observation(observation: PyTree) -> PyTree:
    """The observation that `fold_observation` folded."""
    is_folded = lambda x: isinstance(x, Folded)  # noqa: E731
    return jax.tree.map(lambda x: unfold(x) if is_folded(x) else x, observation, is_leaf=is_folded)
