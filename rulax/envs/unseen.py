"""Levels that an agent has not been trained on, for environments that are trained on a limited number of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Adapters whose levels are a pool made from the option `seed`, with the option that gives the pool's size and its default.
POOLS = {"craftax": ("pool", 256), "jumanji/Sokoban": ("levels", 500)}


def unseen_options(name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options that make the same environment with other levels; None where training is not limited to some levels.

    * ProcGen (`envpool/...`, `num_levels=200`): all of its levels, as in Cobbe et al. (2020).
    * Craftax and Jumanji's Sokoban: a pool from another seed.
    """
    # Only ProcGen has this option, and 0 means all levels.
    if name.startswith("envpool/") and options.get("num_levels"):
        return {**options, "num_levels": 0, "start_level": 0}
    for prefix, (size, default) in POOLS.items():
        # `worlds` is an earlier name of Craftax's option.
        if name.startswith(prefix) and options.get(size, options.get("worlds", default)):
            return {**options, "seed": int(options.get("seed", 0)) + 1}
    return None
