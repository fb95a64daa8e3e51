"""How good a rule is over seeds and environments, how certain that is, and whether one rule beats another.

Scores are arrays [..., S, E]: S seeds in each of E environments, one array per rule. A statistic reduces the last two axes, so
that a bootstrap is one call on [R, S, E]. The statistics are those of Agarwal et al. (2021), "Deep reinforcement learning at the
edge of the statistical precipice"; docs/compare.md explains how to read them. NumPy and SciPy only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats

Statistic = Callable[..., np.ndarray]  # (scores [..., S, E]) -> [...]

RESAMPLES = 2000
CONFIDENCE = 0.95
FEW_SEEDS, ENOUGH_SEEDS = 3, 5  # below the first an interval means little, below the second it is too narrow
LEAST_FOR_IQM = 4  # runs in total: with fewer there is no quarter to leave out


class Interval(NamedTuple):
    """An estimate and its confidence interval over seeds; the ends are NaN where they cannot be estimated."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


# -- one rule: [..., S, E] -> [...] --------------------------------------------------------------------------------------------


def mean(scores: np.ndarray) -> np.ndarray:
    """Mean over all runs."""
    return scores.mean((-2, -1))


def median(scores: np.ndarray) -> np.ndarray:
    """Median over environments of the mean over seeds."""
    return np.median(scores.mean(-2), -1)


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Mean of the middle half of all runs: neither the luckiest nor the unluckiest quarter counts."""
    runs = np.sort(scores.reshape(*scores.shape[:-2], -1), -1)
    # Whole runs only, as in SciPy's `trim_mean`, which Agarwal et al. use.
    cut = runs.shape[-1] // 4
    return runs[..., cut : runs.shape[-1] - cut].mean(-1)


def optimality_gap(scores: np.ndarray, goal: float = 1.0) -> np.ndarray:
    """By how much runs fall short of the goal on average; a run beyond the goal does not make up for others."""
    return goal - np.minimum(scores, goal).mean((-2, -1))


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The share of runs above each threshold, [..., S, E] and [H] -> [..., H]."""
    runs = scores.reshape(*scores.shape[:-2], -1, 1)
    return (runs > thresholds).mean(-2)


