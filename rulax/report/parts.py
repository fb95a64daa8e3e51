"""What the pages of all kinds of runs share: cost, configuration, versions, lines that could not be read, intervals over seeds."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rulax.records import folder as folders
from rulax.records.rows import Row
from rulax.report.blocks import Block, KeyValues, Notice
from rulax.text import duration

MOST_NAMED = 8  # broken lines that are named one by one
FEWEST_SEEDS = 5  # for an interval of the mean; with fewer it says little, and the range says all there is


def read_lines(folder: Path, whole: Callable[[Row], bool]) -> tuple[list[Row], list[int]]:
    """The rows of `metrics.jsonl` that are whole, and the numbers of the lines that are not: cut off, damaged, or foreign."""
    rows, broken = [], []
    path = folder / folders.METRICS
    # As bytes and at newlines only: splitlines would also break at separators inside of text and shift all line numbers.
    for line_number, line in enumerate(path.read_bytes().split(b"\n") if path.exists() else [], 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:  # no JSON, or no UTF-8
            row = None
        # A page must be possible for any folder, so whatever a chart relies on is checked before it is drawn.
        if isinstance(row, dict) and isinstance(row.get("step"), int) and whole(row):
            rows.append(row)
        else:
            broken.append(line_number)
    return rows, broken


def cost(
    environment_steps: int | None, seconds: float | None, cpu_seconds: float | None, more: Sequence[tuple[str, Any]] = ()
) -> KeyValues:
    """What a run took. Core-hours are CPU time, whatever the processor draws: no power is guessed."""
    per_cpu = environment_steps / cpu_seconds if environment_steps and cpu_seconds else None
    return KeyValues(
        "Cost",
        [
            ("environment steps", environment_steps),
            *more,
            ("time", duration(seconds)),
            ("CPU seconds", whole(cpu_seconds)),
            ("core-hours", core_hours(cpu_seconds)),
            ("environment steps per CPU second", whole(per_cpu)),
        ],
        open=True,
    )


def whole(value: float | None) -> str:
    """A number without decimals, or that it was not recorded."""
    return "not recorded" if value is None or not math.isfinite(value) else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def core_hours(cpu_seconds: float | None) -> str:
    """CPU seconds as core-hours."""
    return "not recorded" if cpu_seconds is None or not math.isfinite(cpu_seconds) else f"{cpu_seconds / 3600:.3g}"


def configuration(record: dict[str, Any], parts: Sequence[str]) -> list[Block]:
    """The parts of `config.json`, and the versions that the result depends on."""
    titles = {"settings": "Configuration", "learning": "Learning", "network": "Network", "discovery": "Discovery", "sizes": "Rule"}
    blocks: list[Block] = []
    for part in parts:
        if record.get(part):
            pairs = [(name.replace("_", " "), shown(value)) for name, value in record[part].items()]
            blocks.append(KeyValues(titles.get(part, part), pairs))
    versions = [
        *(record.get("versions") or {}).items(),
        ("commit", record.get("commit")),
        ("fingerprint", record.get("fingerprint")),
    ]
    blocks.append(KeyValues("Versions", [(name, value) for name, value in versions if value]))
    return blocks


def shown(value: Any) -> str:
    """A setting as a person would write it."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(item)}" for name, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value) or "–"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10000 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value) or "–"


def broken_lines(broken: Sequence[int], file: str) -> list[Block]:
    """What a reader must know when part of the record could not be read."""
    if not broken:
        return []
    named = ", ".join(map(str, broken[:MOST_NAMED])) + (f" and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else "")
    lines, them = ("1 line", "it was") if len(broken) == 1 else (f"{len(broken)} lines", "they were")
    return [Notice(f"{lines} of {file} could not be read", [f"Line {named}: {them} left out, so the curves may have a gap there."])]


def quoted(path: Path) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))


# -- intervals -----------------------------------------------------------------------------------------------------------------


def seed_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """A band around the mean over seeds, [P, K] -> low [P], high [P], and what it is. Every value must be known or its row be."""
    seeds, known = values.shape[1], np.isfinite(values)
    if seeds < 2:
        return np.zeros(0), np.zeros(0), "One seed: how much another seed would differ is not known."
    if seeds < FEWEST_SEEDS:
        low = np.where(known, values, np.inf).min(-1)
        high = np.where(known, values, -np.inf).max(-1)
        return low, high, f"The band reaches from the worst to the best of {seeds} seeds: too few for an interval of the mean."
    low, high = bootstrap(values)
    return low, high, f"The band is the 95 % bootstrap interval of the mean over {seeds} seeds, which few seeds make too narrow."


def bootstrap(values: np.ndarray, resamples: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """The percentile interval of the mean over seeds, the same seeds drawn for the whole curve, [P, K] -> [P] twice.

    A point without a value in every drawn seed counts with those that it has; one page always shows the same band.
    """
    # The same seeds for the whole curve, since the points of one curve are not independent.
    drawn = np.random.default_rng(0).integers(0, values.shape[1], (resamples, values.shape[1]))
    # How often each seed was drawn: one matrix product then gives all means, without an array of every resampled curve.
    weights = np.stack([(drawn == seed).sum(-1) for seed in range(values.shape[1])])  # [K, R]
    known = np.isfinite(values)
    count = known.astype(np.float64) @ weights
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(known, values, 0.0) @ weights / count  # [P, R]
    low, high = np.nanpercentile(means, (2.5, 97.5), axis=-1)
    return low, high
