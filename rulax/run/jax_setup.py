"""Sets JAX up in one place, when a command starts to compute and never at import."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import jax

from rulax.run.errors import UserError

PRECISION = "jax_default_matmul_precision"
KEPT_BLOCK, KEPT_FREE = 2**30, 2**31  # bytes: blocks up to this size are kept when freed, up to this much in all
_replaced: dict[str, str | None] = {}  # settings of JAX as they were before the first run that changed them


def cache_folder() -> Path:
    """Where Rulax keeps what it can compute again: `RULAX_CACHE`, else the user's cache folder."""
    if os.environ.get("RULAX_CACHE"):
        return Path(os.environ["RULAX_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rulax"


def keep_freed_memory() -> None:
    """Tell glibc to use freed blocks again instead of giving them back to the system; elsewhere nothing happens.

    XLA allocates its working memory anew for every step. By default glibc returns blocks that large, and the next step takes each
    page back by a page fault: 31,600 of them and a fifth of the CPU time of an update of Disco103 on Catch. Peak memory stays.
    Every thread but the first would also get an arena of its own, and those never hold more than 64 MB, so there is to be one.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_")):
        return  # someone who chose settings of their own keeps them
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-8, 1)  # M_ARENA_MAX
        mallopt(-3, KEPT_BLOCK)  # M_MMAP_THRESHOLD
        mallopt(-1, KEPT_FREE)  # M_TRIM_THRESHOLD


def set_up(platform: str = "auto", precision: str = "default", cache: bool = True) -> None:
    """Choose platform and precision, and remember compiled programs between runs."""
    keep_freed_memory()
    if platform != "auto":
        jax.config.update("jax_platforms", {"gpu": "cuda,rocm"}.get(platform, platform))
        try:
            jax.devices()
        except RuntimeError:
            raise UserError(f"platform {platform} is not available here; leave --platform out, or install JAX for it") from None
    if precision != "default":
        _replaced.setdefault(PRECISION, getattr(jax.config, PRECISION))
        jax.config.update(PRECISION, precision)
    elif PRECISION in _replaced:  # an earlier run in this process chose one
        jax.config.update(PRECISION, _replaced.pop(PRECISION))
    # A cache that the user set up for JAX itself is left as it is.
    if cache and not getattr(jax.config, "jax_compilation_cache_dir", None):
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
