"""Several programs at once: the compiler lets go of Python's lock, and most of compiling one program uses one core."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rulax.parallel.machine import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")


def together(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The function of every item, in order, as many at a time as there are cores."""
    items = list(items)
    workers = min(len(items), usable_cores())
    if workers < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
