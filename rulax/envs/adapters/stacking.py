"""Stacks of frames for any host environment that shows images: the option `stack=4` of every host adapter.

An image [H, W, C] becomes [H, W, 4 C], a map of symbols [H, W] (NetHack's glyphs) [H, W, 4], the oldest frame first; at the
start of an episode the older ones are black (zeros). Replay stores each frame once (`learning/frames.py`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from rulax.envs.base import HostEnvironment, HostStreams, Timestep, WrappedHost, WrappedStreams, is_image
from rulax.types import PyTree, starts


def stack(name: str, environment: Any, frames: Any) -> Any:
    """The environment with its images stacked; `name` is for error messages."""
    if isinstance(frames, bool) or not isinstance(frames, int) or frames < 1:
        raise ValueError(f"'{name}': stack must be a whole number of at least 1, not {frames!r}")
    if frames == 1:
        return environment
    if not isinstance(environment, HostEnvironment):
        raise ValueError(f"'{name}' runs inside of JAX; frames can be stacked only in environments that run on the host")
    if environment.frames > 1:
        raise ValueError(f"'{name}' shows stacks of {environment.frames} frames already")
    if not any(is_image(leaf) for leaf in jax.tree.leaves(environment.observation)):
        raise ValueError(f"'{name}' shows neither images [height, width, channels] nor maps of symbols, which alone can be stacked")
    return Stacked(environment, frames)


@dataclasses.dataclass(frozen=True, eq=False)
class Stacked(WrappedHost):
    """A host environment that shows its last `frames` frames. `preprocess` reads one frame; `push` adds it to a stack."""

    frames: int

    @property
    def observation(self) -> PyTree:  # type: ignore[override]
        def longer(leaf: Any) -> jax.ShapeDtypeStruct:
            height, width, *colours = leaf.shape
            return jax.ShapeDtypeStruct((height, width, self.frames * (colours or [1])[0]), leaf.dtype)

        return jax.tree.map(lambda leaf: longer(leaf) if is_image(leaf) else leaf, self.environment.observation)

    def open(self, num_streams: int) -> StackedStreams:
        return StackedStreams(self, self.environment.open(num_streams))

    def push(self, shown: PyTree, observation: PyTree, kept: Any = True) -> PyTree:
        """The stacks after a new frame, of one stream or of a batch; `shown` are those before, None before the first.

        Where older frames are not `kept` they become black.
        """

        def one(spec: Any, stack: np.ndarray, new: np.ndarray) -> np.ndarray:
            if not is_image(spec):
                return new
            new = np.asarray(new, spec.dtype)
            new = new[..., None] if len(spec.shape) == 2 else new
            depth = new.shape[-1]
            dark = np.zeros((*new.shape[:-1], depth * (self.frames - 1)), spec.dtype)
            # A product with booleans keeps the dtype, and makes black what is not kept.
            older = dark if shown is None else stack[..., depth:] * kept
            return np.concatenate([older, new], -1)  # a new array: the old one may be in use

        specs = self.environment.observation
        # Before the first frame any tree of the right structure will do: `one` does not read it.
        return jax.tree.map(one, specs, specs if shown is None else shown, observation)


class StackedStreams(WrappedStreams):
    """Open streams, and the last frames of each."""

    def __init__(self, environment: Stacked, streams: HostStreams):
        super().__init__(streams)
        self.environment = environment
        self.shown: PyTree = None

    def start(self, seed: int) -> Timestep:
        self.shown = None
        return super().start(seed)

    def show(self, timestep: Timestep) -> Timestep:
        # A start of any level: frames of another episode must not show. Broadcast over height, width and channels.
        kept = ~starts(np.asarray(timestep.first))[:, None, None, None]
        self.shown = self.environment.push(self.shown, timestep.observation, kept)
        return timestep._replace(observation=self.shown)
