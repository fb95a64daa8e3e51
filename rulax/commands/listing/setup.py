"""Reads the runs in a folder, and chooses among them. No JAX.

Runs of train, discover and compare each become one row. The cells of a comparison belong to it and are not listed beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rulax.errors import UserError, readable, suggestion
from rulax.files import read_json
from rulax.files.reading import blamed, misfit
from rulax.records import folder as folders
from rulax.text import plural

INSTALLABLE = ("disco103",)  # rules that do not come with the package
ListedRun = dict[str, Any]  # one row, by column
COLUMNS = ("folder", "kind", "env", "rule", "seeds", "steps", "finished", "final_return", "score", "seconds", "broken_lines")
TEXT, NUMBER = str | None, float | None
FORMS: dict[str, Any] = dict.fromkeys(("folder", "kind", "env", "rule", "command"), TEXT)
FORMS |= dict.fromkeys(("seeds", "steps", "budget", "final_return", "score", "seconds"), NUMBER)
MOST_SHOWN = 200  # characters of a name
SCORES = ("final_return", "score")  # numbers that mean something only between runs of the same kind


def list_runs(folder: Path) -> list[ListedRun]:
    """Every run in a folder, at any depth."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder; `rulax runs DIR` lists the runs in DIR")
    found = [described(each) for each in run_folders(folder, inside=True)]
    if not found:
        raise UserError(f"{folder} holds no runs (no folder in it has a {folders.CONFIG})")
    return found


def run_folders(folder: Path, inside: bool = False) -> Iterator[Path]:
    """Folders that hold a run. Below a run there are only its own parts, unless one asks for what is inside it."""
    is_run = (folder / folders.CONFIG).is_file()
    if is_run:
        yield folder
    if not is_run or inside:
        # Not a recursive glob, which would also walk through every cell, checkpoint and event file below a run.
        for path in folders_in(folder):
            # `inside` is not passed on: whoever names a comparison sees its cells, but not what is inside of those.
            yield from run_folders(Path(path))


