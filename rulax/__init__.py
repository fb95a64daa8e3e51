"""Rulax: reinforcement-learning update rules in JAX. The public names, each imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rulax.api import Run, compare, discover, load, train
    from rulax.commands.compare.show import Comparison
    from rulax.envs.registry import make
    from rulax.errors import Interrupted, TrainingStopped, UserError
    from rulax.rules.registry import make_rule as rule

__version__ = "0.1.0"

# Lazy, because JAX takes a second to import and `rulax --help` should not wait for it.
_PUBLIC = {
    "Comparison": ("rulax.commands.compare.show", "Comparison"),
    "Interrupted": ("rulax.errors", "Interrupted"),
    "Run": ("rulax.api", "Run"),
    "TrainingStopped": ("rulax.errors", "TrainingStopped"),
    "UserError": ("rulax.errors", "UserError"),
    "compare": ("rulax.api", "compare"),
    "discover": ("rulax.api", "discover"),
    "load": ("rulax.api", "load"),
    "make": ("rulax.envs.registry", "make"),
    "rule": ("rulax.rules.registry", "make_rule"),
    "train": ("rulax.api", "train"),
}

__all__ = [
    "Comparison",
    "Interrupted",
    "Run",
    "TrainingStopped",
    "UserError",
    "__version__",
    "compare",
    "discover",
    "load",
    "make",
    "rule",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rulax' has no attribute '{name}'")
    module, attribute = _PUBLIC[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
