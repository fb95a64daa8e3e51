"""How a run was made: command, versions, commit, seed and machine, the same record for every command."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import rulax
from rulax.parallel import machine

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def how_made(kind: str, settings: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """The content of `config.json`.

    Args:
        kind: the command, such as `train`.
        settings: its settings by name; the seed is one of them.
        parts: what else fixes the result, such as `learning` and `network`, and how its checkpoints are told from others.
    """
    return {
        "kind": kind,
        "settings": settings,
        **parts,
        "command": command_line(),
        "versions": versions(),
        "commit": git_commit(),
        "machine": machine.describe(),
    }


def command_line() -> str | None:
    """What the user typed; None if Python was used."""
    # In a notebook or a script sys.argv is somebody else's command line.
    typed = sys.argv[0].endswith(("rulax", "__main__.py"))
    return " ".join(["rulax", *sys.argv[1:]]) if typed else None


def versions() -> dict[str, str | None]:
    """The versions that a result depends on."""
    found: dict[str, str | None] = {"rulax": rulax.__version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def git_commit() -> str | None:
    """The commit of the package, if it is a git checkout."""
    root = Path(rulax.__file__).parent.parent
    # git would search the folders above as well, and find the user's own repository around an installed package.
    if not (root / ".git").exists():
        return None
    # By git and not by reading .git, which is a file in a worktree and may hold packed references.
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None


def fingerprint(settings: Any) -> str:
    """A short hash of the settings that fix what is computed, to tell checkpoints of different runs apart."""
    # Sorted, so that the order in which settings are declared may change.
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
