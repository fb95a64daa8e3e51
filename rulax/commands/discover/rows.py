"""The rows of `metrics.jsonl` in discovery: what a meta-step measures, as means over meta-steps; and the line of progress."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rulax.records.rows import COUNT, Row, Totals, number
from rulax.text import count, duration, shown_return

SUMS = ("episodes", "episode_return")  # per family; other sums over episodes are not shown
LEFT_OUT = ("episode_length", "bad_rewards")
PER_FAMILY = ("outer_loss", "meta_gradient_norm")  # means over the agents of each family, as `outer_loss/catch`
MOST_SHOWN = 3  # families in a line of progress
META, EVALUATION = "meta", "evaluation"


def as_iteration(metrics: dict[str, Any]) -> dict[str, np.ndarray]:
    """The metrics of one meta-step as `Recorder` takes them, [1] each."""
    return {name: np.array([value]) for name, value in flatten(metrics).items()}


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
        # Summed in double precision: many episodes of large returns would lose digits in single.
        values |= {f"{name}/{family}": float(np.sum(named[name], dtype=np.float64)) for name in SUMS}
        values |= {f"{name}/{family}": finite_mean(named[name]) for name in PER_FAMILY if name in named}
    # All families are trained by the same recipe, so the first one's metrics are everybody's.
    shared = next(iter(families.values()))
    for name in shared:
        if name not in (*SUMS, *LEFT_OUT, "meta_gradient_norm"):  # the optimiser reports the norm over all families
            # A mean of means, so that every family counts the same, however many of its agents had a finite number.
            values[name] = finite_mean([finite_mean(named[name]) for named in families.values() if name in named])
    return values


def finite_mean(values: Any) -> float:
    """The mean of the finite ones; NaN if there are none."""
    array = np.asarray(values, np.float64)
    finite = array[np.isfinite(array)]
    return float(finite.mean()) if finite.size else float("nan")


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
            row[f"return/{family}"] = number(sums[f"episode_return/{family}"] / total) if total else None
        elif name == "bad_agents":
            # A count, which must add up to the total over all rows.
            row[name] = int(total)
        else:
            measured = sums[name + COUNT]
            row[name] = number(total / measured) if measured else None
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
    counts_steps: bool = True

    def facts(self) -> list[str]:
        """The numbers that matter, in the order of their importance."""
        role = "validation" if self.held_out else "training"
        shown = [f"{name} {shown_return(value)}" for name, value in list(self.returns.items())[:MOST_SHOWN]]
        more = f", {len(self.returns) - MOST_SHOWN} more" if len(self.returns) > MOST_SHOWN else ""
        facts = [f"{role} score {shown_return(self.score)}", f"return {', '.join(shown)}{more}" if shown else "return -"]
        facts += [f"meta-gradient {shown_return(self.gradient_norm)}"] + ([f"{self.bad} left out"] if self.bad else [])
        return [*facts, f"{count(self.steps_per_second)} meta-steps/s", f"{duration(self.seconds_left)} left"]
