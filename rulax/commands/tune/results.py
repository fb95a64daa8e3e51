"""All numbers of a sweep, as `tune.json` holds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rulax.commands.cells import Cell, cost_of, finished, read_cell
from rulax.commands.search_space import Choices
from rulax.commands.tune.settings import TuneConfig
from rulax.commands.tune.study import FEWEST, Trial
from rulax.own import shown
from rulax.report.parts import bootstrap

FEWEST_SEEDS = 3  # for an interval


def results(
    config: TuneConfig,
    record: dict[str, Any],
    trials: Sequence[tuple[Trial, Cell]],
    best: Trial | None,
    last: Cell | None,
    importances: dict[str, float] | None,
) -> dict[str, Any]:
    """Everything that the page and the table show; `last` is the training of the result, once it is finished."""
    cells = [*(cell for _, cell in trials), *([last] if last else [])]
    costs = [cost_of(cell) for cell in cells]
    runs = [read_cell(cell) for cell in cells]
    return {
        **record,
        "env": shown(config.env),
        "rule": shown(config.rule),
        "finished": last is not None,
        "wanted": config.trials,
        "trials": [of_trial(trial, cell) for trial, cell in trials],
        "space": {name: in_words(text) for name, text in zip(config.space, config.tune, strict=True)},
        "ranges": [name for name, each in config.space.items() if not isinstance(each, Choices)],
        "logarithmic": [name for name, each in config.space.items() if not isinstance(each, Choices) and each.log],
        "mattered": mattered(config, [trial for trial, _ in trials], importances),
        "best": None if best is None else {"trial": best.number + 1, "settings": best.values, "final_return": best.score},
        "result": of_result(last) if last else None,
        "environment_steps": sum(run.summary()["steps"] * run.config.seeds for run in runs if run),
        "cost": {"seconds": sum(cost.seconds for cost in costs), "cpu_seconds": sum(cost.cpu_seconds for cost in costs)},
    }


def in_words(text: str) -> str:
    """`lr=1e-4:1e-2:log` -> `1e-4 to 1e-2, logarithmic`."""
    values = text.partition("=")[2]
    if ":" not in values:
        return values.replace(",", ", ")
    low, high, *scale = values.split(":")
    return f"{low} to {high}{', logarithmic' if scale == ['log'] else ''}"


def of_trial(trial: Trial, cell: Cell) -> dict[str, Any]:
    """One row of the table."""
    trained = finished(cell)
    run = read_cell(cell) if trained else None
    return {
        "trial": trial.number + 1,
        "settings": trial.values,
        "final_return": trial.score,
        "final_return_per_seed": run.final_returns if run else None,
        "finished": trial.finished,
        "note": "recommended settings"
        if trial.recommended
        else trial.reason or ("" if trained or not trial.finished else "repeated"),
        "folder": f"trials/{cell.folder.name}" if trained else None,
        "seconds": cost_of(cell).seconds,
    }


def of_result(last: Cell) -> dict[str, Any]:
    """The return of the best settings on fresh seeds, with its interval where there are enough of them."""
    run = read_cell(last)
    assert run is not None
    summary = run.summary()
    known = [value for value in summary["final_return_per_seed"] if value is not None]
    low = high = None
    if len(known) >= FEWEST_SEEDS:
        low, high = (float(end[0]) for end in bootstrap(np.array([known])))
    return {
        "folder": last.folder.name,
        "seeds": last.config.seeds,
        "steps": summary["steps"],
        "final_return": summary["final_return"],
        "final_return_per_seed": summary["final_return_per_seed"],
        "low": low,
        "high": high,
    }


def mattered(config: TuneConfig, trials: Sequence[Trial], importances: dict[str, float] | None) -> list[dict[str, Any]] | None:
    """Importance and direction of each setting, the most important first; None where too few trials are finished to tell."""
    if importances is None:
        return None
    # Each settings once: a repeated trial is no further evidence.
    scored = list({repr(trial.values): trial for trial in trials if trial.score is not None}.values())
    rows = []
    for name, importance in importances.items():
        values = [trial.values[name] for trial in scored]
        rows.append({"name": name, "importance": importance, "correlation": rank_correlation(values, [t.score for t in scored])})
    return sorted(rows, key=lambda row: -row["importance"])


def rank_correlation(values: Sequence[Any], scores: Sequence[Any]) -> float | None:
    """Spearman's; None for what has no order, too few trials, or values that are all the same."""
    from scipy.stats import spearmanr

    if (
        len(values) < FEWEST
        or not all(isinstance(value, int | float) for value in values)
        or min(len(set(values)), len(set(scores))) < 2
    ):
        return None
    found = float(spearmanr(values, scores).statistic)
    return found if math.isfinite(found) else None
