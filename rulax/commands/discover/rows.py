"""The rows of `metrics.jsonl` in discovery: means over meta-steps, and evaluations. What is unfinished can be saved."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rulax.records.rows import Row, RunLog, number
from rulax.text import count, duration, shown_return

SUMS = ("episodes", "episode_return")  # per family; other sums over episodes are not shown
LEFT_OUT = ("episode_length", "bad_rewards")
PER_FAMILY = ("outer_loss", "meta_gradient_norm")  # means over the agents of each family, as `outer_loss/catch`
COUNT = "#"
MOST_SHOWN = 3  # families in a line of progress
META, EVALUATION = "meta", "evaluation"


class DiscoveryLog(RunLog):
    """The same files as in training."""

    group = "discover"


class Gatherer:
    """Gathers meta-steps into rows of `window` meta-steps."""

    def __init__(self, window: int, pending: dict[str, np.ndarray] | None = None):
        self.window = window
        self.totals = {name: float(value) for name, value in (pending or {}).items()}
        self.count = int(self.totals.pop("meta-steps", 0))

    def add(self, metrics: dict[str, Any], step: int, seconds: float, last: bool) -> list[Row]:
        """The metrics of one meta-step; returns the row that it completed, if it did."""
        for name, value in flatten(metrics).items():
            if np.isfinite(value):
                self.totals[name] = self.totals.get(name, 0.0) + value
                self.totals[name + COUNT] = self.totals.get(name + COUNT, 0.0) + 1
        self.count += 1
        if self.count < self.window and not last:
            return []
        row = make_row(self.totals, step, seconds)
        self.totals, self.count = {}, 0
        return [row]

    def pending(self) -> dict[str, np.ndarray]:
        """The unfinished row, for a checkpoint."""
        if not self.count:
            return {}
        return {name: np.asarray(value, np.float64) for name, value in self.totals.items()} | {"meta-steps": np.asarray(self.count)}


def flatten(metrics: dict[str, Any]) -> dict[str, float]:
    """One number per name from the metrics of one meta-step.

    Args:
        metrics: by family, [A] each, and under "" those of the optimiser, which are scalars.

    Returns:
        Sums over episodes by family (`episodes/catch`), the metrics of `PER_FAMILY` also by family, everything else as a mean over
        agents and families, and the optimiser's numbers as they are. Where some agents have no finite number, the others count.
    """
    values = {name: float(value) for name, value in metrics[""].items()}
    families = {family: named for family, named in metrics.items() if family}
    for family, named in families.items():
        values |= {f"{name}/{family}": float(np.sum(named[name], dtype=np.float64)) for name in SUMS}
        values |= {f"{name}/{family}": finite_mean(named[name]) for name in PER_FAMILY if name in named}
    shared = next(iter(families.values()))
    for name in shared:
        if name not in (*SUMS, *LEFT_OUT, "meta_gradient_norm"):  # the optimiser reports the norm over all families
            values[name] = finite_mean([finite_mean(named[name]) for named in families.values() if name in named])
    return values


def finite_mean(values: Any) -> float:
    """The mean of the finite ones; NaN if there are none."""
    array = np.asarray(values, np.float64)
    finite = array[np.isfinite(array)]
    return float(finite.mean()) if finite.size else float("nan")


def make_row(totals: dict[str, float], step: int, seconds: float) -> Row:
    """One line: means over its meta-steps, returns per episode, and how many agents were left out in all."""
    row: Row = {"kind": META, "step": step, "seconds": round(seconds, 3)}
    for name, total in totals.items():
        if name.endswith(COUNT) or name.startswith("episode_return/"):
            continue
        if name.startswith("episodes/"):
            family = name.removeprefix("episodes/")
            row[f"return/{family}"] = number(totals[f"episode_return/{family}"] / total) if total else None
        elif name == "bad_agents":
            row[name] = int(total)
        else:
            row[name] = number(total / totals[name + COUNT])
    return row


class DiscoveryStatus(NamedTuple):
    """How far discovery has come."""

    step: int
    total: int
    steps_per_second: float
    seconds_left: float | None
    score: float | None  # of the last evaluation
    held_out: bool  # whether that score is of families held out
    returns: dict[str, float | None]
    gradient_norm: float | None
    bad: int

    def facts(self) -> list[str]:
        """The numbers that matter, in the order of their importance."""
        role = "validation" if self.held_out else "training"
        shown = [f"{name} {shown_return(value)}" for name, value in list(self.returns.items())[:MOST_SHOWN]]
        more = f", {len(self.returns) - MOST_SHOWN} more" if len(self.returns) > MOST_SHOWN else ""
        facts = [f"{role} score {shown_return(self.score)}", f"return {', '.join(shown)}{more}" if shown else "return -"]
        facts += [f"meta-gradient {shown_return(self.gradient_norm)}"] + ([f"{self.bad} left out"] if self.bad else [])
        return [*facts, f"{count(self.steps_per_second)} meta-steps/s", f"{duration(self.seconds_left)} left"]
