"""What this machine has: cores and free memory. Nothing large is imported here."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def usable_cores() -> int:
    """Cores that this process may use; `taskset` and containers may leave it fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that this process could still take, on Linux, its control group's limit included; 0 where it is not known."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0
    try:
        group = Path("/sys/fs/cgroup")
        held = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used = int((group / "memory.current").read_text()) - int(held["inactive_file"])  # the cache of files makes way
        free = min(free, int((group / "memory.max").read_text()) - used)
    except (OSError, KeyError, ValueError):  # no such group, or its limit is 'max'
        pass
    return max(free, 1)


def describe() -> dict[str, Any]:
    """The machine in a few words, for the record of a run. Nothing that would name it: a record may be shown to others."""
    return {"system": platform.system(), "processor": platform.machine(), "cores": usable_cores()}
