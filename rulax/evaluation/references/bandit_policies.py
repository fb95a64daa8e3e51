"""Classical policies for Bernoulli bandits with uniform priors, played on many tasks at once.

A policy gives each arm a preference; `play` pulls an arm with the greatest one, at random among equals, so that the order of the
arms never matters. Posterior of an arm with s successes and f failures: Beta(s + 1, f + 1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

# (successes [N, K], failures [N, K], pulls left including this one, random numbers) -> preference for each arm [N, K]
Policy = Callable[[np.ndarray, np.ndarray, int, np.random.Generator], np.ndarray]

LEVELS = 256  # payments that calibrate Gittins' index: with 100 pulls within 1e-3 of the index everywhere, 5e-5 on average


def play(policy: Policy, means: np.ndarray, pulls: int, seed: int) -> np.ndarray:
    """Expected total reward of a policy on each task, means [N, K] -> [N].

    The mean of the pulled arm is credited, which has the same expectation as the outcome and less variance; the policy itself sees
    outcomes. With independent uniform means, E[max] = K / (K + 1): measuring the regret `pulls * means.max(1) - play(...)` and
    subtracting its mean from pulls * K / (K + 1) is several times more precise still.
    """
    means = np.asarray(means, float)
    if means.ndim != 2 or not means.size or not ((means >= 0) & (means <= 1)).all():
        raise ValueError(f"means must be probabilities [tasks, arms], not an array of shape {means.shape} or numbers beyond [0, 1]")
    if pulls < 1:
        raise ValueError(f"pulls must be at least 1, not {pulls}")
    rng = np.random.default_rng(seed)
    tasks = np.arange(len(means))
    counts = np.zeros((2, *means.shape), np.int64)  # failures, successes
    total = np.zeros(len(means))
    for made in range(pulls):
        liked = policy(counts[1], counts[0], pulls - made, rng)
        equals = liked == liked.max(1, keepdims=True)
        # Ties are broken by a random number per arm, which needs no loop over tasks.
        arm = np.where(equals, rng.random(means.shape, np.float32), -1.0).argmax(1)
        credited = means[tasks, arm]
        total += credited
        counts[(rng.random(len(means)) < credited).astype(int), tasks, arm] += 1
    return total


def random(wins: np.ndarray, losses: np.ndarray, left: int, rng: np.random.Generator) -> np.ndarray:
    """Any arm."""
    # All equal, so that `play` breaks the tie at random.
    return np.zeros(wins.shape)


def greedy(wins: np.ndarray, losses: np.ndarray, left: int, rng: np.random.Generator) -> np.ndarray:
    """The greatest posterior mean, (s + 1) / (s + f + 2)."""
    return (wins + 1) / (wins + losses + 2)


def thompson(wins: np.ndarray, losses: np.ndarray, left: int, rng: np.random.Generator) -> np.ndarray:
    """The greatest of one draw from each posterior: an arm is pulled as often as it is believed to be the best."""
    return rng.beta(wins + 1, losses + 1)


def epsilon_greedy(epsilon: float) -> Policy:
    """Any arm with probability epsilon, else the greedy one."""
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must lie between 0 and 1, not {epsilon}")

    def policy(wins: np.ndarray, losses: np.ndarray, left: int, rng: np.random.Generator) -> np.ndarray:
        explore = rng.random((len(wins), 1)) < epsilon
        return np.where(explore, 0.0, greedy(wins, losses, left, rng))

    return policy


def ucb1(c: float) -> Policy:
    """Mean plus bonus: (s + 1) / T + c sqrt(2 ln t / T), T = s + f + 2 (from one success and one failure), t = 1, 2, ... pulls."""
    if c < 0:
        raise ValueError(f"c must not be negative, and is {c}")

    def policy(wins: np.ndarray, losses: np.ndarray, left: int, rng: np.random.Generator) -> np.ndarray:
        count = wins + losses + 2
        now = (wins + losses).sum(1, keepdims=True) + 1
        return (wins + 1) / count + c * np.sqrt(2 * np.log(now) / count)

    return policy


def gittins(pulls: int, levels: int = LEVELS) -> Policy:
    """The greatest finite-horizon Gittins index. The indices are computed once, for tasks of at most `pulls` pulls."""
    tables = gittins_indices(pulls, levels)

    def policy(wins: np.ndarray, losses: np.ndarray, left: int, rng: np.random.Generator) -> np.ndarray:
        if left + int((wins + losses).sum(1).max(initial=0)) > pulls:
            raise ValueError(f"these indices are for {pulls} pulls: make gittins(n) for as many as are played")
        return tables[left - 1][wins, losses]

    return policy


@lru_cache(maxsize=4)
def gittins_indices(pulls: int, levels: int = LEVELS) -> tuple[np.ndarray, ...]:
    """Indices [s, f] for 1, 2, ..., `pulls` pulls left, each table as large as the successes and failures that can precede it.

    The index of an arm with h pulls left is the payment per pull at which one may as well stop now,
        G_h(s, f) = max over stopping times 1 <= tau <= h of  E[sum of the rewards until tau] / E[tau].
    For a given payment x the value of going on is C_h = m - x + m C+_{h-1}(s + 1, f) + (1 - m) C+_{h-1}(s, f + 1), C+ = max(C, 0),
    which falls in x and is zero at the index. It is computed on a grid of payments, and its zero found on the chord of one cell.
    With one pull left it is a straight line, so the index is exactly the mean. Time grows with pulls^3 * levels (100 pulls: about
    a second), memory with pulls^2 * levels + pulls^3 / 3 (100 pulls: about 70 MB, 500: about 2 GB).
    """
    if pulls < 1 or levels < 2:
        raise ValueError(f"there must be at least 1 pull and 2 levels, not {pulls} and {levels}")
    payment = (1 - np.cos(np.linspace(0.0, np.pi, levels))) / 2  # denser where indices crowd: near 0 and 1
    ahead = np.zeros((pulls + 1, pulls + 1, levels))
    tables = []
    for left in range(1, pulls + 1):
        size = pulls - left + 1  # counts 0 .. pulls - left; those whose sum is larger cannot occur, and nothing reads them
        s, f = np.ogrid[:size, :size]
        mean = ((s + 1) / (s + f + 2))[..., None]
        value = mean * ahead[1:, :-1]
        value += (1 - mean) * ahead[:-1, 1:]
        value += mean - payment
        above = np.clip((value > 0).sum(-1), 1, levels - 1)[..., None]  # the cell that holds the zero ends here
        start, end = (np.take_along_axis(value, above + i, -1) for i in (-1, 0))
        tables.append((payment[above - 1] + start / (start - end) * (payment[above] - payment[above - 1]))[..., 0])
        # In place: these arrays take up most of the memory.
        ahead = np.maximum(value, 0.0, out=value)
    return tuple(tables)