# -- two rules -----------------------------------------------------------------------------------------------------------------


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The probability that a run of the first rule beats one of the second, in a random environment.

    P(X > Y) + P(X = Y) / 2 over all pairs of seeds, averaged over environments: [..., S, E] and [..., Z, E] -> [...].
    """
    mine, theirs = scores[..., :, None, :], others[..., None, :, :]
    return ((mine > theirs) + 0.5 * (mine == theirs)).mean((-3, -2, -1))


class Paired(NamedTuple):
    """A paired comparison: how much more the first rule earns, and how likely so large a difference is by chance alone."""

    difference: float  # mean over pairs
    pairs: int
    p_rank: float  # Wilcoxon's signed-rank test, exact
    p_mean: float  # sign-flip (permutation) test of the mean


def paired_test(scores: np.ndarray, others: np.ndarray, flips: int = 20_000, seed: int = 0) -> Paired:
    """Compare two rules on pairs of runs with the same seed and environment.

    If the rules were equally good, every difference would be as likely as its opposite. Both tests are two-sided.

    Args:
        scores: of the first rule, [S, E]; NaN for a missing run.
        others: of the second rule, [S, E].
        flips: size of the random sample of sign flips; up to 14 pairs all 2^n are counted.
        seed: of that sample.
    """
    differences = np.ravel(scores - others)
    differences = differences[np.isfinite(differences)]
    if not len(differences):
        return Paired(float("nan"), 0, float("nan"), float("nan"))
    p_mean = flip_test(differences, flips, seed)
    return Paired(float(differences.mean()), len(differences), signed_rank_test(differences), p_mean)


def flip_test(differences: np.ndarray, flips: int, seed: int) -> float:
    """The share of all assignments of signs whose sum is at least as far from zero as the observed one; differences [N]."""
    number = len(differences)
    if number <= 14:
        signs = 1 - 2 * (np.arange(2**number)[:, None] >> np.arange(number) & 1)
        # The enumeration contains the observed assignment already.
        extra = 0
    else:
        signs = np.random.default_rng(seed).choice((-1, 1), (flips, number))
        extra = 1  # the observed assignment is one of the possible ones: p is never 0
    observed = abs(differences.sum())
    # With a tolerance, because equal sums may round differently and have to count.
    as_far = np.count_nonzero(np.abs(signs @ differences) >= observed * (1 - 1e-12))
    return float((as_far + extra) / (len(signs) + extra))


def signed_rank_test(differences: np.ndarray) -> float:
    """The p-value of Wilcoxon's test of differences [N], zeros left out.

    The distribution is exact with ties as well, which SciPy's exact method does not support.
    """
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    # Ties share the mean of their ranks, which may end in a half: doubled, all ranks are integers.
    doubled = np.rint(2 * stats.rankdata(np.abs(differences))).astype(int)
    total = int(doubled.sum())
    chances = np.zeros(total + 1)
    chances[0] = 1.0
    for rank in doubled:  # the distribution of the sum of positive ranks, one fair coin per rank
        shifted = np.concatenate([np.zeros(rank), chances[: total + 1 - rank]])
        chances = (chances + shifted) / 2
    plus = int(doubled[differences > 0].sum())
    return float(min(1.0, 2 * min(chances[: plus + 1].sum(), chances[plus:].sum())))


# -- uncertainty ---------------------------------------------------------------------------------------------------------------


def student_factor(degrees: int, confidence: float = CONFIDENCE) -> float:
    """By how many standard errors a two-sided interval reaches to either side of a mean (Student's t).

    Args:
        degrees: degrees of freedom, the number of values minus one; at least 1.
        confidence: the share of such intervals that contain the true mean.
    """
    return float(stats.t.ppf((1 + confidence) / 2, degrees))


def resample(scores: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Draw seeds with replacement, independently in every environment (the strata), [S, E] -> [R, S, E]."""
    seeds, environments = scores.shape
    drawn = generator.integers(0, seeds, (resamples, seeds, environments))
    return np.take_along_axis(scores[None], drawn, 1)


def interval(
    statistic: Statistic,
    *scores: np.ndarray,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Interval:
    """A statistic with its percentile interval by the stratified bootstrap.

    Args:
        statistic: reduces the last two axes of one or several arrays of scores.
        scores: of one rule [S, E], or of several that the statistic compares.
        resamples: number of bootstrap samples.
        confidence: of the interval.
        seed: of the bootstrap.

    Returns:
        The statistic and its interval, which is NaN with a single seed.
    """
    value = np.asarray(statistic(*scores), float)
    if min(each.shape[0] for each in scores) < 2:
        return Interval(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    generator = np.random.default_rng(seed)
    drawn = statistic(*(resample(each, resamples, generator) for each in scores))
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return Interval(value, low, high)


def too_few(seeds: int, environments: int) -> list[str]:
    """Warnings about the number of runs; none if there are enough."""
    warnings = []
    if seeds < 2:
        warnings.append("with one seed there are no intervals; use at least 5 (--seeds 5)")
    elif seeds < FEW_SEEDS:
        warnings.append(f"{seeds} seeds are too few to tell rules apart: the intervals mean little; use at least 5 (--seeds 5)")
    elif seeds < ENOUGH_SEEDS:
        warnings.append(
            f"with {seeds} seeds the intervals are too narrow: they contain the true value clearly less often than 95 times in 100"
        )
    if seeds * environments < LEAST_FOR_IQM:
        runs = f"{seeds * environments} run{'s' if seeds * environments > 1 else ''}"
        warnings.append(f"with {runs} in total no quarter can be left out: the interquartile mean is the plain mean")
    elif seeds < LEAST_FOR_IQM:
        warnings.append(
            f"with {seeds} seeds no quarter can be left out in a single environment: its interquartile mean is the plain mean"
        )
    return warnings


# -- from returns to scores ----------------------------------------------------------------------------------------------------


def normalise(returns: np.ndarray, random: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Scores that are 0 for a random agent and 1 for the reference, per environment: [..., E] with [E] and [E]."""
    span = np.asarray(reference, float) - np.asarray(random, float)
    if not (span > 0).all():
        raise ValueError("scores cannot be normalised where the reference is no better than random")
    return (returns - random) / span


def area_under_curve(steps: np.ndarray, returns: np.ndarray) -> np.ndarray:
    """Mean height of each curve over the steps it covers (trapezoidal rule), [P] and [P, K] -> [K]; NaN points are skipped."""
    return np.array([_area(steps[known], curve[known]) for curve, known in zip(returns.T, np.isfinite(returns).T, strict=True)])


def _area(steps: np.ndarray, curve: np.ndarray) -> float:
    if len(curve) < 2:
        return float(curve[0]) if len(curve) else float("nan")
    return float(np.trapezoid(curve, steps) / (steps[-1] - steps[0]))


def steps_to_threshold(steps: np.ndarray, returns: np.ndarray, threshold: float) -> np.ndarray:
    """The step at which each curve first reaches the threshold, [P] and [P, K] -> [K]; infinite if it never does."""
    reached = np.nan_to_num(returns, nan=-np.inf) >= threshold
    # `argmax` finds the first True, but also gives 0 where there is none.
    return np.where(reached.any(0), np.asarray(steps, float)[reached.argmax(0)], np.inf)
