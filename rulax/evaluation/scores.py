"""What evaluations of some agents came to: mean, interval over episodes, median and extremes, as numbers and as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rulax.evaluation import statistics
from rulax.evaluation.episodes import Episodes
from rulax.evaluation.skill_words import SKILL_COLUMNS, SKILL_NOTE
from rulax.evaluation.skills import Skills
from rulax.files import jsonable
from rulax.text import shown_return

Way = Literal["greedy", "sampled"]
COLUMNS = ("agent", "actions", "mean", "95 % interval", "median", "lowest", "highest", "episodes", "length")


class ConfidenceInterval(NamedTuple):
    """A confidence interval of 95 %; both ends are None where there is none: one value, or all the same."""

    low: float | None
    high: float | None


@dataclasses.dataclass(frozen=True)
class Score:
    """The episodes of one agent, by greedy or by drawn actions."""

    seed: int  # which of a run's agents
    way: Way
    episodes: Episodes

    @property
    def returns(self) -> np.ndarray:
        """Returns of the episodes that ended, [N] or fewer."""
        return self.episodes.returns[np.isfinite(self.episodes.returns)]

    @property
    def unended(self) -> int:
        """How many episodes did not end in time."""
        return len(self.episodes.returns) - len(self.returns)

    @property
    def mean(self) -> float | None:
        return float(self.returns.mean()) if len(self.returns) else None

    @property
    def length(self) -> float | None:
        """Mean length of the episodes that ended."""
        ended = np.isfinite(self.episodes.returns)
        return float(self.episodes.lengths[ended].mean()) if ended.any() else None

    @property
    def interval(self) -> ConfidenceInterval:
        """Of the mean, by the bootstrap over episodes."""
        # A bootstrap of equal numbers gives an interval of no width, which would claim a certainty that nobody has.
        if len(set(self.returns.tolist())) < 2:
            return ConfidenceInterval(None, None)
        found = statistics.interval(statistics.mean, self.returns[:, None])
        return ConfidenceInterval(float(found.low), float(found.high))

    def as_dict(self) -> dict[str, Any]:
        """All numbers, as JSON has them."""
        returns = self.returns
        return jsonable(
            {
                "agent": self.seed,
                "actions": self.way,
                "mean": self.mean,
                "interval": list(self.interval),
                "median": float(np.median(returns)) if len(returns) else None,
                "lowest": returns.min() if len(returns) else None,
                "highest": returns.max() if len(returns) else None,
                "length": self.length,
                "returns": self.episodes.returns,
                "lengths": self.episodes.lengths,
            }
        )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Agents of one run or file in separate episodes: `evaluation.mean`, `print(evaluation)`, `evaluation.scores[0].returns`."""

    title: str
    scores: Sequence[Score]
    levels: str = ""  # a sentence, where the levels are others than in training
    skills: Sequence[Skills] = ()  # of each agent, where agents have skills

    @property
    def mean(self) -> float | None:
        """Mean return over the agents, by greedy actions where these were played."""
        return self.mean_of(self.ways[0])

    @property
    def ways(self) -> list[Way]:
        """Greedy, sampled, or both."""
        return list(dict.fromkeys(score.way for score in self.scores))

    def mean_of(self, way: Way) -> float | None:
        """Mean over the agents of their mean returns."""
        means = [score.mean for score in self.scores if score.way == way and score.mean is not None]
        return float(np.mean(means)) if means else None

    def interval_of(self, way: Way) -> ConfidenceInterval:
        """Of that mean, over agents (Student's t); none for two agents, where it would be of any width."""
        means = [score.mean for score in self.scores if score.way == way and score.mean is not None]
        if len(means) < statistics.FEW_SEEDS or len(set(means)) < 2:
            return ConfidenceInterval(None, None)
        half = statistics.student_factor(len(means) - 1) * np.std(means, ddof=1) / np.sqrt(len(means))
        return ConfidenceInterval(float(np.mean(means) - half), float(np.mean(means) + half))

    def rows(self) -> list[list[str]]:
        """The table below `COLUMNS`."""
        found = []
        for way in self.ways:
            scores = [score for score in self.scores if score.way == way]
            for score in scores:
                found.append(line(str(score.seed), way, score.mean, score.interval, score.returns, score.length))
            if len(scores) > 1:
                every = np.concatenate([score.returns for score in scores])
                lengths = [score.length for score in scores if score.length is not None]
                length = float(np.mean(lengths)) if lengths else None
                found.append(line("mean", way, self.mean_of(way), self.interval_of(way), every, length))
        return found

    def notes(self) -> list[str]:
        """What a reader must know."""
        several = len({score.seed for score in self.scores}) > 1
        over = "over the episodes of an agent; in the rows `mean` over agents" if several else "over episodes"
        lost = sum(score.unended for score in self.scores)
        found = [f"returns are undiscounted sums of rewards in separate evaluation episodes; interval {over}"]
        if "sampled" in self.ways:
            found.append("greedy: the most likely action at every step; sampled: actions drawn from the policy, as in training")
        if lost:
            found.append(f"warning: {lost} episodes did not end in time and are left out, so the returns may be biased")
        return [*found, *([self.levels] if self.levels else []), *([SKILL_NOTE] if self.skills else [])]

    def skill_rows(self) -> list[list[str]]:
        """The table below `SKILL_COLUMNS`; empty where agents have no skills."""
        return [skills.row(str(number)) for number, skills in enumerate(self.skills)]

    def as_dict(self) -> dict[str, Any]:
        """All numbers, as JSON has them."""
        found = {"title": self.title, "scores": [score.as_dict() for score in self.scores], "notes": self.notes()}
        return found | ({"skills": [skills.as_dict() for skills in self.skills]} if self.skills else {})

    def __str__(self) -> str:
        lines = in_columns([COLUMNS, *self.rows()])
        skills = ["", *in_columns([SKILL_COLUMNS, *self.skill_rows()])] if self.skills else []
        return "\n".join([self.title, *lines, *skills, *self.notes()])


def in_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of text, with the columns below each other."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def line(
    agent: str, way: Way, mean: float | None, interval: ConfidenceInterval, returns: np.ndarray, length: float | None
) -> list[str]:
    """One row of the table."""
    low, high = interval
    between = f"[{shown_return(low)}, {shown_return(high)}]" if low is not None else "–"
    extremes = [np.median(returns), returns.min(), returns.max()] if len(returns) else [None] * 3
    numbers = [shown_return(None if each is None else float(each)) for each in extremes]
    return [agent, way, shown_return(mean), between, *numbers, str(len(returns)), shown_return(length)]
