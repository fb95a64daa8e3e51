"""Exact references for bandits with one good arm, met once or again and again: what the barcode bandit is judged by.

One of K arms, each equally likely, pays 1 with probability `high`, the others with 1 - `high`. With s_i successes and f_i failures
of arm i the odds that it is the good one are multiplied by (high / (1 - high))^(s_i - f_i), so the differences s_i - f_i are all
that matters, and as arms are exchangeable, a multiset of them is a state.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np

State = tuple[int, ...]  # successes minus failures of every arm, the largest first


def optimum(arms: int, pulls: int, high: float = 0.9) -> float:
    """Bayes-optimal expected reward of `pulls` pulls, by dynamic programming over all choices (10 arms and pulls: 3,000 states)."""

    @cache
    def value(state: State, left: int) -> float:
        if left == 0:
            return 0.0
        # Equal arms have equal values, so one of each is tried.
        return max(_expect(state, i, high, lambda after: value(after, left - 1)) for i in map(state.index, set(state)))

    return value((0,) * arms, pulls)


def greedy_by_exposure(arms: int, pulls: int, exposures: int, high: float = 0.9, unseen: int = 0) -> np.ndarray:
    """Expected reward of each of `exposures` episodes [exposures] of one bandit, for a player that remembers all of them.

    It always pulls the likeliest arm, which the dynamic programming of `optimum` finds to be the best choice wherever it can check.

    Args:
        arms: of the bandit.
        pulls: of each episode.
        exposures: how many episodes.
        high: what the good arm pays on average.
        unseen: of how many pulls at the end of each episode the outcome is not remembered; an LSTM whose input is the reward of
            the action before never sees that of the last.
    """
    chances: dict[State, float] = {(0,) * arms: 1.0}
    earned = np.zeros((exposures, pulls))
    for exposure in range(exposures):
        for pull in range(pulls):
            after: dict[State, float] = defaultdict(float)
            for state, chance in chances.items():
                mean = _mean(state, 0, high)  # the first has the largest difference
                earned[exposure, pull] += chance * mean
                for change, share in ((1, mean), (-1, 1 - mean)):
                    after[_changed(state, 0, change)] += chance * share
            chances = chances if pull >= pulls - unseen else after
    return earned.sum(1)


def _expect(state: State, arm: int, high: float, value) -> float:
    """The reward of a pull and the value of the state after it."""
    mean = _mean(state, arm, high)
    return mean * (1 + value(_changed(state, arm, 1))) + (1 - mean) * value(_changed(state, arm, -1))


def _mean(state: State, arm: int, high: float) -> float:
    """What an arm pays on average, by all that is known."""
    # Relative to the largest: powers of the differences themselves would overflow.
    weights = (high / (1 - high)) ** (np.array(state, float) - state[0])
    good = weights[arm] / weights.sum()
    return float(good * high + (1 - good) * (1 - high))


def _changed(state: State, arm: int, change: int) -> State:
    return tuple(sorted((*state[:arm], state[arm] + change, *state[arm + 1 :]), reverse=True))
