"""What the pages of all kinds of runs share: cost, configuration, versions, lines that could not be read, intervals over seeds."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rulax.report.blocks import Block, KeyValues, Notice
from rulax.run.progress import duration

MOST_NAMED = 8  # broken lines that are named one by one
FEWEST_SEEDS = 5  # for an interval of the mean; with fewer it says little, and the range says all there is
NORMAL = 1.959964  # the 97.5 % point of the normal distribution


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a run folder; empty if it is not there or cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
    versions = [*(record.get("versions") or {}).items(), ("commit", record.get("commit")), ("fingerprint", record.get("fingerprint"))]
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


def t_quantile(freedom: int) -> float:
    """The 97.5 % point of Student's t from 4 degrees of freedom on, by its expansion around the normal (within 0.3 %)."""
    z, v = NORMAL, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def seed_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """A band around the mean over seeds, [P, K] -> low [P], high [P], and what it is."""
    seeds, known = values.shape[1], np.isfinite(values)
    if seeds < 2:
        return np.zeros(0), np.zeros(0), "One seed: how much another seed would differ is not known."
    if seeds < FEWEST_SEEDS:
        low = np.where(known, values, np.inf).min(-1)
        high = np.where(known, values, -np.inf).max(-1)
        return low, high, f"The band reaches from the worst to the best of {seeds} seeds: too few for an interval of the mean."
    count = known.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(known, values, 0).sum(-1) / count
        variance = np.where(known, values - mean[:, None], 0).__pow__(2).sum(-1) / (count - 1)
        reach = np.array([t_quantile(n - 1) if n >= FEWEST_SEEDS else np.nan for n in count]) * np.sqrt(variance / count)
    return mean - reach, mean + reach, f"The band is the 95 % interval of the mean over {seeds} seeds (Student's t)."
