"""How a run was made: command, versions, commit, seed and machine, the same record for every command."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import rulax
from rulax.errors import UserError
from rulax.files import cache_folder, write_atomically
from rulax.files.reading import read_bytes
from rulax.own import consent
from rulax.parallel import machine

KEY = "key"  # a file in the cache
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def how_made(kind: str, settings: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """The content of `config.json`.

    Args:
        kind: the command, such as `train`.
        settings: its settings by name; the seed is one of them.
        parts: what else fixes the result, such as `learning` and `network`, and how its checkpoints are told from others.
    """
    record = {
        "kind": kind,
        "settings": settings,
        **parts,
        "command": command_line(),
        "versions": versions(),
        "commit": git_commit(),
        "machine": machine.describe(),
    }
    signature = sign(record)
    return record | ({"consent": signature} if signature else {})


# -- whether a record is the user's own ------------------------------------------------------------------------------------------


def that_may_name_code(record: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a record that something is made from."""
    said = ("command", "versions", "commit", "machine", "own_files", "consent")  # by nobody but a reader
    return {name: value for name, value in record.items() if name not in said}


def sign(record: Mapping[str, Any]) -> str:
    """That this user, in this folder, has consented to the code that a record names; empty if it names none.

    So that whoever goes on with a run of their own is not asked again. The signature is made with a key that lies in the cache of
    the user, and is worth nothing to anybody else, elsewhere, or for other code.
    """
    named, key = consent.naming_code(that_may_name_code(record)), _key() if record else b""
    if not named or not key:
        return ""
    return hmac.new(key, json.dumps([os.getcwd(), *named]).encode(), "sha256").hexdigest()[:32]


def is_ours(record: Mapping[str, Any]) -> bool:
    """Whether a record was signed by this user, for this folder."""
    found = record.get("consent")
    return isinstance(found, str) and found != "" and hmac.compare_digest(found.encode(), sign(record).encode())


def _key() -> bytes:
    """The key of this user on this machine; empty where none can be kept."""
    path = cache_folder() / KEY
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, secrets.token_bytes(32))
            path.chmod(0o600)
        return read_bytes(path, 32)
    except (OSError, UserError):
        return b""


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
