"""Environments: the contract, small jittable environments, adapters. Importing this does not import JAX."""

from __future__ import annotations

import importlib
from typing import Any

from rulax.envs.registry import MissingExtra, UnknownEnvironment, families, list_environments, make

_LAZY = {
    "Environment": "base",
    "Episode": "base",
    "HostEnvironment": "base",
    "HostStreams": "base",
    "Timestep": "base",
    "Transition": "base",
    "TimeLimit": "wrappers",
    "streams": "wrappers",
}

__all__ = ["MissingExtra", "UnknownEnvironment", "families", "list_environments", "make", *_LAZY]


def __getattr__(name: str) -> Any:
    """Import what needs JAX at its first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'rulax.envs' has no attribute '{name}'")
    return getattr(importlib.import_module(f"rulax.envs.{_LAZY[name]}"), name)
