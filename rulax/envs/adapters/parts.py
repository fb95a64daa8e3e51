"""How an agent reads what Gymnasium shows: each array by its kind, images with their channels last, or all of it as one vector."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import MOST_CHOICES

MOST_CHANNELS = 16  # of an image [C, H, W]: a longer first axis is its height
LEAST_SIDE = 8  # of an image [H, W]: anything smaller is a table of numbers


@dataclasses.dataclass(frozen=True)
class Part:
    """How one array of an observation is read: images as they are, an index one-hot, several indices as symbols, else numbers."""

    shown: jax.ShapeDtypeStruct
    categories: int = 0  # of a Discrete space
    first: Any = 0  # its first index: Gymnasium's may start at any integer, ours at 0
    image: tuple[int, ...] = ()  # the environment's own shape of an image that is not [H, W, C]

    def read(self, observation: np.ndarray) -> np.ndarray:
        """One of them, or a batch; what has been read already stays as it is."""
        if self.categories:
            return adapters.one_hot(observation, self.categories, self.first)
        if np.any(self.first):
            observation = observation - self.first
        shown = np.asarray(observation, self.shown.dtype)
        if not self.image or shown.shape[-len(self.image) :] != self.image:
            return shown
        # Contiguous, because the moved axes are only a strided view, which every later copy would read slowly.
        return shown[..., None] if len(self.image) == 2 else np.ascontiguousarray(np.moveaxis(shown, -3, -1))


def read_observations(id: str, space: Any, advice: str) -> Any:
    """A `Part`, or a dictionary of them."""
    spaces = adapters.load("gymnasium", "gymnasium").spaces
    if isinstance(space, spaces.Dict):
        return {name: _read_part(id, spaces, part, f" in '{name}'{advice}") for name, part in space.items()}
    return _read_part(id, spaces, space, advice)


def _read_part(id: str, spaces: Any, space: Any, advice: str) -> Part:
    if isinstance(space, spaces.Discrete):
        return Part(jax.ShapeDtypeStruct((int(space.n),), np.float32), int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        names = space.nvec.max() <= MOST_CHOICES  # beyond, somebody meant a quantity; and tables of learned vectors end somewhere
        return Part(jax.ShapeDtypeStruct(space.shape, np.int32 if names else np.float32), first=space.start)
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        return _read_bytes(space.shape)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return Part(jax.ShapeDtypeStruct(space.shape, np.float32))
    kind = type(space).__name__
    raise ValueError(f"Gymnasium environment {id!r} has observations of kind {kind}, which no agent reads{advice}")


def _read_bytes(shape: tuple[int, ...]) -> Part:
    """Images get the axes that convolutions read: [C, H, W] its channels last, [H, W] one channel."""
    if len(shape) == 3 and shape[0] < min(shape[1:]) and shape[0] <= MOST_CHANNELS:
        return Part(jax.ShapeDtypeStruct((*shape[1:], shape[0]), np.uint8), image=shape)
    if len(shape) == 2 and min(shape) >= LEAST_SIDE:
        return Part(jax.ShapeDtypeStruct((*shape, 1), np.uint8), image=shape)
    return Part(jax.ShapeDtypeStruct(shape, np.uint8))


def flattened(space: Any, observation: Any) -> Any:
    """What `FlattenObservation` makes of one observation in a space, or of a batch as Gymnasium's vector environments show it."""
    flatten = adapters.load("gymnasium", "gymnasium").spaces.flatten
    if _is_one(space, observation):
        return flatten(space, observation)
    if isinstance(observation, np.ndarray) and (space.shape is None or observation.shape[1:] != space.shape):
        return observation  # flat already
    utils = adapters.load("gymnasium.vector.utils", "gymnasium")
    return np.stack([flatten(space, one) for one in utils.iterate(utils.batch_space(space), observation)])


def _is_one(space: Any, observation: Any) -> bool:
    """Told by the shape of its first array, not by `contains`, since many environments leave the bounds of their space."""
    spaces = adapters.load("gymnasium", "gymnasium").spaces
    if isinstance(space, spaces.Dict | spaces.Tuple):
        if isinstance(observation, np.ndarray):
            return False
        name = next(iter(space)) if isinstance(space, spaces.Dict) else 0
        return _is_one(space[name], observation[name])
    return np.shape(observation) == space.shape if space.shape is not None else space.contains(observation)
