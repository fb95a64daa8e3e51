"""Reading and writing files: whole or not at all, JSON without NaN, the header of a safetensors file, the cache folder."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

from rulax.errors import UserError


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write beside the file, then move into place: a crash leaves the old file or the new one, never half of it."""
    data = content.encode() if isinstance(content, str) else content
    # In the same folder, because a rename is atomic only within a file system; with the process in its name, because two may write.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            # Without it, a power cut after the rename could leave a name with no content behind it.
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        # After a successful move there is nothing left to remove; after a full disk or Ctrl-C there is.
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """A JSON file, readable unless `indent` is None."""
    text = json.dumps(jsonable(value), indent=indent, allow_nan=False, separators=None if indent else (",", ":"))
    write_atomically(path, text + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if the file is missing or broken."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def load_json(path: Path, advice: str = "") -> dict[str, Any]:
    """The object in a JSON file that must be there; else a `UserError`, which ends with the advice."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}{advice}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} cannot be read: it holds no JSON object{advice}")
    return found


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
    """What a safetensors file says about itself; a ValueError if it is no such file. `data` may be just its beginning."""
    length = int.from_bytes(data[:8], "little")  # the header of the format: its length, then JSON
    header = json.loads(data[8 : 8 + length])
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")
    return dict(header.get("__metadata__", {}))


def cache_folder() -> Path:
    """Where Rulax keeps what it can compute or download again: `RULAX_CACHE`, else the user's cache folder."""
    if os.environ.get("RULAX_CACHE"):
        return Path(os.environ["RULAX_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rulax"
