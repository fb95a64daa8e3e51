"""Intervals for the analyses: a bootstrap over independent groups (episodes, streams), and Student's t over folds."""

from __future__ import annotations

from typing import Any

import numpy as np

from rulax.evaluation.statistics import student_factor

RESAMPLES = 1000

Numbers = dict[str, Any]


def over_groups(values: np.ndarray, groups: np.ndarray | None = None, seed: int = 0) -> Numbers:
    """Mean of values [N], ignoring NaN, with the 95 % percentile interval of a bootstrap over whole groups [N].

    There is no interval where the groups do not differ: drawing them again cannot show how far others would.
    Steps of one episode are not independent, so the bootstrap draws episodes (or streams), never single steps.
    """
    values = np.asarray(values, np.float64).reshape(-1)
    groups = np.arange(len(values)) if groups is None else np.asarray(groups).reshape(-1)
    known = np.isfinite(values)
    values, groups = values[known], groups[known]
    if not len(values):
        return {"value": None, "low": None, "high": None, "count": 0}
    _, place = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(place, values), np.bincount(place).astype(np.float64)
    mean = sums.sum() / counts.sum()
    if len(sums) < 2:
        return {"value": float(mean), "low": None, "high": None, "count": len(values)}
    # How often each group is drawn, instead of which: all resamples are two matrix products.
    drawn = np.random.default_rng(seed).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), RESAMPLES)
    low, high = np.percentile((drawn @ sums) / (drawn @ counts), (2.5, 97.5)).tolist()
    low, high = (low, high) if low < high else (None, None)
    return {"value": float(mean), "low": low, "high": high, "count": len(values)}


def over_folds(values: np.ndarray) -> Numbers:
    """Mean over folds [F] with the 95 % interval of Student's t. Folds share training data, so it is somewhat too narrow."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return {"value": None, "low": None, "high": None, "count": 0}
    mean = float(values.mean())
    if len(values) < 2:
        return {"value": mean, "low": None, "high": None, "count": 1}
    half = student_factor(len(values) - 1) * float(values.std(ddof=1)) / len(values) ** 0.5
    return {"value": mean, "low": mean - half, "high": mean + half, "count": len(values)}
