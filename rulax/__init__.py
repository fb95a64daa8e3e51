"""Rulax: reinforcement-learning update rules in JAX. The public names, each imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rulax.envs.registry import make
    from rulax.rules.registry import make_rule as rule
    from rulax.run.api import Run, compare, discover, load, train
    from rulax.run.compare_report import Comparison
    from rulax.run.errors import Interrupted, TrainingStopped, UserError

__version__ = "0.1.0"

# Lazy, because JAX takes a second to import and `rulax --help` should not wait for it.
_PUBLIC = {
    "Comparison": ("rulax.run.compare_report", "Comparison"),
    "Interrupted": ("rulax.run.errors", "Interrupted"),
    "Run": ("rulax.run.api", "Run"),
    "TrainingStopped": ("rulax.run.errors", "TrainingStopped"),
    "UserError": ("rulax.run.errors", "UserError"),
    "compare": ("rulax.run.api", "compare"),
    "discover": ("rulax.run.api", "discover"),
    "load": ("rulax.run.api", "load"),
    "make": ("rulax.envs.registry", "make"),
    "rule": ("rulax.rules.registry", "make_rule"),
    "train": ("rulax.run.api", "train"),
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
