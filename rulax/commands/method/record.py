"""The record of one experiment: one JSON object, from which tables and pictures are made (fields as in docs/methods.md)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from rulax.commands.method.settings import MethodConfig
from rulax.evaluation.statistics import student_factor
from rulax.files import jsonable, load_json
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, Tested, score
from rulax.records.provenance import git_commit

CURVE_POINTS = 60
NORMAL = 1.96  # 97.5 % quantile of the normal distribution: test tasks are hundreds or thousands


class Seed(NamedTuple):
    """One finished seed."""

    seed: int
    value: float  # mean over the test tasks
    deviation: float  # over the test tasks
    tasks: int
    random: float
    reference: Reference
    baselines: dict[str, float | None]  # None: no number, for example because an agent diverged
    details: dict[str, float | None]
    meta_updates: int
    env_steps: int
    wall_s: float
    complete: bool  # False where the budget ended it
    curve: list[tuple[int, float]]

    @classmethod
    def of(
        cls, seed: int, tested: Tested, latest: Progress | None, curve: list[tuple[int, float]], seconds: float, complete: bool
    ) -> Seed:
        values = np.asarray(tested.values, np.float64)
        # One task has no deviation; NaN would spread through the interval of the whole record.
        deviation = float(values.std(ddof=1)) if values.size > 1 else 0.0
        # Thinned: a curve with a point for every chunk would make up most of the record.
        every = max(1, -(-len(curve) // CURVE_POINTS))
        return cls(
            seed=seed,
            value=float(values.mean()),
            deviation=deviation,
            tasks=tested.tasks or int(values.size),
            random=float(tested.random),
            reference=tested.reference,
            baselines=jsonable(tested.baselines),
            details=jsonable(tested.details),
            meta_updates=latest.meta_updates if latest else 0,
            env_steps=latest.env_steps if latest else 0,
            wall_s=round(seconds, 2),
            complete=complete,
            curve=[point for point in curve[::every] if math.isfinite(point[1])],
        )


def experiment_record(experiment: Experiment, config: MethodConfig, seeds: list[Seed]) -> dict[str, Any]:
    """Everything about an experiment; `value` is the mean over all seeds."""
    values = [seed.value for seed in seeds]
    value = float(np.mean(values))
    reference = seeds[0].reference._replace(value=float(np.mean([seed.reference.value for seed in seeds])))
    random = float(np.mean([seed.random for seed in seeds]))
    published = experiment.published._asdict() if experiment.published else None
    details = mean_of([seed.details for seed in seeds])
    # Missing means that the experiment sets no such condition; None that its number diverged, which must not pass.
    margin = details.get(WORST_MARGIN, 0.0)
    return {
        "id": f"{experiment.method}.{experiment.name}",
        "method": experiment.method,
        "experiment": experiment.name,
        "about": experiment.about,
        "suite": config.suite,
        "commit": git_commit(),
        "seeds": [seed.seed for seed in seeds],
        "budget_s": config.budget or None,
        "wall_s": round(sum(seed.wall_s for seed in seeds), 2),
        "env_steps": sum(seed.env_steps for seed in seeds),
        "meta_updates": sum(seed.meta_updates for seed in seeds),
        "n_test_tasks": seeds[0].tasks,
        "metric": experiment.metric,
        "higher_is_better": experiment.higher_is_better,
        "value": value,
        "ci95": interval(seeds),
        "random": random,
        "reference": reference._asdict(),
        "published": published,
        "score": score(value, random, reference.value),
        "published_score": score(published["value"], random, reference.value) if published else None,
        "goal": experiment.goal_of(config.suite),
        "pass": experiment.reaches(value, config.suite) and (config.suite == "quick" or (margin is not None and margin >= 0)),
        "baselines": mean_of([seed.baselines for seed in seeds]),
        "details": details,
        "per_seed": [seed._asdict() | {"reference": seed.reference._asdict()} for seed in seeds],
    }


def interval(seeds: list[Seed]) -> float:
    """Half the width of a 95 % interval of the mean over seeds and test tasks.

    The two sources of error are added in squares: seeds by Student's t, test tasks (the same ones for every seed) by the normal
    distribution. With a single seed only the test tasks count.
    """
    tasks = NORMAL * float(np.mean([seed.deviation for seed in seeds])) / math.sqrt(max(seeds[0].tasks, 1))
    if len(seeds) < 2:
        return tasks
    spread = student_factor(len(seeds) - 1) * float(np.std([seed.value for seed in seeds], ddof=1)) / math.sqrt(len(seeds))
    return math.hypot(tasks, spread)


def mean_of(numbers: list[dict[str, float | None]]) -> dict[str, float | None]:
    """Means over seeds, by name; None where one of them has no number."""
    every = {name: [each[name] for each in numbers if name in each] for name in numbers[0]}
    return {name: None if None in found else float(np.mean(found)) for name, found in every.items()}  # type: ignore[arg-type]


# The form of a record, as far as it is read; one of its names is a word of Python.
Record = TypedDict("Record", {"id": str, "value": float, "ci95": float, "goal": float | None, "pass": bool, "per_seed": list[Seed]})


def read_experiment(path: Path) -> dict[str, Any] | None:
    """The record of an experiment, if there is one."""
    # A broken one is not taken for missing: overwriting would silently lose the seeds that it holds.
    return load_json(path, "; remove it to run that experiment again", Record) if path.exists() else None


def seeds_of(record: dict[str, Any] | None) -> list[Seed]:
    """The finished seeds of a record."""
    rows = record["per_seed"] if record else []
    return [Seed(**{**row, "reference": Reference(**row["reference"])}) for row in rows]
