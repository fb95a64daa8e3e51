"""Clearing memory where something starts: acting and learning do it alike, whatever the core."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.types import Array, PyTree, starts


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
