"""Safetensors files with a seal: a hash of every byte of the file, header included, so that damage anywhere in it is noticed.

The seal stands among the metadata: the SHA-256 of the file in which its own 64 digits are zeros. Files without one, which earlier
versions and other programs write, are read as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rulax.files import SEAL, SEALED_BY, header_metadata, write_atomically

if TYPE_CHECKING:
    import numpy as np

METHOD, BLANK = "sha256", "0" * 64


class Damaged(ValueError):
    """A file whose content is not what was written, or that is no safetensors file; the message ends a sentence about it."""


def write_tensors(
    path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str], ready: Callable[[], None] = lambda: None
) -> None:
    """A sealed safetensors file, replaced as a whole or not at all; `ready` is that of `write_atomically`."""
    import numpy as np
    from safetensors.numpy import save as serialise

    # The library stores raw memory, so strides must be the plain ones. The reshape brings back scalars, which ascontiguousarray
    # turns into vectors.
    contiguous = {name: np.ascontiguousarray(value).reshape(value.shape) for name, value in tensors.items()}
    data = serialise(contiguous, {**metadata, SEALED_BY: METHOD, SEAL: BLANK})
    place, view, seal = _place(data, BLANK), memoryview(data), hashlib.sha256(data).hexdigest().encode()
    write_atomically(path, [view[:place], memoryview(seal), view[place + len(BLANK) :]], ready)


def read_tensors(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors of a safetensors file by name, and its metadata without the seal, which must be whole if there is one."""
    from safetensors import SafetensorError, deserialize

    try:
        metadata = header_metadata(data)
        check_seal(data, metadata)
        tensors = {name: to_array(**tensor) for name, tensor in deserialize(data)}
    except Damaged:
        raise
    except (SafetensorError, LookupError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise Damaged(f"it is truncated, damaged or of another kind: {error}") from None
    return tensors, {name: value for name, value in metadata.items() if name not in (SEAL, SEALED_BY)}


def check_seal(data: bytes, metadata: Mapping[str, str]) -> None:
    """Refuse a file that was changed since it was sealed."""
    if SEAL not in metadata and SEALED_BY not in metadata:
        return
    found = metadata.get(SEAL, "")
    if metadata.get(SEALED_BY) != METHOD or len(found) != len(BLANK):
        raise Damaged("its content hash is missing or damaged")
    place, view = _place(data, found), memoryview(data)
    # In pieces: putting zeros in their place would copy the whole file.
    content = hashlib.sha256(view[:place])
    content.update(BLANK.encode())
    content.update(view[place + len(BLANK) :])
    if place < 0 or content.hexdigest() != found:
        raise Damaged("its content does not match its hash")


def to_array(dtype: str, shape: list[int], data: bytes) -> np.ndarray:
    """One tensor of a file; the library's own reader knows no bfloat16."""
    import ml_dtypes
    import numpy as np

    known: dict[str, Any] = {"BOOL": np.bool_, "BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32, "F64": np.float64}
    known |= {f"{letter}{bits}": f"{kind}{bits}" for letter, kind in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)}
    return np.frombuffer(data, np.dtype(known[dtype])).reshape(shape)


def not_finite(tensors: Mapping[str, np.ndarray]) -> str:
    """The name of the first tensor that holds numbers which are not finite; empty if none does."""
    import numpy as np

    # ml_dtypes' bfloat16 is of kind V.
    floats = ((name, np.asarray(array, np.float32 if array.dtype.kind == "V" else None)) for name, array in tensors.items())
    return next((name for name, array in floats if array.dtype.kind in "fc" and not np.isfinite(array).all()), "")


def _place(data: bytes, seal: str) -> int:
    """Where the digits of the seal stand in the header; -1 if they do not."""
    return data.find(f'"{seal}"'.encode(), 8, 8 + int.from_bytes(data[:8], "little")) + 1 or -1
