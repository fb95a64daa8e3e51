"""What the pages of all kinds of runs share: reading, metrics, commands, cost, configuration, versions, intervals over seeds."""

from __future__ import annotations

import base64
import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rulax.errors import UserError
from rulax.files import load_json, read_json
from rulax.records import folder as folders
from rulax.records.rows import Row
from rulax.report.blocks import Block, Commands, Curves, Fact, KeyValues, Line, Notice, Panels, Text
from rulax.report.html import number
from rulax.text import duration, plural

MOST_NAMED = 8  # broken lines that are named one by one
DISCOUNTED = (
    "The return of the curves above is the plain sum of the rewards of a whole episode. The discounted one is what the rule's "
    "value learns from: counted from every step of an episode to its end, later rewards less, and partly the agent's own estimates."
)
FEWEST_SEEDS = 5  # for an interval of the mean; with fewer it says little, and the range says all there is


def read_results(path: Path, kind: str, what: str) -> dict[str, Any]:
    """All numbers of a comparison or an explanation, from the file that its command writes."""
    found = load_json(path, "; so there is no page to make")
    if found.get("kind") != kind:
        raise UserError(f"{path} does not hold {what}; `rulax {kind}` writes it")
    return found


def commands(title: str, lines: Sequence[tuple[str, str]]) -> Commands:
    """Lines for a terminal, each with its caption."""
    return Commands(title, [line for line, _ in lines], [caption for _, caption in lines])


def unfinished(summary: dict[str, Any], unit: str, made: int, wanted: int) -> str:
    """What is missing of a run, if something is, and which callback stopped it, if one did."""
    by = f", by {summary['stopped_by']}" if summary.get("stopped_by") else ""
    stopped = f"It stopped at {unit} {made:,} of {wanted:,}{by}. The command below goes on from there."
    return "" if summary.get("finished") else stopped


def metric_panels(
    title: str, rows: list[Row], first: Sequence[str], left_out: Sequence[str], x_label: str, line: str, note: str
) -> list[Block]:
    """Every number that was measured as a small chart, but for those that are shown elsewhere; `first` ones, then by name."""
    names = {name for row in rows for name, value in row.items() if isinstance(value, int | float)} - set(left_out)
    panels, constant = [], []
    for name in sorted(names, key=lambda name: (first.index(name) if name in first else len(first), name)):
        points = [(row["step"], row[name]) for row in rows if isinstance(row.get(name), int | float)]
        steps, values = [step for step, _ in points], [value for _, value in points]
        # What never changes is said in a word; a panel would show a flat line.
        if len(values) > 1 and min(values) == max(values):
            constant.append(f"{metric_name(name)} {number(float(values[0]))}")
            continue
        # A logarithmic axis is only offered where every point has a place on it.
        log: Literal["", "y"] = "y" if all(value > 0 for value in values) else ""
        panels.append(Curves(metric_name(name), x_label, "", [Line(line, steps, values)], log=log))
    same = f"The same throughout, so not drawn: {', '.join(constant)}." if constant else ""
    discounted = DISCOUNTED if "return" in names else ""
    if panels:
        return [Panels(title, panels, " ".join(filter(None, (note, discounted, same))))]
    return [Text(title, [same])] if same else []


def core_hours_fact(cpu_seconds: float | None) -> Fact:
    """What a run cost, for the strip of numbers."""
    return Fact("core-hours", core_hours(cpu_seconds), f"{whole(cpu_seconds)} CPU seconds" if cpu_seconds else "")


def current_summary(folder: Path, made: int, wanted: int) -> dict[str, Any]:
    """The `summary.json` of a run, as far as it still holds: one that goes on again has outlived its own."""
    found = read_json(folder / folders.SUMMARY, folders.Summary)
    then = found.get("steps", found.get("meta_steps", wanted))
    if made > then:
        return {}
    return found if then >= wanted else found | {"finished": False}


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
    left_out = "it was left out" if len(broken) == 1 else "they were left out"
    title = f"{plural(len(broken), 'line')} of {file} could not be read"
    return [Notice(title, [f"Line {named}: {left_out}, so the curves may have a gap there."])]


def metric_name(name: str) -> str:
    """What a chart of a metric is called."""
    return {"return": "return, discounted"}.get(name, name.replace("_", " "))


def in_words(value: dict[str, Any], write: Callable[[float], str]) -> str:
    """A value with its interval, if it has one, as a part of a sentence."""
    low, high = value["low"], value["high"]
    return write(value["value"]) + (f" (95 %: {write(low)} to {write(high)})" if low is not None else "")


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


def data_url(path: Path) -> str:
    """An image as part of a page; nothing if there is no such file."""
    kind = path.suffix.lstrip(".")  # gif or png
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}" if path.is_file() else ""
