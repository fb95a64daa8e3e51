"""The rows of `metrics.jsonl` in discovery: what a meta-step measures, as means over meta-steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from rulax.files import jsonable
from rulax.records.rows import COUNT, Row, Totals, finite_mean

SUMS = ("episodes", "episode_return")  # per family; other sums over episodes are not shown
LEFT_OUT = ("episode_length", "bad_rewards")
NORMS = ("meta_gradient_norm", "meta_gradient_norm_of_mean")  # of each family; the optimiser reports those over all families
# What is shown of each family, as `outer_loss/catch`: means over its agents, under the names that say so. Rewards and values have
# the scale of their environment, so that a mean over families says little of any.
OF_ENVIRONMENTS = ("reward", "positive_rewards", "negative_rewards", "validation_reward")
OF_AGENTS = ("loss", "entropy", "gradient_norm", "update_norm")
OF_CRITICS = ("critic_loss", "critic_value", "critic_advantage")
PER_FAMILY = {name: name for name in (*OF_ENVIRONMENTS, *OF_AGENTS, *OF_CRITICS)} | {
    "outer_loss": "outer_loss",
    "policy_entropy": "policy_entropy",
    "meta_gradient_norm": "meta_gradient_mean_of_norms",
    "meta_gradient_norm_of_mean": "meta_gradient_norm_of_mean",
}
COUNTS = ("bad_agents", "restarts")  # of all families, which add up over meta-steps
META, EVALUATION = "meta", "evaluation"


def as_iteration(metrics: dict[str, Any]) -> dict[str, np.ndarray]:
    """The metrics of one meta-step as `Recorder` takes them, [1] each."""
    return {name: np.array([value]) for name, value in flatten(metrics).items()}


def flatten(metrics: dict[str, Any]) -> dict[str, float]:
    """One number per name from the metrics of one meta-step.

    Args:
        metrics: by family, [K] for its K agents or [] for all of them; and under "" those of the optimiser, which are scalars.

    Returns:
        Sums over episodes by family (`episodes/catch`), the metrics of `PER_FAMILY` also by family, everything else as a mean over
        agents and families, and the optimiser's numbers as they are. Where some agents have no finite number, the others count.
    """
    values = {name: float(value) for name, value in metrics[""].items()}
    families = {family: named for family, named in metrics.items() if family}
    for family, named in families.items():
        # Summed in double precision: many episodes of large returns would lose digits in single.
        values |= {f"{name}/{family}": float(np.sum(named[name], dtype=np.float64)) for name in SUMS}
        values |= {f"{shown}/{family}": finite_mean(named[name]) for name, shown in PER_FAMILY.items() if name in named}
    # Only agents on the host have any.
    restarts = [named["restarts"] for named in families.values() if "restarts" in named]
    if restarts:
        values["restarts"] = float(np.sum(restarts))
    # All families are trained by the same recipe, so the first one's metrics are everybody's.
    shared = next(iter(families.values()))
    for name in shared:
        if name not in (*SUMS, *LEFT_OUT, *NORMS, *COUNTS):
            # A mean of means, so that every family counts the same, however many of its agents had a finite number.
            values[name] = finite_mean([finite_mean(named[name]) for named in families.values() if name in named])
    return values


def make_row(totals: Totals, step: int, seconds: float, carried: Totals) -> Row:
    """One line: means over its meta-steps, returns per episode, and how many agents were left out in all."""
    # Part of the interface of a row maker; a family without an ended episode is shown as a gap here, not with its last value.
    del carried
    row: Row = {"kind": META, "step": step, "seconds": round(seconds, 3)}
    sums = {name: float(total[0]) for name, total in totals.items()}
    for name, total in sums.items():
        if name.endswith(COUNT) or name.startswith("episode_return/"):
            continue
        if name.startswith("episodes/"):
            family = name.removeprefix("episodes/")
            # Divided only now: a mean over meta-steps of mean returns would give few episodes the weight of many.
            row[f"return/{family}"] = jsonable(sums[f"episode_return/{family}"] / total) if total else None
        elif name in COUNTS:
            # They must add up to the total over all rows.
            row[name] = int(total)
        else:
            measured = sums[name + COUNT]
            row[name] = jsonable(total / measured) if measured else None
    return row
