"""How an agent reads an observation: from [..., *shape] to a vector per observation. Called by agents/agent.py.

An observation is an array or a dictionary of arrays. Each array has a reader that fits it (images, symbols, plain numbers); the
readers' outputs are concatenated, and fully connected layers follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rulax import own
from rulax.agents.convolution import Conv
from rulax.agents.layers import ACTIVATIONS, MLP, initial_weight
from rulax.envs.base import is_image, is_symbols
from rulax.settings import Network
from rulax.types import Array, PyTree

CHANNELS = {"conv": (16,), "strided": (16, 32, 32), "impala": (16, 32, 32)}  # where the settings name none
STRIDES = ((8, 4), (4, 2), (3, 1))  # kernels and strides of the strided convolutions (Mnih et al. 2015)
CONTEXT = "context"  # the part of an observation by which an episodic core recognises a situation
SMALL, LARGE = 8, 32  # from these widths on, an array with three axes is an image, and a large one


def as_float(observation: Array, dtype: Any) -> Array:
    """Cast to a floating-point dtype; bytes are also scaled to [0, 1]."""
    scale = 1 / 255 if observation.dtype == jnp.uint8 else 1
    return observation.astype(dtype) * jnp.asarray(scale, dtype)


class Numbers(eqx.Module):
    """Reads plain numbers as they are: from [..., *shape] to [..., size]."""

    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: Array, dtype: Any) -> Array:
        lead = observation.shape[: observation.ndim - len(self.shape)]
        return as_float(observation, dtype).reshape(*lead, -1)


class Convolutions(eqx.Module):
    """Convolutions, each followed by the non-linearity: 3x3 ones that keep the size, or strided ones for large images."""

    convs: tuple[Conv, ...]
    activation: str = eqx.field(static=True)

    def __init__(self, key: Array, inputs: int, channels: tuple[int, ...], strides: tuple, activation: str):
        keys = jax.random.split(key, len(channels))
        sizes = zip(keys, (inputs, *channels[:-1]), channels, strides, strict=True)
        self.convs = tuple(Conv(k, i, o, *kernel_and_stride) for k, i, o, kernel_and_stride in sizes)
        self.activation = activation

    def __call__(self, image: Array, dtype: Any) -> Array:
        x = as_float(image, dtype)
        for conv in self.convs:
            x = ACTIVATIONS[self.activation](conv(x))
        return x


class Section(eqx.Module):
    """A convolution, a pooling that halves the image, and residual blocks x + conv(relu(conv(relu(x))))."""

    conv: Conv
    blocks: tuple[tuple[Conv, Conv], ...]

    def __init__(self, key: Array, inputs: int, outputs: int, blocks: int):
        key_conv, *keys = jax.random.split(key, 1 + 2 * blocks)
        self.conv = Conv(key_conv, inputs, outputs)
        pairs = zip(keys[::2], keys[1::2], strict=True)
        self.blocks = tuple((Conv(a, outputs, outputs), Conv(b, outputs, outputs)) for a, b in pairs)

    def __call__(self, x: Array) -> Array:
        # NumPy's: in a traced number JAX would not see that this is a maximum, which alone has a gradient.
        lowest = np.asarray(-np.inf, x.dtype)
        x = jax.lax.reduce_window(self.conv(x), lowest, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for first, second in self.blocks:
            x = x + second(jax.nn.relu(first(jax.nn.relu(x))))
        return x


class Residual(eqx.Module):
    """The residual network of IMPALA (Espeholt et al. 2018): one section per number of channels."""

    sections: tuple[Section, ...]

    def __init__(self, key: Array, inputs: int, channels: tuple[int, ...], blocks: int):
        keys = jax.random.split(key, len(channels))
        sizes = zip(keys, (inputs, *channels[:-1]), channels, strict=True)
        self.sections = tuple(Section(k, i, o, blocks) for k, i, o in sizes)

    def __call__(self, image: Array, dtype: Any) -> Array:
        x = as_float(image, dtype)
        for section in self.sections:
            x = section(x)
        # The last block ends in a sum, which no non-linearity has followed yet.
        return jax.nn.relu(x)


class Images(eqx.Module):
    """Reads images [..., H, W, C], of bytes or numbers."""

    network: Convolutions | Residual

    def __call__(self, observation: Array, dtype: Any) -> Array:
        # Convolutions know one batch axis, and time and streams are two.
        lead, image = observation.shape[:-3], observation.shape[-3:]
        return self.network(observation.reshape(-1, *image), dtype).reshape(*lead, -1)


class Symbols(eqx.Module):
    """Reads arrays of whole numbers that are names, not quantities (the glyphs of NetHack): each is a learned vector.

    A map of symbols [..., H, W], or with several in each place [..., H, W, C], becomes an image of such vectors; the vectors of
    symbols without a place are concatenated.
    """

    table: Array  # [symbols, size]
    image: Images | None
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: Array, dtype: Any) -> Array:
        vectors = self.table.astype(dtype)[jnp.clip(observation.astype(jnp.int32), 0, len(self.table) - 1)]
        places = self.shape[:2] if self.image is not None else ()
        vectors = vectors.reshape(*observation.shape[: observation.ndim - len(self.shape)], *places, -1)
        return vectors if self.image is None else self.image(vectors, dtype)


class Whole(eqx.Module):
    """A user's own network, which reads a whole observation, an array or a dictionary of them, as one vector.

    Whatever in it is not an array (non-linearities, sizes) is part of the structure, as JAX's transformations ask for.
    """

    arrays: PyTree
    rest: Rest = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # of the observation's leaves

    def __init__(self, network: Any, observation: PyTree):
        self.arrays, rest = eqx.partition(network, eqx.is_array)
        self.rest = Rest(rest)
        self.shapes = tuple(tuple(leaf.shape) for leaf in jax.tree.leaves(observation))

    def __call__(self, observation: PyTree, dtype: Any) -> Array:
        leaf = jax.tree.leaves(observation)[0]
        lead = leaf.shape[: leaf.ndim - len(self.shapes[0])]
        shapes = iter(self.shapes)
        flat = jax.tree.map(lambda part: part.reshape(-1, *next(shapes)), observation)
        read = jax.vmap(eqx.combine(self.arrays, self.rest.tree))(flat)
        if read.ndim != 2:
            raise ValueError(
                f"a torso of your own must read one observation as a vector, not as an array of shape {read.shape[1:]}"
            )
        return read.reshape(*lead, -1).astype(dtype)


class Rest:
    """A tree without arrays that can be part of a structure: equal to another with the same content."""

    def __init__(self, tree: PyTree):
        self.tree = tree
        self.leaves, self.structure = jax.tree.flatten(tree)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rest) and (self.structure, self.leaves) == (other.structure, other.leaves)

    def __hash__(self) -> int:
        return hash(self.structure)


Reader = Numbers | Images | Symbols | Whole


class Torso(eqx.Module):
    """A reader per array of the observation, then fully connected layers."""

    readers: tuple[Reader, ...]  # in the order of the observation's leaves
    mlp: MLP

    def __call__(self, observation: PyTree) -> Array:
        return self.mlp(self.flat(observation))

    def flat(self, observation: PyTree) -> Array:
        """The readers' outputs, which the fully connected layers read, [..., width]."""
        return read_all(self.readers, observation, self.mlp.layers[0].weight.dtype)


