"""The one way in which Rulax writes a file."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write beside the file, then move into place: a crash leaves the old file or the new one, never half of it."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
