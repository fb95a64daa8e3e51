"""Writing files, whole or not at all; JSON without NaN, the header of a safetensors file, the cache folder; readers: reading.py."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rulax.files.reading import load_json as load_json
from rulax.files.reading import misfit, parse_json
from rulax.files.reading import read_json as read_json

HOST = re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname())[:40] or "host"
TEMPORARY = re.compile(r"\..+\.(?:(?P<host>\w+)-)?(?P<process>[0-9]{1,9})\.tmp")  # earlier versions did not name the host
SEAL, SEALED_BY = "seal", "sealed_by"  # in the metadata of safetensors files: one that is damaged leaves the other
ABANDONED = 24 * 3600  # seconds after which another machine's temporary file counts as left behind


def write_atomically(path: Path, content: bytes | str | list[memoryview], ready: Callable[[], None] = lambda: None) -> None:
    """Write beside the file, then move into place: a crash leaves the old file or the new one, never half of it.

    Args:
        path: of the file.
        content: all of it, or in pieces, which saves a copy.
        ready: called when the new file is whole on the disk, before it takes the place of the old one.
    """
    pieces = content if isinstance(content, list) else [content.encode() if isinstance(content, str) else content]
    sweep(path.parent)
    # In the same folder, because a rename is atomic only within a file system; with the process in its name, because two may write.
    temporary = path.with_name(f".{path.name}.{HOST}-{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            # Without it, a power cut after the rename could leave a name with no content behind it.
            os.fsync(file.fileno())
        ready()
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        # After a successful move there is nothing left to remove; after a full disk or Ctrl-C there is.
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk: without it a power cut may bring back the file that was replaced."""
    # Not every system can open a folder, and not every file system can do this; the file itself is safe either way.
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def sweep(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = TEMPORARY.fullmatch(entry.name)
            if found and _is_abandoned(Path(entry.path), found["host"], int(found["process"])):
                Path(entry.path).unlink(missing_ok=True)


def _is_abandoned(path: Path, host: str | None, process: int) -> bool:
    # Of another machine that shares the folder nothing is known but how long ago it wrote.
    if host not in (HOST, None) or os.name != "posix":
        return time.time() - path.stat().st_mtime > ABANDONED
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's, which runs
    return False


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """A JSON file, readable unless `indent` is None."""
    text = json.dumps(jsonable(value), indent=indent, allow_nan=False, separators=None if indent else (",", ":"))
    write_atomically(path, text + "\n")


def jsonable(value: Any, digits: int = 0) -> Any:
    """A value as JSON has it: arrays become lists, and what is not a finite number becomes null, since it was not measured.

    With `digits`, numbers that are not whole are rounded to so many significant ones.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name), digits) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): jsonable(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [jsonable(item, digits) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of NumPy or JAX
        return jsonable(value.tolist(), digits)
    if not isinstance(value, float):
        return value
    return None if not math.isfinite(value) else float(f"{value:.{digits}g}") if digits else value


def safetensors_metadata(data: bytes) -> dict[str, str]:
    """What a safetensors file says about itself; a ValueError if it is no such file. `data` may be just its beginning.

    Its seal is left out, which is of these bytes alone: see `tensors.py`.
    """
    return {name: value for name, value in header_metadata(data).items() if name not in (SEAL, SEALED_BY)}


def header_metadata(data: bytes) -> dict[str, str]:
    """All of it."""
    length = int.from_bytes(data[:8], "little")  # the header of the format: its length, then JSON
    header = parse_json(data[8 : 8 + length])
    found = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if misfit(found, dict[str, str]):
        raise ValueError("its header is not that of a safetensors file")
    return dict(found)  # type: ignore[arg-type]


def cache_folder() -> Path:
    """Where Rulax keeps what it can compute or download again: `RULAX_CACHE`, else the user's cache folder."""
    if os.environ.get("RULAX_CACHE"):
        return Path(os.environ["RULAX_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rulax"