def folders_in(folder: Path) -> list[str]:
    """The folders in a folder; what cannot be looked into (somebody else's, a link to itself) is passed over."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                found += [entry.path] if entry.is_dir() and not entry.name.startswith(".") else []
    return sorted(found)


def described(folder: Path) -> ListedRun:
    """The same for any folder: one damaged run must not keep the others from being listed."""
    nothing = dict.fromkeys((*COLUMNS, "budget", "command")) | {"folder": str(folder), "finished": False, "broken_lines": 0}
    try:
        with blamed(folder):
            entry = describe(folder)
    except UserError as error:
        return nothing | {"kind": "damaged", "broken": [], "damage": str(error)}
    # As a table and a file of values show them, and as they are sorted: a damaged file may hold anything.
    misfits = [name for name, form in FORMS.items() if misfit(entry.get(name), form)]
    text = {name: readable(value, MOST_SHOWN) for name, value in entry.items() if isinstance(value, str)}
    damage = {"damage": f"{folder / folders.CONFIG} holds no {misfits[0]} of a run"} if misfits else {}
    return entry | text | {name: nothing.get(name) for name in misfits} | damage


def describe(folder: Path) -> ListedRun:
    """One run in a few numbers. A run that was killed has no summary: then its metrics are counted."""
    # Lenient readers: what is damaged is missing.
    config, summary = read_json(folder / folders.CONFIG, folders.Config), read_json(folder / folders.SUMMARY, folders.Summary)
    settings = config.get("settings", {})
    from rulax.records.rows import read_lines  # with numpy

    rows, broken = read_lines(folder)
    last = rows[-1] if rows else {}
    entry: ListedRun = dict.fromkeys(COLUMNS) | {
        "folder": str(folder),  # as a command takes it: `rulax train --resume` and others
        # Folders from before there was a kind; the strict reader would do the same.
        "kind": config.get("kind") or ("discover" if "discovery" in config else "train"),
        "env": settings.get("env") or settings.get("suite") or " ".join(settings.get("envs") or ()),
        "rule": settings.get("rule") or settings.get("init") or " ".join(settings.get("rules") or ()) or "random",
        "seeds": settings.get("seeds"),
        "steps": summary.get("steps", summary.get("meta_steps", last.get("step", 0))),
        "budget": settings.get("steps"),
        "finished": bool(summary.get("finished")),
        "damage": "" if config else f"{folder / folders.CONFIG} is damaged",
        "final_return": summary.get("final_return", last.get("episode_return")),
        "seconds": summary.get("seconds", last.get("seconds")),
        "broken_lines": len(broken),
        "broken": broken,
        "command": config.get("command"),
    }
    if entry["kind"] == "compare":
        entry |= of_comparison(folder, settings)
    if entry["kind"] == "tune":
        entry |= of_sweep(folder)
    if entry["kind"] == "method":
        entry |= of_methods(folder, settings)
    if entry["kind"] == "study":
        entry |= of_study(folder, settings)
    if entry["kind"] == "discover":
        best = summary.get("best") or {}
        entry["score"] = best.get("validation_score") if best.get("validation_score") is not None else best.get("training_score")
    return entry


def of_comparison(folder: Path, settings: ListedRun) -> ListedRun:
    """A comparison's own numbers: the best rule's interquartile mean."""
    results = read_json(folder / folders.COMPARISON)
    overall = (results.get("statistics") or {}).get("overall") or {"rules": {}}
    scores = {rule: found["iqm"]["value"] for rule, found in overall["rules"].items()}
    return {
        "steps": settings.get("steps"),
        "finished": bool(results.get("finished")),
        "score": max(scores.values(), default=None),
        "seconds": (results.get("cost") or {}).get("seconds"),
    }


def of_sweep(folder: Path) -> ListedRun:
    """A search for settings: what the best of them came to on fresh seeds."""
    results = read_json(folder / folders.SWEEP)
    return {
        "steps": results.get("environment_steps", 0),
        "finished": bool(results.get("finished")),
        "final_return": (results.get("result") or {}).get("final_return"),
        "seconds": (results.get("cost") or {}).get("seconds"),
    }


def of_methods(folder: Path, settings: ListedRun) -> ListedRun:
    """The experiments of a method: the mean of their scores on the common axis."""
    records = [read_json(path) for path in sorted(folder.glob("*.*.json"))]
    scores = [float(record["score"]) for record in records if record.get("score") is not None]
    return {
        "env": settings.get("experiment") or f"{len(records)} experiments",
        "rule": settings.get("method"),
        "steps": sum(record.get("env_steps", 0) for record in records),
        "finished": (folder / "table.md").exists(),  # written when all of them are done
        "score": sum(scores) / len(scores) if scores else None,
        "seconds": sum(record.get("wall_s", 0) for record in records),
    }


def of_study(folder: Path, settings: ListedRun) -> ListedRun:
    """A study: how many discoveries it holds."""
    results = read_json(folder / folders.STUDY)
    return {
        "env": settings.get("study"),
        "rule": f"{results.get('made', 0)} of {results.get('wanted', '?')} discoveries",
        "steps": results.get("steps", 0),
        "finished": bool(results.get("finished")),
        "seconds": (results.get("cost") or {}).get("seconds"),
    }


# -- choosing ------------------------------------------------------------------------------------------------------------------


def check_columns(names: list[str]) -> None:
    """Only what is listed can be chosen by."""
    for name in names:
        if name not in (*COLUMNS, "budget", "command"):
            raise UserError(f"runs have no '{name}'{suggestion(name, COLUMNS)} (columns: {', '.join(COLUMNS)}, budget, command)")


def has_values(entry: ListedRun, wanted: dict[str, Any]) -> bool:
    """Whether a run has all these values; text matches where it is contained, yes and no are words for true and false."""
    words = {"yes": True, "no": False}
    for name, value in wanted.items():
        found = entry[name]
        if isinstance(found, str):
            if str(value).lower() not in found.lower():
                return False
        elif words.get(str(value).lower(), value) != found:
            return False
    return True


def ordered(entries: list[ListedRun], name: str, reverse: bool) -> list[ListedRun]:
    """Sorted by a column; runs without a value come last, whichever way."""
    # None cannot be compared with numbers, and `reverse` would bring such runs to the front.
    known = [entry for entry in entries if entry[name] is not None]
    return sorted(known, key=lambda entry: entry[name], reverse=reverse) + [entry for entry in entries if entry[name] is None]


def notes(entries: list[ListedRun], sort: str) -> list[str]:
    """What a reader should know: broken files, and an order that compares what cannot be compared."""
    found = [
        f"{entry['folder']}/{folders.METRICS}: {plural(entry['broken_lines'], 'broken line')} "
        f"skipped (number {', '.join(map(str, entry['broken'][:5]))}{', …' if entry['broken_lines'] > 5 else ''})"
        for entry in entries
        if entry["broken_lines"]
    ]
    found += [f"damaged: {entry['damage']}" for entry in entries if entry.get("damage")]
    # Other columns, such as seconds, can be compared between any runs.
    if sort in SCORES:
        scored = [entry for entry in entries if entry[sort] is not None]
        for column, words in (("kind", "kinds"), ("env", "environments"), ("budget", "budgets")):
            values = {str(entry[column]) for entry in scored}
            if len(values) > 1:
                found.append(f"sorted by {sort}, but these runs have {len(values)} different {words}: they cannot be compared")
    return found
