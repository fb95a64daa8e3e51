"""Saves a training state as one safetensors file, tensor by named tensor, and restores it into a state of the same shape.

Nothing is ever unpickled: a checkpoint from a stranger can at worst be refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from rulax.errors import UserError
from rulax.files.reading import misfit, parse_json, read_bytes
from rulax.files.tensors import Damaged, not_finite, write_tensors
from rulax.files.tensors import read_tensors as read_tensors_of
from rulax.records import earlier
from rulax.types import PyTree

STATE, PENDING = "state", "pending"
UNREADABLE = (Damaged,)  # what reading a damaged safetensors file raises
KEPT = 2  # checkpoints, unless a setting says otherwise
MOST_BYTES = 2**38  # of a checkpoint: more than any machine's memory that writes one


class Checkpoint(NamedTuple):
    """What a file holds."""

    state: dict[str, np.ndarray]  # the tensors of the state, by name
    pending: dict[str, np.ndarray]  # the unfinished row of metrics
    facts: dict[str, Any]  # step, seconds, fingerprint, ...
    format: int = earlier.FORMAT
    source: Path | None = None  # the file
    note: str = ""  # why it is not the last one, as a sentence for the user


class Facts(TypedDict):
    """What every run says beside its tensors."""

    step: int


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


# -- files ---------------------------------------------------------------------------------------------------------------------


def save(path: Path, state: PyTree, pending: dict[str, np.ndarray], facts: dict[str, Any], keep: int = KEPT) -> None:
    """Write a checkpoint; the file is replaced as a whole or not at all. The ones before it stay, until there are `keep`.

    Args:
        path: of the file.
        state: of the run.
        pending: the unfinished row of metrics.
        facts: step, seconds, fingerprint, ...
        keep: how many checkpoints there are to be in all.
    """
    tensors = pack(state) | {f"{PENDING}/{name}": np.asarray(value) for name, value in pending.items()}
    metadata = {"rulax": json.dumps({"format": earlier.FORMAT, **facts})}
    # Only once the new one is whole: on a full disk no earlier one may go. It is not in place yet, so that at no moment there is
    # less than one whole checkpoint under the usual name.
    write_tensors(path, tensors, metadata, ready=lambda: keep_earlier(path, keep))


def earlier_one(path: Path, number: int) -> Path:
    """Where the checkpoint before the last is (1), the one before that (2), and so on."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}") if number else path


def earlier_ones(path: Path) -> list[Path]:
    """Those that there are, the youngest first."""
    name = re.compile(rf"{re.escape(path.stem)}\.([1-9]\d*){re.escape(path.suffix)}")
    found = {path: match for path in path.parent.glob(f"{path.stem}.*") if (match := name.fullmatch(path.name))}
    return sorted(found, key=lambda each: int(found[each][1]))


def keep_earlier(path: Path, keep: int) -> None:
    """Make room for another checkpoint: each becomes the one before, and those that are too many go."""
    for each in reversed(earlier_ones(path)):
        number = int(each.name.removeprefix(f"{path.stem}.").removesuffix(path.suffix))
        each.unlink() if number >= keep - 1 else os.replace(each, earlier_one(path, number + 1))
    if keep < 2 or not path.exists():
        return
    try:
        os.link(path, earlier_one(path, 1))
    # Where a file cannot have two names it is away until the new one is written; reading finds the one before.
    except OSError:
        os.replace(path, earlier_one(path, 1))


def load(path: Path, form: Any = dict[str, Any]) -> Checkpoint:
    """Read the last checkpoint that is whole, or say in one sentence why none can be read.

    Args:
        path: of the last one; should it be damaged, the ones before it are tried, and `note` says so.
        form: of the facts, as in `misfit`.
    """
    problem = ""
    for each in (path, *earlier_ones(path)):
        try:
            found = read(each, form)
        except (Damaged, UserError) as error:
            problem = problem or f"{path} is not a readable checkpoint: {error}"
            continue
        return found._replace(note=f"{problem}; using the one before it, of step {found.facts.get('step')}") if problem else found
    # The commonest reason, and no damage at all.
    if not path.exists():
        raise UserError(f"{path.parent} holds no checkpoint to go on from")
    raise UserError(problem)


def read(path: Path, form: Any = dict[str, Any]) -> Checkpoint:
    """One checkpoint; `Damaged` or a `UserError` if it is not whole."""
    tensors, metadata = read_tensors_of(read_bytes(path, MOST_BYTES))
    try:
        facts = parse_json(metadata["rulax"], finite=False)  # a score that could not be measured
        number = facts.get("format", 1)
        facts = earlier.current_facts(facts)
    except (LookupError, ValueError, AttributeError, TypeError):
        raise Damaged("it does not say of which step it is") from None
    if type(number) is not int or not 1 <= number <= earlier.FORMAT:
        raise Damaged(f"it has format {number}, and this version of rulax reads up to {earlier.FORMAT}")
    if problem := misfit(facts, form) or out_of_bounds(facts):
        raise Damaged(problem)
    state = {name: value for name, value in tensors.items() if not name.startswith(f"{PENDING}/")}
    pending = {name.removeprefix(f"{PENDING}/"): value for name, value in tensors.items() if name not in state}
    if name := not_finite(learned(state)):
        raise Damaged(f"the tensor '{name}' holds numbers that are not finite")
    return Checkpoint(state, pending, facts, number, path)


def out_of_bounds(facts: Mapping[str, Any]) -> str:
    """Which number is none that a run can have, as part of a sentence."""
    least = {"step": 0, "window": 1, "seconds": 0, "bad": 0, "evaluated": -1}
    beyond = (name for name, bound in least.items() if misfit(facts.get(name, bound), float) or facts.get(name, bound) < bound)
    return next((f"{name} is {facts[name]!r}" for name in beyond), "")


def learned(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What may never be anything but finite: a discovery's rule, or the parameters of agents.

    Agents of a discovery may fail and be reborn, and statistics may begin at infinity.
    """
    rule = {name: array for name, array in state.items() if re.search(r"\bmeta_params\b", name)}
    return rule or {name: array for name, array in state.items() if re.search(r"\bparams\b", name)}


def settle(found: Checkpoint, path: Path) -> None:
    """Before a run goes on from an earlier checkpoint: it takes the place of the damaged one, which would displace it otherwise."""
    if found.source in (None, path):
        return
    try:
        os.replace(found.source, path)  # type: ignore[arg-type]
    except OSError as error:
        raise UserError(f"{path} cannot be replaced: {error.strerror or error}; move it away") from None


def read_tensors(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file by name; `UNREADABLE` are the errors of a file that is none."""
    return read_tensors_of(data)[0]


def size_of(state: PyTree) -> int:
    """Bytes of all leaves."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(state) if hasattr(leaf, "nbytes"))


def copy_of(state: PyTree) -> PyTree:
    """A copy that survives when the original's buffers are donated."""
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf, state)
