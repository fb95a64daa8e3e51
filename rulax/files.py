"""Reading and writing files: whole or not at all, JSON without NaN, the header of a safetensors file, the cache folder."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any


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


def jsonable(value: Any) -> Any:
    """A value as JSON has it: arrays become lists, and what is not a finite number becomes null, since it was not measured."""
    if isinstance(value, dict):
        return {str(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of NumPy or JAX
        return jsonable(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
