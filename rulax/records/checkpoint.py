"""Saves a training state as one safetensors file, tensor by named tensor, and restores it into a state of the same shape.

Nothing is ever unpickled: a checkpoint from a stranger can at worst be refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError

from rulax.errors import UserError
from rulax.files import safetensors_metadata, write_atomically
from rulax.records import earlier
from rulax.types import PyTree

STATE, PENDING = "state", "pending"
UNREADABLE = (SafetensorError, KeyError, ValueError)  # what reading a damaged safetensors file raises
DTYPES = {"BOOL": np.bool_, "BF16": jnp.bfloat16, "F16": np.float16, "F32": np.float32, "F64": np.float64} | {
    f"{letter}{bits}": np.dtype(f"{kind}{bits}") for letter, kind in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)
}


class Checkpoint(NamedTuple):
    """What a file holds."""

    state: dict[str, np.ndarray]  # the tensors of the state, by name
    pending: dict[str, np.ndarray]  # the unfinished row of metrics
    facts: dict[str, Any]  # step, seconds, fingerprint, ...
    format: int = earlier.FORMAT


def is_key(leaf: Any) -> bool:
    """Typed random keys are not plain arrays and need to be unwrapped."""
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def leaf_names(tree: PyTree) -> list[str]:
    """A readable path for every leaf, in the order of `jax.tree.leaves`."""
    return [f"{STATE}{jax.tree_util.keystr(path)}" for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def to_numpy(leaf: Any) -> np.ndarray:
    """One leaf as it is stored."""
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def stored_form(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype that a leaf of a skeleton has in the file."""
    return jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def pack(state: PyTree) -> dict[str, np.ndarray]:
    """A state as tensors by name."""
    return dict(zip(leaf_names(state), map(to_numpy, jax.tree.leaves(state)), strict=True))


def unpack(found: Checkpoint, skeleton: PyTree, source: Path) -> PyTree:
    """The state of a checkpoint in the structure of `skeleton`; any difference in name, shape or type is an error that names it."""
    if found.format >= earlier.FORMAT:
        return restore(found.state, skeleton, f"{source} does not fit this run")
    wanted = dict(zip(leaf_names(skeleton), map(stored_form, jax.tree.leaves(skeleton)), strict=True))
    tensors = earlier.current_tensors(found.state, wanted)
    known = {name: earlier.current_array(tensors[name], wanted[name].dtype) for name in tensors.keys() & wanted.keys()}
    problem = f"{source} was written by an earlier version of rulax and cannot be read by this one"
    for name in wanted:
        if name not in tensors and (reason := earlier.why_missing(name)):
            raise UserError(f"{problem}: {reason}")
    return restore(tensors | known, skeleton, problem)


def restore(tensors: Mapping[str, np.ndarray], skeleton: PyTree, problem: str) -> PyTree:
    """Tensors by name in the structure of `skeleton`; `problem` begins the sentence about any difference."""
    names = leaf_names(skeleton)
    # More than expected is refused as well: a tensor that nobody restores would mean that part of the state is lost.
    for name in tensors.keys() - set(names):
        raise UserError(f"{problem}: it holds an unknown tensor '{name}'")
    leaves = []
    for name, leaf in zip(names, jax.tree.leaves(skeleton), strict=True):
        wanted = stored_form(leaf)
        if name not in tensors:
            raise UserError(f"{problem}: the tensor '{name}' is missing")
        array = tensors[name]
        # No conversion: a number of another precision would make the resumed run differ from an uninterrupted one.
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            forms = [f"{form.dtype}{list(form.shape)}" for form in (array, wanted)]
            raise UserError(f"{problem}: the tensor '{name}' is {forms[0]} but should be {forms[1]}")
        # A copy: training donates its buffers, and memory that numpy owns must not be handed over.
        copied = jnp.array(array, copy=True)
        leaves.append(jax.random.wrap_key_data(copied) if is_key(leaf) else copied)
    return jax.tree.unflatten(jax.tree.structure(skeleton), leaves)


def save(path: Path, state: PyTree, pending: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Write a checkpoint; the file is replaced as a whole or not at all. `pending` is the unfinished row of metrics."""
    tensors = pack(state) | {f"{PENDING}/{name}": np.asarray(value) for name, value in pending.items()}
    write_tensors(path, tensors, {"rulax": json.dumps({"format": earlier.FORMAT, **facts})})


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str]) -> None:
    """A safetensors file, replaced as a whole or not at all."""
    from safetensors.numpy import save as serialise

    # The library stores raw memory, so strides must be the plain ones. The reshape brings back scalars, which ascontiguousarray
    # turns into vectors.
    contiguous = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in tensors.items()}
    write_atomically(path, serialise(contiguous, metadata))


def read_tensors(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file by name; `UNREADABLE` are the errors of a file that is none."""
    # Not the library's load function: see to_array.
    from safetensors import deserialize

    return {name: to_array(**tensor) for name, tensor in deserialize(data)}


def load(path: Path) -> Checkpoint:
    """Read a checkpoint, or say in one sentence why it cannot be read."""
    try:
        data = path.read_bytes()
        tensors = read_tensors(data)
        facts = json.loads(safetensors_metadata(data)["rulax"])
    except FileNotFoundError:
        raise UserError(f"{path.parent} holds no checkpoint to go on from") from None
    except (OSError, *UNREADABLE) as error:
        raise UserError(f"{path} is not a readable checkpoint: {error}") from None
    state = {name: value for name, value in tensors.items() if not name.startswith(f"{PENDING}/")}
    pending = {name.removeprefix(f"{PENDING}/"): value for name, value in tensors.items() if name not in state}
    return Checkpoint(state, pending, earlier.current_facts(facts), facts.get("format", 1))


def to_array(dtype: str, shape: list[int], data: bytes) -> np.ndarray:
    """One tensor of a file; the library's own reader knows no bfloat16."""
    return np.frombuffer(data, DTYPES[dtype]).reshape(shape)


def size_of(state: PyTree) -> int:
    """Bytes of all leaves."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(state) if hasattr(leaf, "nbytes"))


def copy_of(state: PyTree) -> PyTree:
    """A copy that survives when the original's buffers are donated."""
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf, state)
