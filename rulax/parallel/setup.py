"""Sets JAX up in one place, when a command starts to compute and never at import."""

from __future__ import annotations

import jax

from rulax.errors import UserError
from rulax.files import cache_folder
from rulax.parallel.allocation import keep_freed_memory

PRECISION = "jax_default_matmul_precision"
_replaced: dict[str, str | None] = {}  # settings of JAX as they were before the first run that changed them


def set_up(platform: str = "auto", precision: str = "default", cache: bool = True) -> None:
    """Choose platform and precision, and remember compiled programs between runs."""
    keep_freed_memory()
    if platform != "auto":
        jax.config.update("jax_platforms", {"gpu": "cuda,rocm"}.get(platform, platform))
        # JAX looks for a platform only when it is needed; asking now makes a missing one an error before any work.
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
