"""How freed memory is treated. Nothing large is imported here: it must be settled before any thread starts."""

from __future__ import annotations

import ctypes
import os
import sys

KEPT_BLOCK, KEPT_FREE = 2**30, 2**31  # bytes: blocks up to this size are kept when freed, up to this much in all

CHOSEN = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX")  # a user who sets one of these keeps it


def keep_freed_memory() -> None:
    """Tell glibc to use freed blocks again instead of giving them back to the system; elsewhere nothing happens.

    XLA allocates its working memory anew for every step. By default glibc returns blocks that large, and the next step takes each
    page back by a page fault: 31,600 of them and a fifth of the CPU time of an update of Disco103 on Catch. Peak memory stays.
    Every thread but the first would also get an arena of its own, and those never hold more than 64 MB, so there is to be one: it
    must be said before another thread allocates, which is why the command line calls this before it imports anything large.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in CHOSEN):
        return  # someone who chose settings of their own keeps them
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-8, 1)  # M_ARENA_MAX
        mallopt(-3, KEPT_BLOCK)  # M_MMAP_THRESHOLD
        mallopt(-1, KEPT_FREE)  # M_TRIM_THRESHOLD
