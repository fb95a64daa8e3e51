"""What no learner can beat: exact Bayes-optimal values of the small tasks on which recurrent meta-learners are judged.

Every number here is an expectation over tasks drawn from the prior, found by dynamic programming or in closed form, so it has no
sampling error. A learner measured above one of them was lucky with its test tasks, or is given information it should not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

Arms = tuple[tuple[int, int], ...]  # (successes, failures) of the arms pulled so far, sorted


def bernoulli_bandit(arms: int, pulls: int) -> float:
    """Bayes-optimal expected total reward of a bandit whose means are independently uniform on [0, 1].

    With m_i = (s_i + 1) / (s_i + f_i + 2), the posterior mean of an arm with s_i successes and f_i failures,
        V_t = max_i  m_i (1 + V_{t-1}(s_i + 1)) + (1 - m_i) V_{t-1}(f_i + 1),     V_0 = 0.
    Arms are exchangeable, so a state is a multiset, and only arms that were pulled have to be remembered: more arms than pulls
    change nothing. States grow fast with pulls (10 arms and pulls: 4 thousand, 16: 160 thousand, 2 s); for two arms there is
    `two_armed_bandit`.
    """
    _check(arms=arms, pulls=pulls)

    @cache
    def value(pulled: Arms) -> float:
        left = pulls - sum(wins + losses for wins, losses in pulled)
        if left == 0:
            return 0.0
        # Equal arms have equal values, so only the first of them is tried.
        choices = [(pulled[:i] + pulled[i + 1 :], each) for i, each in enumerate(pulled) if pulled.index(each) == i]
        if len(pulled) < arms:
            choices.append((pulled, (0, 0)))
        best = 0.0
        for others, (wins, losses) in choices:
            mean = (wins + 1) / (wins + losses + 2)
            won = value(tuple(sorted((*others, (wins + 1, losses)))))
            lost = value(tuple(sorted((*others, (wins, losses + 1)))))
            best = max(best, mean * (1 + won) + (1 - mean) * lost)
        return best

    return value(())


def two_armed_bandit(pulls: int) -> float:
    """The value of `bernoulli_bandit(2, pulls)` for hundreds of pulls: the same recursion, one array per number of pulls made.

    V_t[n, s, u] is the value after t pulls, n of the first arm with s successes and t - n of the second with u. Entries with s > n
    or u > t - n are not states; clipped means keep them finite, and no state refers to them.
    """
    _check(pulls=pulls)
    value = np.zeros((pulls + 1,) * 3)
    for made in reversed(range(pulls)):
        n, s, u = np.ogrid[: made + 1, : made + 1, : made + 1]
        first, second = np.minimum((s + 1) / (n + 2), 1.0), np.minimum((u + 1) / (made - n + 2), 1.0)
        # `value` is for one more pull made and one entry longer along each axis, so a slice shifts it by one outcome.
        try_first = first * (1 + value[1:, 1:, :-1]) + (1 - first) * value[1:, :-1, :-1]
        try_second = second * (1 + value[:-1, :-1, 1:]) + (1 - second) * value[:-1, :-1, :-1]
        value = np.maximum(try_first, try_second)
    return float(value[0, 0, 0])


def two_armed_regret(pulls: int) -> float:
    """Bayes-optimal regret of two independent uniform arms: pulls * E[max(p1, p2)] - V, with E[max] = 2/3."""
    return pulls * 2 / 3 - two_armed_bandit(pulls)


def dependent_arms_regret(pulls: int, means: Sequence[float] | None = None) -> float:
    """Bayes-optimal regret of two arms with p2 = 1 - p1, where p1 is uniform on [0, 1], or on the set `means` if one is given.

    A success of one arm is as informative as a failure of the other, so what is known after t pulls does not depend on which arms
    were pulled, and the myopic choice is optimal:
        regret = sum_t  E[max(p1, 1 - p1)] - E[max(m_t, 1 - m_t)],     m_t = E[p1 | s of t outcomes favoured arm 1].
    Uniform p1: s is uniform on 0..t and m_t = (s + 1) / (t + 2). Finite sets: Bayes' rule.
    """
    _check(pulls=pulls)
    if means is None:
        best = 3 / 4
        got = [np.mean(_larger((np.arange(made + 1) + 1) / (made + 2))) for made in range(pulls)]
    else:
        p = np.asarray(means, float)
        if p.ndim != 1 or p.size == 0 or (p < 0).any() or (p > 1).any():
            raise ValueError(f"means must be probabilities, at least one of them, not {means}")
        best = _larger(p).mean()
        got = []
        joint = np.full((1, p.size), 1 / p.size)  # the probability of s and a mean, [t + 1, means]
        for _ in range(pulls):
            chance, first = joint.sum(1), joint @ p  # the probability of s, and times it the mean of arm 1
            got.append(np.maximum(first, chance - first).sum())
            joint = np.pad(joint * (1 - p), ((0, 1), (0, 0))) + np.pad(joint * p, ((1, 0), (0, 0)))
    return float(pulls * best - np.sum(got))


def informative_arm(steps: int = 5, arms: int = 10, high: float = 5.0, low: float = 1.0) -> float:
    """Optimum of the task with one arm that only informs: one of `arms` pays `high`, the rest `low`, a further one target / arms.

    The target is uniform on 1..arms. In a state (candidates C, n steps left) one may
        ask:  mean(C) / arms + (n - 1) high          try i in C:  n high / |C| + (1 - 1 / |C|) (low + V(C - i, n - 1))
    and with one candidate left the target is known. Candidates are a bit mask, so no order of trying is assumed. Pulling an arm
    that is known to be poor reveals nothing and pays no more than a candidate, so it is left out.
    """
    _check(steps=steps, arms=arms)

    @cache
    def value(candidates: int, left: int) -> float:
        members = [i for i in range(arms) if candidates >> i & 1]
        if left == 0 or len(members) == 1:
            return left * high
        share = 1 / len(members)
        ask = sum(i + 1 for i in members) * share / arms + (left - 1) * high
        tries = (share * left * high + (1 - share) * (low + value(candidates & ~(1 << i), left - 1)) for i in members)
        return max(ask, *tries)

    return value((1 << arms) - 1, steps)


def two_step_ceiling(common: float = 0.75, high: float = 0.9) -> float:
    """Reward per trial in the two-step task of an agent that knows the good state: common * high + (1 - common) * (1 - high)."""
    if not (0.5 <= common <= 1 and 0.5 <= high <= 1):
        raise ValueError(f"common and high must lie between 0.5 and 1, not {common} and {high}")
    return common * high + (1 - common) * (1 - high)


def two_step(trials: int, common: float = 0.75, high: float = 0.9) -> float:
    """Bayes-optimal reward per trial in the two-step task.

    An action leads to its own state with probability `common`, else to the other one. One of the two states, each equally often and
    the same throughout, pays 1 with probability `high`, the other with probability 1 - `high`. There are no reversals.

    Whichever state is reached, its outcome favours one hypothesis with odds high : 1 - high, so again what is known does not
    depend on the actions. With q_t the probability of the likelier hypothesis, trial t pays
        reach * high + (1 - reach) (1 - high),   reach = common * q_t + (1 - common) (1 - q_t),
    so the shortfall is (2 common - 1) of that of dependent arms with means {high, 1 - high}.
    """
    regret = (2 * common - 1) * dependent_arms_regret(trials, (high, 1 - high))
    return two_step_ceiling(common, high) - regret / trials


def _larger(p: np.ndarray) -> np.ndarray:
    return np.maximum(p, 1 - p)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, not {count}")
