"""Rulax: reinforcement-learning update rules in JAX. The public names, each imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rulax import callbacks
    from rulax.api import (
        Run,
        compare,
        discover,
        evaluate,
        explain,
        load,
        load_agent,
        merge,
        method,
        play,
        study,
        train,
        tune,
        watch,
    )
    from rulax.commands.compare.show import Comparison
    from rulax.commands.tune.show import Sweep
    from rulax.envs.registry import make
    from rulax.errors import FolderFailed, Interrupted, TrainingStopped, UserError
    from rulax.rules.registry import make_rule as rule

__version__ = "0.1.0"

# Lazy, because JAX takes a second to import and `rulax --help` should not wait for it.
_PUBLIC = {
    "Comparison": ("rulax.commands.compare.show", "Comparison"),
    "FolderFailed": ("rulax.errors", "FolderFailed"),
    "Interrupted": ("rulax.errors", "Interrupted"),
    "Run": ("rulax.api", "Run"),
    "Sweep": ("rulax.commands.tune.show", "Sweep"),
    "TrainingStopped": ("rulax.errors", "TrainingStopped"),
    "UserError": ("rulax.errors", "UserError"),
    "compare": ("rulax.api", "compare"),
    "discover": ("rulax.api", "discover"),
    "evaluate": ("rulax.api", "evaluate"),
    "explain": ("rulax.api", "explain"),
    "load": ("rulax.api", "load"),
    "load_agent": ("rulax.api", "load_agent"),
    "merge": ("rulax.api", "merge"),
    "method": ("rulax.api", "method"),
    "make": ("rulax.envs.registry", "make"),
    "play": ("rulax.api", "play"),
    "rule": ("rulax.rules.registry", "make_rule"),
    "study": ("rulax.api", "study"),
    "train": ("rulax.api", "train"),
    "trust": ("rulax.api", "trust"),
    "tune": ("rulax.api", "tune"),
    "watch": ("rulax.api", "watch"),
}

__all__ = [
    "Comparison",
    "FolderFailed",
    "Interrupted",
    "Run",
    "Sweep",
    "TrainingStopped",
    "UserError",
    "__version__",
    "callbacks",
    "compare",
    "discover",
    "evaluate",
    "explain",
    "load",
    "load_agent",
    "make",
    "merge",
    "method",
    "play",
    "rule",
    "study",
    "train",
    "trust",
    "tune",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name == "callbacks":
        return importlib.import_module("rulax.callbacks")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rulax' has no attribute '{name}'")
    module, attribute = _PUBLIC[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
