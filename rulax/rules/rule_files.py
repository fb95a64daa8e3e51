"""Reading and writing the tensors of rule files, which may be broken or hostile. Used by rules/pretrained.py.

Nothing is unpickled. Before a tensor is read, its header must agree with the number of bytes present.
"""

from __future__ import annotations

import dataclasses
import io
import json
import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rulax.errors import UserError
from rulax.files import reading, write_atomically
from rulax.files.tensors import Damaged, read_tensors, write_tensors
from rulax.rules.kinds import KINDS, PREFIX, kind_in, kind_of

MAX_BYTES = 512 * 2**20  # a rule is small; Disco103 has 3 MB
MAX_TENSORS = 1000
MAX_WIDTH = 2**16  # of any layer that a file may ask for


class RuleFileError(ValueError):
    """A rule file that cannot be used; the message is one sentence that names the file."""


def read_bytes(path: Path) -> bytes:
    """The contents of a file of acceptable size."""
    try:
        return reading.read_bytes(path, MAX_BYTES)
    except UserError as error:
        raise RuleFileError(str(error)) from None


# -- the reference's .npz ------------------------------------------------------------------------------------------------------


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All tensors of an .npz file by name: plain floats of the size that the archive states."""
    data = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            # Before anything is decompressed: a small archive may claim to hold far more than memory.
            if len(members) > MAX_TENSORS or sum(member.file_size for member in members) > MAX_BYTES:
                raise RuleFileError(f"{path.name} claims to hold more than a rule can ({len(members)} tensors)")
            return {member.filename.removesuffix(".npy"): _read_member(path.name, archive, member) for member in members}
    except RuleFileError:
        raise
    # An archive may be damaged in any of its layers: the directory, the names in it, the method of compression and its stream.
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, *reading.DAMAGE):
        raise RuleFileError(f"{path.name} is not a whole .npz file: it is truncated or of another kind") from None


def _read_member(file: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    name = member.filename.removesuffix(".npy")
    with archive.open(member) as stream:
        raw = io.BytesIO(stream.read(member.file_size))
    try:
        version = np.lib.format.read_magic(raw)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(raw)
    # The header is a Python literal: besides a wrong one, the tokens of a damaged one may not even be complete.
    except (SyntaxError, tokenize.TokenError, *reading.DAMAGE):
        raise RuleFileError(f"{file}: tensor '{name}' is not a plain array") from None
    if dtype.kind != "f" or dtype.itemsize not in (2, 4, 8):
        what = "Python objects, which are never loaded" if dtype.hasobject else f"{dtype} numbers, but a rule holds floats"
        raise RuleFileError(f"{file}: tensor '{name}' holds {what}")
    body = raw.getbuffer()[raw.tell() :]
    # Two negative sizes could have the right product.
    if any(type(size) is not int or size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(body):
        raise RuleFileError(f"{file}: tensor '{name}' claims shape {shape}, which its {len(body)} bytes do not fill")
    array = np.frombuffer(body, dtype).reshape(shape, order="F" if fortran else "C")
    return _checked(file, name, array)


def write_npz(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors as float32 in an archive that `numpy.load` reads."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()})  # type: ignore[arg-type]
    write_atomically(path, buffer.getvalue())


# -- our .safetensors ----------------------------------------------------------------------------------------------------------


def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], Any, dict[str, str]]:
    """The tensors of a .safetensors file, its sizes (of the class that its kind has), and the other metadata."""
    data = read_bytes(path)
    try:
        tensors, metadata = read_tensors(data)
    except Damaged as error:
        raise RuleFileError(f"{path.name} is not a whole .safetensors file: {error}") from None
    kind = kind_in(metadata)
    if not kind:
        known = ", ".join(f"'{PREFIX}{name}'" for name in KINDS)
        raise RuleFileError(f"{path.name} holds tensors but no rule: its metadata has no kind ({known})")
    sizes = _sizes_from_json(path.name, metadata.pop("sizes", ""), KINDS[kind].sizes)
    del metadata["kind"]
    return {name: _checked(path.name, name, tensor) for name, tensor in tensors.items()}, sizes, metadata


def about_of(path: Path) -> dict[str, str]:
    """What a rule file says of itself, for those who can do without: empty if it cannot be read."""
    try:
        return read_tensors(read_bytes(path))[1]
    except (RuleFileError, Damaged):
        return {}


def stated(about: Mapping[str, str], name: str, form: Any, otherwise: Any) -> Any:
    """What a file states as JSON under a name, if it has the form of `misfit`."""
    try:
        found = reading.parse_json(about[name], finite=False)
    except (LookupError, ValueError):
        return otherwise
    return otherwise if reading.misfit(found, form) else found


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], sizes: Any, about: Mapping[str, str]) -> None:
    """Write tensors by path, with the sizes, the kind that has such sizes, and `about` as metadata."""
    metadata = {**about, "kind": PREFIX + kind_of(sizes), "sizes": json.dumps(dataclasses.asdict(sizes))}
    write_tensors(path, {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}, metadata)


def _sizes_from_json(file: str, text: str, cls: type) -> Any:
    """The sizes that a file states, each of the right type and within bounds."""
    problem = f"{file}: its metadata does not state the sizes of a rule"
    try:
        stated = reading.parse_json(text)
    except ValueError:
        raise RuleFileError(problem) from None
    fields = {field.name: field.default for field in dataclasses.fields(cls)}
    if not isinstance(stated, dict) or not set(stated) <= set(fields):
        raise RuleFileError(problem)
    stated = {name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()}
    for name, value in stated.items():
        if not _acceptable(value, fields[name]):
            raise RuleFileError(f"{problem}: '{name}' cannot be {value!r}")
    try:
        return cls(**stated)
    except ValueError as error:
        raise RuleFileError(f"{file}: {error}") from None


def _acceptable(value: object, like: object) -> bool:
    if isinstance(like, tuple):
        return isinstance(value, tuple) and 0 < len(value) <= 8 and all(_acceptable(one, 1) for one in value)
    if isinstance(like, bool):
        return isinstance(value, bool)
    if isinstance(like, int):
        # `type`, not `isinstance`: to the latter `True` is an int.
        return type(value) is int and 0 < value <= MAX_WIDTH
    return type(value) in (int, float) and 0 < value < 1e6  # type: ignore[operator]


# -- both ------------------------------------------------------------------------------------------------------------------


def _checked(file: str, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        raise RuleFileError(f"{file}: tensor '{name}' holds {array.dtype} numbers, but a rule holds floats")
    if not np.isfinite(array).all():
        raise RuleFileError(f"{file}: tensor '{name}' holds numbers that are not finite")
    return array
