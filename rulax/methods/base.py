"""What a method offers: experiments. An experiment can be started with a seed; the run that results is advanced, then tested.

The command (`commands/method/run.py`) provides the clock, the progress bar, the seeds and the record. A method's algorithm is in
`methods/<method>.py`; `methods/experiments/<method>.py` defines its `EXPERIMENTS`, and `catalogue.py` lists the method.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

Suite = Literal["quick", "full"]
# A detail with this name is the margin by which the tightest of several goals is met; the full suite fails if it is negative.
WORST_MARGIN = "worst_margin"
Kind = Literal["exact", "oracle", "planner", "baseline"]


class Published(NamedTuple):
    """A published figure."""

    value: float
    source: str
    mark: str = "V"  # V read in the paper or its authors' data, S from a survey, M from memory


class Reference(NamedTuple):
    """The value that counts as 1 on the common axis."""

    name: str
    value: float
    kind: Kind


class Progress(NamedTuple):
    """How far one seed has come."""

    fraction: float  # of its meta-updates
    meta_updates: int
    env_steps: int  # or examples drawn, summed over all tasks
    value: float  # the experiment's metric on training data; NaN while it is unknown


@dataclasses.dataclass(frozen=True)
class Tested:
    """Test results of one trained seed, on tasks that were not used in training."""

    values: np.ndarray  # [tasks] the metric on each task
    random: float  # the metric without any learning: 0 on the common axis
    reference: Reference
    baselines: dict[str, float] = dataclasses.field(default_factory=dict)  # other learners on the same tasks
    details: dict[str, float] = dataclasses.field(default_factory=dict)  # further numbers for the record
    tasks: int = 0  # number of test tasks, where `values` holds one number computed from all of them together; else 0


class SeedRun(abc.ABC):
    """One seed of one experiment: it is advanced until it is done, then tested."""

    # What says how far it has come, as attributes such as "state" or "loop.made": arrays on the device in a tree of fixed shapes,
    # arrays of numpy, or whole numbers. A seed with nothing here cannot be saved on its way, and begins again.
    kept: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def advance(self) -> Progress:
        """Train for about a second, or for one meta-update where that takes longer."""

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether all meta-updates have been made."""

    @abc.abstractmethod
    def test(self) -> Tested:
        """Test what has been learned so far: once the run is done, or earlier if its time budget is used up."""

    def story(self) -> Any:
        """What a page about this seed is made of, after the test; None if there is no such page (`commands/method/pages.py`)."""
        return None


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment of one method."""

    method: str
    name: str
    about: str  # one line
    metric: str  # what a value means
    goal: float | None  # None if the experiment has no goal
    quick_goal: float | None  # the quick suite's goal: lower, because it trains for a minute at most
    start: Callable[[Suite, int], SeedRun]  # (suite, seed)
    published: Published | None = None
    higher_is_better: bool = True
    minutes: float = 1.0  # one seed of the full suite on two cores
    unavailable: Callable[[], str | None] = lambda: None  # the reason why it cannot run here, such as a missing file; else None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # keyword arguments of `start` and `check`, with defaults
    check: Callable[..., None] = lambda **options: None  # raises where options cannot be, before anything is written

    def given(self, options: Mapping[str, Any]) -> Experiment:
        """The same with some of its options."""
        start, check = functools.partial(self.start, **options), functools.partial(self.check, **options)
        return dataclasses.replace(self, start=start, check=check)

    def goal_of(self, suite: Suite) -> float | None:
        """The goal of a suite, if it has one."""
        return self.goal if suite == "full" else self.quick_goal

    def reaches(self, value: float, suite: Suite) -> bool:
        """Whether a value reaches the suite's goal; always true without a goal."""
        goal = self.goal_of(suite)
        if goal is None:
            return True
        return bool(value >= goal if self.higher_is_better else value <= goal)


def score(value: float, random: float, reference: float) -> float:
    """A value on the common axis: 0 without learning, 1 at the reference; NaN where the two coincide."""
    gap = reference - random
    return (value - random) / gap if gap else float("nan")
