"""What a method of the family offers: experiments. What an experiment is: one seed that can be advanced, and then tested.

Whoever drives it (`commands/method/run.py`) brings the clock, the progress bar, the seeds and the record; a method brings
nothing but the science. A method's file ends in `EXPERIMENTS`, and `catalogue.py` names the file.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

Suite = Literal["quick", "full"]
WORST_MARGIN = "worst_margin"  # among details: by how much the tightest of several goals is exceeded; negative fails the full suite
Kind = Literal["exact", "oracle", "planner", "baseline"]


class Published(NamedTuple):
    """A figure that somebody printed."""

    value: float
    source: str
    mark: str = "V"  # V read in the paper or its authors' data, S from a survey, M from memory


class Reference(NamedTuple):
    """What the value is held against: 1 on the common axis."""

    name: str
    value: float
    kind: Kind


class Progress(NamedTuple):
    """How far one seed has come."""

    fraction: float  # of its meta-updates
    meta_updates: int
    env_steps: int  # or examples drawn, of all tasks together
    value: float  # the experiment's metric as training sees it; NaN while unknown


@dataclasses.dataclass(frozen=True)
class Tested:
    """What one trained seed is worth, on tasks that it has never seen."""

    values: np.ndarray  # [tasks] the metric, per task
    random: float  # what no learning at all gets: 0 on the common axis
    reference: Reference
    baselines: dict[str, float] = dataclasses.field(default_factory=dict)  # others on the same tasks
    details: dict[str, float] = dataclasses.field(default_factory=dict)  # further numbers worth printing
    tasks: int = 0  # where `values` holds one number that is made of so many tasks together


class Study(abc.ABC):
    """One seed of one experiment."""

    @abc.abstractmethod
    def advance(self) -> Progress:
        """Go on for about a second, or for one meta-update where that takes longer."""

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether all meta-updates are made."""

    @abc.abstractmethod
    def test(self) -> Tested:
        """Judge what was learned so far; may be called once the study is done, or when its time is up."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment of one method."""

    method: str
    name: str
    about: str  # one line
    metric: str  # what a value is
    goal: float | None  # None where nothing is promised
    quick_goal: float | None  # what the quick suite must reach: honest for a minute, and lower
    start: Callable[[Suite, int], Study]  # (suite, seed)
    published: Published | None = None
    higher_is_better: bool = True
    minutes: float = 1.0  # of the full suite, one seed, on two cores
    unavailable: Callable[[], str | None] = lambda: None  # why it cannot run here, such as a file that is not installed

    def goal_of(self, suite: Suite) -> float | None:
        """What a suite must reach."""
        return self.goal if suite == "full" else self.quick_goal

    def reaches(self, value: float, suite: Suite) -> bool:
        """Whether a value reaches the goal, if there is one."""
        goal = self.goal_of(suite)
        if goal is None:
            return True
        return bool(value >= goal if self.higher_is_better else value <= goal)


def score(value: float, random: float, reference: float) -> float:
    """The common axis: 0 is what no learning gets, 1 is the reference."""
    gap = reference - random
    return (value - random) / gap if gap else float("nan")
