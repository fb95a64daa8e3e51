"""The one policy of `--resume`: a run goes on with the settings of its folder, and only some of them may be given anew.

Which ones is said where each setting is declared (`on_resume` in its field). Repeating a setting of the folder is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rulax.commands.fields import changeable, flags_in_words
from rulax.commands.settings import settings_keys
from rulax.errors import UserError
from rulax.files import jsonable
from rulax.records import folder as folders

KINDS = {
    "train": "a training run",
    "discover": "a discovery",
    "compare": "a comparison",
    "tune": "a search for settings",
    "method": "experiments of methods",
    "study": "a study",
}


def read_record(folder: Path, kind: str) -> dict[str, Any]:
    """The `config.json` of a run of this kind; another kind is refused with the command that it belongs to."""
    record = folders.read_config(folder)
    # Never missing: reading completes records from before there was a kind.
    found = record["kind"]
    if found != kind:
        other = f"; go on with it by: rulax {found} --resume {folder}" if found in KINDS else ""
        raise UserError(f"{folder} holds {KINDS.get(found, 'something else')}, not {KINDS[kind]}{other}")
    return record


def accept(cls: type, given: Mapping[str, Any], saved: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings that a resumed run takes from what was given now; a `UserError` if another one differs from the folder's.

    Args:
        cls: the settings of the command.
        given: what the user gave, converted.
        saved: what the folder was made with, by name.
        folder: where it is, which `--resume` and perhaps `--out` name.
    """
    allowed = changeable(cls)
    # Naming the same folder is harmless and common in scripts that always pass --out.
    if given.get("out") and Path(given["out"]) != folder:
        raise UserError(f"a resumed run goes on in its own folder, {folder}; leave --out out")
    fixed = {name: value for name, value in given.items() if name not in (*allowed, "resume", "out")}
    for name in fixed:
        # A preset, for example: the folder cannot say what it was, so whether it is the same cannot be known.
        if name not in saved and name not in settings_keys(cls):
            raise UserError(f"{name} cannot be given with --resume; only {flags_in_words(allowed)} may be")
    changed = differences(fixed, saved)
    if changed:
        only = flags_in_words(allowed)
        raise UserError(f"{folder} was made with other settings, which a resumed run keeps: {changed}; only {only} may change")
    return {name: value for name, value in given.items() if name in allowed}


def differences(now: Mapping[str, Any], saved: Mapping[str, Any]) -> str:
    """The settings that are not what the folder says, as part of a sentence; empty if none is."""
    # As JSON has them: what was read from config.json is lists where a configuration has tuples.
    changed = {name: (saved.get(name), value) for name, value in now.items() if jsonable(value) != jsonable(saved.get(name))}
    return ", ".join(f"{name} is {_short(there)} there and not {_short(here)}" for name, (there, here) in changed.items())


def check_budget(folder: Path, made: int, wanted: int, given: bool, unit: str, flag: str = "--steps", left: bool = False) -> None:
    """Refuse a budget that is spent already.

    Args:
        folder: of the run.
        made: how much of it was made.
        wanted: the budget.
        given: whether the user named it.
        unit: of what it is counted in.
        flag: by which it is given.
        left: whether something else is still to be done once it is spent.
    """
    # With the budget of the folder, reached means finished. A budget that the user repeats may equal what was made: then there is
    # nothing left to train, but the results are written again.
    if not given and not left and wanted <= made:
        raise UserError(f"{folder} is finished, after {made:,} {unit}; a larger {flag} N goes on")
    if wanted < made:
        raise UserError(f"{folder} has already made {made:,} {unit}, more than {flag} {wanted:,}")


def before_first_checkpoint(folder: Path) -> bool:
    """Whether a run was ended before it had anything to go on from, so that it begins again."""
    # Rows without a checkpoint mean that one was lost: to begin again would silently remove them.
    metrics = folder / folders.METRICS
    return not any(folder.glob(f"{Path(folders.CHECKPOINT).stem}*")) and not (metrics.exists() and metrics.stat().st_size)


def what_is_left(folder: Path, trained: bool, missing: list[str], again: bool) -> str:
    """What a user is told of a run that does not simply go on; empty for one that does."""
    if again:
        return f"{folder} holds no checkpoint yet; it begins again, with its own settings"
    return f"nothing is left to train; what is still to be made: {', '.join(missing)}" if trained and missing else ""


def _short(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else "not set" if value is None else str(value)
