"""Analysis 2: what predictions tell about the future, by ridge-regression probes cross-validated over whole episodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rulax.evaluation.explain.intervals import over_folds

FOLDS = 5
COMPONENTS = 96  # largest number of principal components that a probe reads
RANDOM_FEATURES = 64  # random ReLU features beside them, so that the few numbers of a policy are not only read linearly
PENALTIES = 10.0 ** np.arange(-5, 3)  # of ridge regression, times the number of rows; chosen on episodes held out of fitting
FEWEST = 200  # pairs of a state and its future below which nothing is reported


class Fold(NamedTuple):
    """Row numbers of one fold; each episode is in one part only."""

    kept: np.ndarray  # for fitting with each penalty
    held: np.ndarray  # for choosing one
    test: np.ndarray


def future(values: np.ndarray, episode: np.ndarray, steps: int) -> np.ndarray:
    """The values [L, B] of `steps` later in the same `episode` [L, B]; NaN where the episode has ended by then."""
    found = np.full(values.shape, np.nan)
    length = len(values) - steps
    if length > 0:
        same = episode[:length] == episode[steps:]
        found[:length] = np.where(same, values[steps:], np.nan)
    return found


def probe(features: dict[str, np.ndarray], targets: np.ndarray, episode: np.ndarray, seed: int = 0) -> dict[str, list[Any]]:
    """The share of variance, R^2, of each target that a probe explains from each source of features.

    R^2 is taken over episodes that the probe was not fitted on: 0 is no better than the mean, and it can be negative.

    Args:
        features: by name of the source, [N, D].
        targets: [N, K]; NaN where a target does not exist.
        episode: number of each row's episode, [N].
        seed: of the split into folds.

    Returns:
        By name of the source, K numbers with intervals over the folds; None for a target with too few pairs or hardly any variance.
    """
    folds = split(episode, seed)
    return {name: probe_one(values, targets, folds, seed) for name, values in features.items()}


def split(episode: np.ndarray, seed: int) -> list[Fold]:
    """Episodes dealt out at random; each fold tests on one part, and chooses the penalty on the next."""
    names, place = np.unique(episode, return_inverse=True)
    part = (np.random.default_rng(seed).permutation(len(names)) % FOLDS)[place]
    folds = []
    for fold in range(FOLDS):
        test, held = part == fold, part == (fold + 1) % FOLDS
        folds.append(Fold(*(np.flatnonzero(rows) for rows in (~test & ~held, held, test))))
    return folds


def probe_one(values: np.ndarray, targets: np.ndarray, folds: list[Fold], seed: int) -> list[Any]:
    """All targets [N, K] from one source [N, D]. Targets that are known for the same rows are fitted together."""
    scores = np.full((len(folds), targets.shape[1]), np.nan)
    patterns, pattern = np.unique(np.isfinite(targets), axis=1, return_inverse=True)
    for index, fold in enumerate(folds):
        inputs = probe_features(values, fold.kept, seed)
        for number in range(patterns.shape[1]):
            columns = np.flatnonzero(pattern.reshape(-1) == number)
            scores[index, columns] = score(inputs, targets[:, columns], patterns[:, number], fold)
    return [over_folds(column) if np.isfinite(column).sum() > 1 else None for column in scores.T]


def probe_features(values: np.ndarray, fit: np.ndarray, seed: int) -> np.ndarray:
    """Inputs of a probe [N, P]: standardised principal components (of the rows for fitting), and random ReLU features of them."""
    values = np.asarray(values, np.float64)
    # Statistics of the rows for fitting only, so that nothing of the test episodes leaks into the features.
    centred = values - values[fit].mean(0)
    spread = centred[fit].std(0)
    centred = centred / np.where(spread > 1e-12, spread, 1)
    rng = np.random.default_rng(seed)
    if values.shape[1] > COMPONENTS:
        centred = centred @ principal(centred[fit], rng)
        centred = centred / (np.sqrt(np.mean(centred[fit] ** 2)) or 1)  # one scale for all, so that minor components stay small
    directions = rng.normal(size=(centred.shape[1], RANDOM_FEATURES))
    projected = centred @ directions
    projected = projected / (projected[fit].std(0) + 1e-12)
    return np.concatenate([centred, np.maximum(projected + rng.normal(size=RANDOM_FEATURES), 0), np.ones((len(values), 1))], 1)


def principal(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An approximate basis [D, COMPONENTS] of the leading principal components of rows [N, D], by power iteration.

    It takes a tenth of the time of a full decomposition, and a probe depends on the space that is spanned, not on its axes.
    """
    basis = rng.normal(size=(rows.shape[1], COMPONENTS))
    for _ in range(3):
        basis, _ = np.linalg.qr(rows.T @ (rows @ basis))
    return basis


def score(inputs: np.ndarray, targets: np.ndarray, known: np.ndarray, fold: Fold) -> np.ndarray:
    """R^2 on the test rows for each target [N, K], with the penalty that does best on the rows held out of fitting."""
    kept, held, test = (rows[known[rows]] for rows in fold)
    nothing = np.full(targets.shape[1], np.nan)
    if known.sum() < FEWEST or min(len(kept), len(held), len(test)) < 10:
        return nothing
    # The mean of the fitted rows is the baseline of R^2 as well: no probe could know that of the test rows.
    guess = targets[kept].mean(0)
    spread = np.mean((targets[test] - guess) ** 2, 0)
    weights = ridge(inputs[kept], targets[kept] - guess)  # [P, D, K]
    tried = np.mean((guess + inputs[held] @ weights - targets[held]) ** 2, 1)  # [P, K]
    best = weights[np.argmin(tried, 0), :, np.arange(targets.shape[1])].T  # [D, K]
    error = np.mean((guess + inputs[test] @ best - targets[test]) ** 2, 0)
    return np.where(spread > 1e-8, 1 - error / np.maximum(spread, 1e-8), nothing)


def ridge(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Weights [P, D, K] of ridge regression with each of the `PENALTIES`, which are scaled by the number of rows."""
    squares = inputs.T @ inputs / len(inputs)
    penalties = PENALTIES[:, None, None] * np.eye(len(squares))
    return np.linalg.solve(
        squares + penalties,
        np.broadcast_to(inputs.T @ targets / len(inputs), (len(PENALTIES), *squares.shape[:1], targets.shape[1])),
    )