class ContextTorso(Torso):
    """A torso whose output is followed by the observation's part "context" as it is: the key that an episodic core writes under."""

    def __call__(self, observation: PyTree) -> Array:
        features = super().__call__(observation)
        return jnp.concatenate([features, as_float(observation[CONTEXT], features.dtype)], -1)


def context_size(observation: PyTree) -> int:
    """How many numbers the context of an observation has: a vector under that name."""
    part = observation.get(CONTEXT) if isinstance(observation, Mapping) else None
    if part is None or len(part.shape) != 1:
        raise ValueError(
            "the core episodic_lstm needs observations with a part 'context', a vector of numbers: --env-options contexts=10 shows "
            "one in any compiled environment, and a dictionary space of Gymnasium's may have it"
        )
    return part.shape[0]


def read_all(readers: tuple[Reader, ...], observation: PyTree, dtype: Any) -> Array:
    """The readers' outputs, concatenated: [..., width]."""
    if isinstance(readers[0], Whole):
        return readers[0](observation, dtype)
    parts = [reader(leaf, dtype) for reader, leaf in zip(readers, jax.tree.leaves(observation), strict=True)]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, -1)


def make_torso(key: Array, observation: PyTree, network: Network) -> Torso:
    """The torso that the settings name, or the one that fits observations of these shapes and dtypes (one, or a dictionary).

    One of the user's own is made by `make(key, observation, network)` and called with one observation, without axes of time or
    streams; it returns a vector, and the fully connected layers of `hidden` follow.
    """
    if not network.hidden:
        raise ValueError("the torso needs at least one hidden layer: give --hidden one or more widths")
    leaves = jax.tree.leaves(observation)
    if own.is_own(network.torso):
        key_own, key_mlp = jax.random.split(key)
        whole = Whole(own.get("torso", network.torso)(key_own, observation, network), observation)
        width = jax.eval_shape(lambda reader, x: reader(x, jnp.float32), whole, observation).shape[-1]
        return Torso((whole,), MLP(key_mlp, (width, *network.hidden), network.activation, network.activate_last))
    if network.torso not in ("auto", "mlp") and not any(is_image(leaf) for leaf in leaves):
        shapes = " and ".join(str(tuple(leaf.shape)) for leaf in leaves)
        raise ValueError(
            f"torso '{network.torso}' needs images [height, width, channels], but an observation has shape {shapes}; use 'mlp'"
        )
    key_mlp, *keys = jax.random.split(key, 1 + len(leaves))
    readers = tuple(make_reader(k, leaf, network) for k, leaf in zip(keys, leaves, strict=True))
    # Asked for and not calculated: the size after convolutions depends on kernels, strides and padding.
    width = jax.eval_shape(lambda readers, x: read_all(readers, x, jnp.float32), readers, observation).shape[-1]
    if all(isinstance(reader, Numbers) for reader in readers):
        key_mlp = key  # no reader needs one; agents of plain numbers then start as they did before there were readers
    return Torso(readers, MLP(key_mlp, (width, *network.hidden), network.activation, network.activate_last))


