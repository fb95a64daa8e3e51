"""Checkpoints of runs that several processes share: each writes its part of every array, beside the computation, by Orbax.

A run of one process keeps `checkpoint.safetensors`. Either kind is restored on any number of devices and processes: arrays have the
same names in both, and are placed anew. Where a folder holds both, the run has gone on in the other way, and the later one counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rulax.errors import UserError
from rulax.files import jsonable
from rulax.parallel import processes
from rulax.parallel.mesh import Layout
from rulax.records import checkpoint
from rulax.records import folder as folders
from rulax.types import PyTree

FOLDER = "checkpoint.sharded"
KEPT = 2  # of the latest ones
STATE, FACTS = "state", "facts"  # the parts of each
INSTALL = "checkpoints of several processes need Orbax: pip install 'rulax[distributed]'"


def check_installed() -> None:
    """Refuse a run of several processes that could not be saved."""
    if processes.number() > 1:
        orbax()


def orbax() -> Any:
    """The library, whose import takes a second."""
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise UserError(INSTALL) from error
    return orbax.checkpoint


class Keeper:
    """Writes the checkpoints of one run. `save` returns once arrays are copied; the next call waits until they are written."""

    def __init__(self, folder: Path):
        """`folder` is the run's; that of the first process counts, and all must be able to write there."""
        library = orbax()
        options = library.CheckpointManagerOptions(max_to_keep=KEPT, enable_async_checkpointing=True, create=True)
        self.manager = library.CheckpointManager(folder_of_all(folder) / FOLDER, options=options)
        self.number = self.manager.latest_step() or 0

    def save(self, state: PyTree, pending: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Begin to write a checkpoint; it counts only when all processes have written theirs."""
        args = orbax().args
        self.number += 1
        said = {"pending": {name: np.asarray(value).tolist() for name, value in pending.items()}, **jsonable(facts)}
        parts = {STATE: args.StandardSave(tensors(state)), FACTS: args.JsonSave(said)}
        self.manager.save(self.number, args=args.Composite(**parts))

    def close(self) -> None:
        """Wait until everything is written."""
        self.manager.close()


def keeper(folder: Path | None) -> Keeper | None:
    """What writes the checkpoints of a run that several processes share; None for one process."""
    return Keeper(folder) if folder is not None and processes.number() > 1 else None


def folder_of_all(folder: Path) -> Path:
    """The run's folder as the first process has it: the others work in copies."""
    return Path(processes.text_from_first(str(folder.resolve())))


def tensors(state: PyTree) -> dict[str, Any]:
    """The leaves of a state by name, as arrays of numbers. Orbax writes none that are empty."""
    named = zip(checkpoint.leaf_names(state), jax.tree.leaves(state), strict=True)
    plain = {name: jax.random.key_data(leaf) if checkpoint.is_key(leaf) else leaf for name, leaf in named}
    return {name: leaf for name, leaf in plain.items() if leaf.size}


# -- reading ---------------------------------------------------------------------------------------------------------------------


def load(folder: Path, form: Any = dict[str, Any]) -> checkpoint.Checkpoint:
    """The latest checkpoint of a run, of either kind; the state of one of several processes is read by `unpack`, part by part.

    Args:
        folder: the run's.
        form: of the facts, as in `files.reading.misfit`.
    """
    path, whole = folder / folders.CHECKPOINT, folder_of_all(folder) / FOLDER
    if not whole.is_dir():
        return checkpoint.load(path, form)
    library = orbax()
    with library.CheckpointManager(whole) as manager:
        number = manager.latest_step()
        if number is None:
            return checkpoint.load(path, form)
        facts = manager.restore(number, args=library.args.Composite(facts=library.args.JsonRestore())).facts
    pending = {name: np.asarray(value) for name, value in facts.pop("pending").items()}
    if path.exists() and (single := checkpoint.load(path, form)).facts["step"] > facts["step"]:
        return single
    return checkpoint.Checkpoint({}, pending, facts | {"sharded": (str(whole), number)})


class Owner(Protocol):
    """What a state belongs to: a trainer or a discoverer."""

    @property
    def layout(self) -> Layout:
        """The devices."""

    @property
    def places(self) -> PyTree:
        """Where the arrays of a state lie on them."""

    def skeleton(self) -> PyTree:
        """Shapes and dtypes of a state."""


def unpack(found: checkpoint.Checkpoint, owner: Owner, source: Path) -> PyTree:
    """The state of a checkpoint in the structure that its owner expects, a sharded one also where the owner has its arrays."""
    skeleton = owner.skeleton()
    if "sharded" not in found.facts:
        return checkpoint.unpack(found, skeleton, source)
    layout, places, library = owner.layout, owner.places, orbax()
    whole, number = found.facts["sharded"]
    names, leaves = checkpoint.leaf_names(skeleton), jax.tree.leaves(skeleton)
    one = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shardings = [one] * len(leaves) if layout.mesh is None else jax.tree.leaves(jax.tree.broadcast(places, skeleton))
    forms = [checkpoint.stored_form(leaf) for leaf in leaves]
    wanted = {
        name: jax.ShapeDtypeStruct(form.shape, form.dtype, sharding=sharding)
        for name, form, sharding in zip(names, forms, shardings, strict=True)
        if form.size
    }
    try:
        with library.CheckpointManager(whole) as manager:
            restored = manager.restore(number, args=library.args.Composite(state=library.args.StandardRestore(wanted))).state
    except (ValueError, KeyError, OSError) as error:
        raise UserError(f"{whole} does not fit this run: {error}") from None
    made = [
        restored[name] if name in restored else layout.place(jnp.zeros(form.shape, form.dtype), sharding)
        for name, form, sharding in zip(names, forms, shardings, strict=True)
    ]
    as_keys = [jax.random.wrap_key_data(x) if checkpoint.is_key(leaf) else x for x, leaf in zip(made, leaves, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(skeleton), as_keys)
