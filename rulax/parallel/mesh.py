"""Where arrays lie on several devices: a mesh with two named axes, and the shardings that whole steps are compiled with.

The first axis is that of the members: agents of a population, or seeds of a training run. The second is that of the streams of each
member. Algorithms know nothing of either: they take plain means, and the compiler inserts what devices have to tell each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from rulax.errors import UserError, suggestion
from rulax.types import Array, PyTree

STREAMS = "streams"


class Layout:
    """How arrays lie on devices. Without a mesh there is one device, and everything is compiled as if this did not exist."""

    def __init__(self, mesh: Mesh | None = None):
        self.mesh = mesh

    # -- shardings ------------------------------------------------------------------------------------------------------------

    def _over(self, *axes: str) -> Any:
        return self.mesh and NamedSharding(self.mesh, PartitionSpec(*axes))

    @property
    def everywhere(self) -> Any:
        """A copy on every device."""
        return self._over()

    @property
    def members(self) -> Any:
        """Arrays [K, ...], each device with some of the K members."""
        return self.mesh and self._over(self.mesh.axis_names[0])

    @property
    def streams(self) -> Any:
        """Arrays [K, B, ...], each device with some of the streams of some of the members."""
        split = self.mesh and self.mesh.shape[STREAMS] > 1
        return self._over(self.mesh.axis_names[0], STREAMS) if self.mesh and split else self.members

    @property
    def devices(self) -> int:
        """How many there are, on all hosts."""
        return self.mesh.size if self.mesh else 1

    @property
    def shares(self) -> int:
        """Among how many devices the members are shared out."""
        return self.mesh.shape[self.mesh.axis_names[0]] if self.mesh else 1

    @property
    def processes(self) -> int:
        """How many hosts, or processes on them, the devices belong to."""
        return len({device.process_index for device in self.mesh.devices.flat}) if self.mesh else 1

    @property
    def several_processes(self) -> bool:
        """Whether some of the devices are not this process's own."""
        return self.mesh is not None and self.mesh.is_multi_process

    @property
    def words(self) -> str:
        """The mesh as a user would write it; empty without one."""
        return ",".join(f"{name}={size}" for name, size in self.mesh.shape.items() if size > 1) if self.mesh else ""

    # -- programs and their arguments -----------------------------------------------------------------------------------------

    def jit(self, function: Callable, given: Any, results: Any, **options: Any) -> Any:
        """`jax.jit` with the shardings of arguments and results, each a tree or the beginning of one."""
        if self.mesh is None:
            return jax.jit(function, **options)
        return jax.jit(function, in_shardings=given, out_shardings=results, **options)

    def place(self, tree: PyTree, shardings: Any) -> PyTree:
        """Arrays where these shardings put them; those that lie there already stay. On several hosts all must have the same."""
        if self.mesh is None:
            return tree
        return jax.tree.map(self._put, tree, jax.tree.broadcast(shardings, tree))

    def _put(self, leaf: Any, sharding: NamedSharding) -> Any:
        if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
            return leaf
        if not self.several_processes:
            return jax.device_put(leaf, sharding)
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return jax.jit(lambda x: x, out_shardings=sharding)(leaf)
        return self._made(leaf, sharding, lambda data: lambda index: data[index], np.shape(leaf))

    def _made(self, leaf: Any, sharding: NamedSharding, part: Callable[[np.ndarray], Callable], shape: tuple[int, ...]) -> Array:
        """An array of all processes from what this one knows: `part` of its data is a function from indices to values."""
        if not is_key(leaf):
            return jax.make_array_from_callback(shape, sharding, part(np.asarray(leaf)))
        data = np.asarray(jax.random.key_data(leaf))
        words = jax.make_array_from_callback((*shape, *data.shape[len(shape) :]), sharding, part(data))
        return jax.jit(jax.random.wrap_key_data, out_shardings=sharding)(words)

    # -- what the host reads ----------------------------------------------------------------------------------------------------

    def read(self, tree: PyTree) -> PyTree:
        """Arrays as NumPy has them, whole, on every process; all of them have to ask."""
        return jax.tree.map(np.asarray, self._whole(tree))

    def local(self, tree: PyTree) -> PyTree:
        """Arrays on one device of this process, whole; all processes have to ask."""
        return tree if self.mesh is None else jax.tree.map(self._copied, self._whole(tree))

    def _whole(self, tree: PyTree) -> PyTree:
        if not self.several_processes:
            return tree
        scattered = [leaf for leaf in jax.tree.leaves(tree) if is_scattered(leaf)]
        found = iter(self._gather(scattered)) if scattered else iter(())
        return jax.tree.map(lambda leaf: next(found) if is_scattered(leaf) else leaf, tree)

    @functools.cached_property
    def _gather(self) -> Any:
        return jax.jit(lambda leaves: leaves, out_shardings=self.everywhere)

    def _copied(self, leaf: Any) -> Array:
        if is_key(leaf):
            return jax.random.wrap_key_data(jnp.asarray(np.asarray(jax.random.key_data(leaf))))
        return jnp.asarray(np.asarray(leaf))

    # -- what is this process's own -----------------------------------------------------------------------------------------------

    def rows(self, members: int) -> np.ndarray:
        """Which of K members live on devices of this process."""
        if self.mesh is None:
            return np.arange(members)
        indices = self.members.addressable_devices_indices_map((members,)).values()
        return np.unique(np.concatenate([np.arange(members)[index] for index in indices]))

    def mine(self, tree: PyTree, members: int) -> PyTree:
        """Of leaves [K, ...] the rows of this process, on one device."""
        if self.mesh is None:
            return tree
        rows = self.rows(members)

        def own(leaf: Array) -> Array:
            if is_key(leaf):
                return jax.random.wrap_key_data(own(jax.random.key_data(leaf)))
            found = np.zeros((len(rows), *leaf.shape[1:]), leaf.dtype)
            for shard in leaf.addressable_shards:
                place = np.searchsorted(rows, np.arange(members)[shard.index[0]])
                found[(place, *shard.index[1:])] = np.asarray(shard.data)
            return jnp.asarray(found)

        return jax.tree.map(own, tree)

    def ours(self, tree: PyTree, members: int) -> PyTree:
        """The inverse of `mine`: leaves [K, ...] of all processes."""
        if self.mesh is None:
            return tree
        rows = self.rows(members)

        def part(data: np.ndarray) -> Callable:
            return lambda index: data[np.searchsorted(rows, np.arange(members)[index[0]])][(slice(None), *index[1:])]

        return jax.tree.map(lambda leaf: self._made(leaf, self.members, part, (members, *np.shape(leaf)[1:])), tree)


