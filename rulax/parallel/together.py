"""Several programs at once: the compiler lets go of Python's lock, and most of compiling one program uses one core."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from rulax.parallel.machine import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")


def together(
    function: Callable[[Item], Result], items: Iterable[Item], report: Callable[[int, int], None] = lambda done, of: None
) -> list[Result]:
    """The function of every item, in order, as many at a time as there are cores.

    Args:
        function: of one item; called in other threads.
        items: what it is called with.
        report: called in this thread, first with 0 and then after each item, with how many are done and how many there are.
    """
    items = list(items)
    report(0, len(items))
    with ThreadPoolExecutor(max(1, min(len(items), usable_cores()))) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()  # an error ends it here, not after all the others
                report(done, len(items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what has begun cannot be stopped; the rest need not begin
            raise
    return [future.result() for future in futures]
