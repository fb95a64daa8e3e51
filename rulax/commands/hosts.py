"""A command that several processes run together. All do the same; only the first is seen: it writes, prints and draws.

The others work in a folder of their own, which nobody looks at and which is gone at the end, and show nothing but their errors.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rulax.commands.settings import WHERE, Spread, configured
from rulax.errors import Interrupted, TrainingStopped, UserError
from rulax.parallel import processes
from rulax.records import lock, sharded

UNDERSTOOD = (UserError, TrainingStopped, KeyboardInterrupt)


@contextmanager
def joined(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Around a command: what the user gave, as this process is to take it."""
    spread = configured(Spread, {name: values[name] for name in WHERE if name in values})
    processes.check_address(spread.coordinator, spread.process_id, spread.num_processes)
    processes.join(spread.hosts, spread.coordinator, spread.process_id, spread.num_processes)
    if processes.number() == 1:
        yield dict(values)
        return
    with own_stdout(), tempfile.TemporaryDirectory(prefix="rulax-") as scratch:
        try:
            given = dict(values) if processes.first() else unseen(values, Path(scratch))
            processes.wait_for_all()  # nobody writes while another copies
            yield given
        except Interrupted:
            processes.leave()  # all were asked to stop, and have saved
            raise
        except BaseException as error:
            processes.fail(" ".join(str(error).split()) or type(error).__name__, isinstance(error, UNDERSTOOD))
            raise
        processes.leave()


@contextmanager
def own_stdout() -> Iterator[None]:
    """Only what Python prints goes to stdout: Gloo says there from C++ whom it has met, which scripts would take for a result."""
    sys.stdout.flush()
    kept, python = os.dup(1), sys.stdout
    os.dup2(2, 1)
    with os.fdopen(os.dup(kept), "w", encoding=python.encoding, errors="replace") as sys.stdout:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stdout = python
            os.dup2(kept, 1)
            os.close(kept)


def unseen(values: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    """The same for a process that nobody looks at: it writes elsewhere, and goes on from a copy."""
    values = {**values, "quiet": True}
    if not values.get("resume"):
        return values | {"out": str(scratch / "run")}
    if (folder := Path(values["resume"])).is_dir():
        shutil.copytree(folder, scratch / "run", ignore=shutil.ignore_patterns(sharded.FOLDER, lock.LOCK), dirs_exist_ok=True)
    values.pop("out", None)
    return values | {"resume": str(scratch / "run")}
