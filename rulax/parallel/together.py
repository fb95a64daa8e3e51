"""Several programs at once: the compiler lets go of Python's lock, and most of compiling one program uses one core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """Cores that this process may use; `taskset` and containers may leave it fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def together(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The function of every item, in order, as many at a time as there are cores."""
    items = list(items)
    workers = min(len(items), usable_cores())
    if workers < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
