"""A run folder: what it is called, when it may be created, and files in it that are either whole or not there."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import rulax
from rulax.errors import UserError
from rulax.files import write_atomically as write_atomically

CONFIG, METRICS, CHECKPOINT, CURVE, SUMMARY, REPORT = (
    "config.json",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "curve.png",
    "summary.json",
    "report.html",
)
# Settings that are younger than the first run folders, and what those did. Later ones belong here too.
BEFORE: dict[str, dict[str, Any]] = {
    "learning": {"reward_scale": 1.0},
    "network": {"value_init": "drawn", "memory_level": "episode"},
    "discovery": {"fitness_shaping": "ranks"},
}


def write_json(path: Path, value: Any) -> None:
    """A readable JSON file."""
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def short_name(name: str) -> str:
    """An environment's or a rule's name as part of a folder name; a rule file counts by its stem, with what it goes without."""
    file = re.fullmatch(r"(.+)\.(?:safetensors|npz)((?::\w+)*)", name)
    name = Path(file[1]).name + file[2] if file else name
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-")


def create_numbered(env: str, rule: str) -> Path:
    """Make the next `runs/ENV-RULE-NUMBER`. Two runs that start together get two folders."""
    stem = f"{short_name(env)}-{short_name(rule)}"
    create(Path("runs"))
    taken = [path.name.removeprefix(f"{stem}-") for path in Path("runs").iterdir() if path.name.startswith(f"{stem}-")]
    number = max((int(tail) for tail in taken if tail.isdigit()), default=0) + 1
    while True:
        folder = Path("runs") / f"{stem}-{number:03d}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise UserError(f"the run folder {folder} cannot be created: {error.strerror or error}") from None


def check_free(folder: Path) -> None:
    """Refuse to write over a run."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another --out")
    if any((folder / name).exists() for name in (CONFIG, METRICS, CHECKPOINT)):
        raise UserError(f"{folder} already holds a run; choose another --out, or go on with --resume {folder}")


def create(folder: Path) -> None:
    """Make the folder; where that is impossible, say so in one sentence."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the run folder {folder} cannot be created: {error.strerror or error}") from None


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a run."""
    try:
        return complete(json.loads((folder / CONFIG).read_text()))
    except FileNotFoundError:
        raise UserError(f"{folder} holds no run (there is no {CONFIG} in it)") from None
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"{folder / CONFIG} cannot be read: {error}") from None


def complete(record: dict[str, Any]) -> dict[str, Any]:
    """A record from before some settings existed, with what they were then: a rule may recommend something else today."""
    return record | {part: {**old, **record[part]} for part, old in BEFORE.items() if part in record}


def without_new(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that are as they were before they existed: what a fingerprint is made of."""
    old = [pair for part in BEFORE.values() for pair in part.items()]
    return {name: value for name, value in settings.items() if (name, value) not in old}


def versions() -> dict[str, str | None]:
    """The versions that a result depends on."""
    found: dict[str, str | None] = {"rulax": rulax.__version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for package in ("jax", "jaxlib", "equinox", "optax", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def git_commit() -> str | None:
    """The commit that the package stands on, if it is a git checkout."""
    import subprocess

    root = Path(rulax.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None


def fingerprint(settings: Any) -> str:
    """A short hash of the settings that fix what is computed, to tell checkpoints of different runs apart."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