ONE_DEVICE = Layout()


def is_key(leaf: Any) -> bool:
    """Typed random keys are not plain arrays."""
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def is_scattered(leaf: Any) -> bool:
    """Whether this process does not have the whole of an array."""
    return isinstance(leaf, jax.Array) and not leaf.is_fully_addressable and not leaf.is_fully_replicated


# -- which mesh ------------------------------------------------------------------------------------------------------------------


def make_layout(wanted: Mapping[str, Any], sizes: Mapping[str, int], whole_members: bool = False) -> Layout:
    """The layout that a user asks for, or without a wish the usual one: as many devices as divide the members evenly.

    Args:
        wanted: devices along some of the axes, by name.
        sizes: the axes, first that of the members and then the streams, and how long they are.
        whole_members: whether a member must not be shared by two processes, because it acts outside of JAX.
    """
    devices, processes = jax.devices(), jax.process_count()
    first = next(iter(sizes))
    check_axes(wanted, sizes)
    shape = {name: int(wanted.get(name, 1)) for name in sizes}
    if not wanted:
        shape[first] = usual(sizes[first], len(devices), processes)
    number = math.prod(shape.values())
    text = ",".join(f"{name}={size}" for name, size in shape.items() if size > 1 or name in wanted)
    if number > len(devices):
        raise UserError(
            f"mesh {text} needs {number} devices, and there are {len(devices)}; give a smaller one, or leave --mesh out"
        )
    for name, size in shape.items():
        if sizes[name] % size:
            raise UserError(f"mesh {name}={size} does not divide the {sizes[name]} {name} evenly: change one or the other")
    if number % processes:
        whose = f"mesh {text} cannot be" if wanted else f"{sizes[first]} {first} cannot be"
        raise UserError(f"{whose} shared evenly by {processes} processes: give a --mesh, or {first}, of a multiple of {processes}")
    if whole_members and shape[first] % processes:
        raise UserError(
            f"mesh {text} would share members among {processes} processes, and environments that step on the CPU belong to one: "
            f"let {first} be a multiple of {processes}"
        )
    if number == 1:
        return ONE_DEVICE
    chosen = [device for process in range(processes) for device in of_process(devices, process)[: number // processes]]
    automatic = (AxisType.Auto,) * len(shape)
    return Layout(jax.make_mesh(tuple(shape.values()), tuple(shape), axis_types=automatic, devices=chosen))


def check_axes(wanted: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Refuse axes that there are not, and numbers of devices that are none."""
    for name, size in wanted.items():
        if name not in sizes:
            known = f"its axes here are {' and '.join(sizes)}"
            raise UserError(f"mesh has no axis '{name}'{suggestion(name, sizes, known)}")
        if not isinstance(size, int) or size < 1:
            raise UserError(f"mesh {name}={size} is not a number of devices: give a whole number of at least 1")


def of_process(devices: list[Any], process: int) -> list[Any]:
    """The devices of one process."""
    return [device for device in devices if device.process_index == process]


def usual(members: int, devices: int, processes: int) -> int:
    """The most devices that K members are shared by evenly, as many of each process; 1 if there are none."""
    fitting = [number for number in range(processes, devices + 1, processes) if members % number == 0]
    return max(fitting, default=1)
