"""A run folder: what it is called, when it may be created, and files in it that are either whole or not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypedDict

from rulax.errors import UserError
from rulax.files import load_json
from rulax.files.reading import blamed
from rulax.own import consent, shown
from rulax.records import provenance
from rulax.records.earlier import complete
from rulax.records.lock import refuse_if_used

CONFIG, METRICS, CHECKPOINT, CURVE, SUMMARY, REPORT, FILM, SKILLS = (
    "config.json",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "curve.png",
    "summary.json",
    "report.html",
    "episode.gif",
    "skills.png",
)
TURNS, SCHEDULE, POPULATION = "population.jsonl", "schedule.json", "population.png"  # of a population
COMPARISON, EXPLANATION, SWEEP, STUDY = "compare.json", "explain.json", "tune.json", "study.json"  # all numbers of those commands
RULE, LAST, CARD, BASELINES = "rule.safetensors", "last.safetensors", "rule_card.md", "baselines.json"  # of a discovery


class _Needed(TypedDict):
    settings: dict[str, Any]


class Config(_Needed, total=False):
    """The form of a `config.json`."""

    kind: str
    learning: dict[str, Any]
    network: dict[str, Any]
    discovery: dict[str, Any]
    sizes: dict[str, Any]
    command: str | None
    versions: dict[str, str | None]
    commit: str | None
    fingerprint: str
    custom: list[str]
    own_files: dict[str, str]
    rule_files: dict[str, str]
    merged: list[dict[str, Any]]
    merge_warnings: list[str]
    consent: str


class Summary(TypedDict, total=False):
    """The form of a `summary.json`, as far as somebody computes with it."""

    finished: bool
    steps: int
    meta_steps: int
    seconds: float | None
    cpu_seconds: float | None
    environment_steps: int | None
    final_return: float | None
    stopped_by: str
    best: dict[str, Any] | None
    skills: list[dict[str, Any]]


def short_name(name: str) -> str:
    """An environment's or a rule's name as part of a folder name; a rule file counts by its stem, with what it goes without."""
    file = re.fullmatch(r"(.+)\.(?:safetensors|npz)((?::\w+)*)", name)
    name = Path(file[1]).name + file[2] if file else name
    return re.sub(r"[^A-Za-z0-9._]+", "-", shown(name)).strip("-")


def create_new(out: str, *names: str) -> Path:
    """Make the folder that the user asked for, or else a numbered one."""
    if not out:
        return create_numbered(*names)
    create(Path(out))
    return Path(out)


def create_numbered(*names: str) -> Path:
    """Make the next `runs/NAME-NAME-NUMBER`, such as `runs/catch-ppo-001`. Two runs that start together get two folders."""
    stem = "-".join(map(short_name, names))
    create(Path("runs"))
    # After the largest, not in the first gap: a number that a deleted run has freed among them is not given to another.
    taken = [path.name.removeprefix(f"{stem}-") for path in Path("runs").iterdir() if path.name.startswith(f"{stem}-")]
    number = max((int(tail) for tail in taken if tail.isdigit()), default=0) + 1
    while True:
        folder = Path("runs") / f"{stem}-{number:03d}"
        try:
            folder.mkdir()
            return folder
        # Another run took the number since it was looked up; mkdir decides between them, as it cannot succeed twice.
        except FileExistsError:
            number += 1
        except OSError as error:
            raise UserError(f"the run folder {folder} cannot be created: {error.strerror or error}") from None


def check_free(out: str, ours: bool = False) -> None:
    """Refuse to write over a run; `ours` if the lock on the folder is held already."""
    folder = Path(out)
    if not out:
        return
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another --out")
    # An existing folder without a run is fine: users make one beforehand, or keep notes in it.
    if any((folder / name).exists() for name in (CONFIG, METRICS, CHECKPOINT)):
        if not ours:
            refuse_if_used(folder)  # one that goes on right now, which --resume would be refused as well
        raise UserError(f"{folder} already holds a run; choose another --out, or go on with --resume {folder}")


def create(folder: Path) -> None:
    """Make the folder; where that is impossible, say so in one sentence."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the run folder {folder} cannot be created: {error.strerror or error}") from None


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a run."""
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder} holds no run (there is no {CONFIG} in it)")
    record = load_json(folder / CONFIG, form=Config)
    if not provenance.is_ours(record):
        consent.doubt(provenance.that_may_name_code(record), folder / CONFIG)
    with blamed(folder / CONFIG):
        return complete(record)