def make_reader(key: Array, leaf: jax.ShapeDtypeStruct, network: Network) -> Reader:
    """The reader for one array of an observation."""
    shape = tuple(leaf.shape)
    if is_symbols(leaf):
        key_table, key_image = jax.random.split(key)
        # Not the default: it would take the number of symbols for the fan-in, but a look-up reads a single row.
        table = initial_weight(key_table, (network.symbols, network.embedding), 1.0)
        depth = math.prod(shape[2:]) * network.embedding
        image = make_image_reader(key_image, (*shape[:2], depth), network) if is_image(leaf) else None
        # A map too small for convolutions gets `Numbers`, which would only concatenate the vectors, as `Symbols` does itself.
        return Symbols(table, image if isinstance(image, Images) else None, shape)
    return make_image_reader(key, shape, network)


def make_image_reader(key: Array, shape: tuple[int, ...], network: Network) -> Numbers | Images:
    """Convolutions for arrays that look like images, or that the settings declare to be; else plain numbers."""
    kind = network.torso
    if kind == "auto":
        width = min(shape[0], shape[1]) if len(shape) == 3 else 0
        kind = "mlp" if width < SMALL else "conv" if width < LARGE else "strided"
    if kind == "mlp" or len(shape) != 3:
        return Numbers(shape)
    channels = network.channels or CHANNELS[kind]
    if kind == "impala":
        return Images(Residual(key, shape[-1], channels, network.blocks))
    if kind == "strided" and len(channels) > len(STRIDES):
        raise ValueError(f"torso 'strided' has at most {len(STRIDES)} layers, but --channels names {len(channels)}; use 'impala'")
    if kind == "strided" and min(shape[0], shape[1]) < LARGE:
        raise ValueError(f"torso 'strided' is for images of {LARGE} x {LARGE} or more, but one has shape {shape}; use 'conv'")
    strides = STRIDES[: len(channels)] if kind == "strided" else ((3, 1),) * len(channels)
    return Images(Convolutions(key, shape[-1], channels, strides, network.activation))
