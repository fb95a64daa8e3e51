"""The lock on a run folder: a small file that says which process works there, so that no second one does.

It outlives a process that was killed. Such a lock is stale, which is seen by the process: it is gone, or its number now belongs to
another one that began at another time. Of a process on another host nothing can be known, so there the user decides.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from rulax.errors import InUse
from rulax.files import read_json, write_json

LOCK = "run.lock"


class Holder(TypedDict, total=False):
    """The form of the file."""

    process: int
    host: str
    began: str
    since: str


OURS: set[Path] = set()  # the folders that this process works in


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """While this is open the folder is this process's own; `InUse` if it is another one's."""
    path, place = folder / LOCK, folder.resolve()
    mine = {"process": os.getpid(), "host": socket.gethostname(), "began": beginning_of(os.getpid())}
    with one_at_a_time(folder):
        refuse_if_used(folder)
        write_json(path, mine | {"since": time.strftime("%Y-%m-%d %H:%M:%S")})
        OURS.add(place)
    try:
        yield
    finally:
        OURS.discard(place)
        # The folder may be gone, or read-only by now: then that is what the user has to hear, and not this.
        with contextlib.suppress(OSError):
            if mine.items() <= read_json(path).items():
                path.unlink(missing_ok=True)


def refuse_if_used(folder: Path) -> None:
    """`InUse`, which names the process, if one works in a folder."""
    holder = read_json(folder / LOCK, Holder)
    if not holder or is_stale(holder, folder):
        return
    process, host, since = (holder.get(name, "unknown") for name in ("process", "host", "since"))
    if host == socket.gethostname() and holder.get("began"):
        raise InUse(f"{folder} is in use by process {process} on this host ({host}) since {since}; wait until it ends, or stop it")
    raise InUse(
        f"{folder} is in use by process {process} on host {host} since {since}; if that process is no longer there, remove "
        f"{folder / LOCK} and try again"
    )


def is_stale(holder: dict[str, Any], folder: Path) -> bool:
    """Whether the process that a lock names is known to be gone, or to have left the folder."""
    process, began = holder.get("process"), holder.get("began")
    # Without a beginning (a system without /proc and ps) a recycled number could not be told from the process itself.
    if holder.get("host") != socket.gethostname() or not isinstance(process, int) or not began:
        return False
    if beginning_of(process) != began:
        return True
    # This very process, which could not remove its lock: the disk had become read-only, or the folder was moved.
    return process == os.getpid() and folder.resolve() not in OURS


def beginning_of(process: int) -> str:
    """What tells a process from any other that ever has its number: when it began. Empty if there is no such process."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else by_ps(process)
    # The name, in brackets, may hold anything; behind it come the state and, as the 22nd field of all, ticks since the boot.
    fields = stat.rpartition(")")[2].split()
    # One that has ended and that nobody has asked about is still listed.
    return "" if fields[0] in "ZX" else f"{boot} {fields[19]}"


def by_ps(process: int) -> str:
    """The same where there is no /proc."""
    with contextlib.suppress(OSError):
        asked = ["ps", "-o", "lstart=", "-p", str(process)]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return ""


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Between looking at a lock and taking it, no other process of this host may do the same."""
    descriptor = None
    try:
        # Some file systems lock no folders, and some systems nothing at all: there two could start within the same millisecond.
        with contextlib.suppress(OSError, ImportError):
            import fcntl

            descriptor = os.open(folder, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
