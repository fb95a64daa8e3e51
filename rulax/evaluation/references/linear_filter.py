"""The best linear learner of a function with known features: what a meta-learned recurrent regressor should approach.

y = sum_j c_j phi_j(x), coefficients independently uniform on [-1, 1] (mean 0, variance 1/3). Among all predictions linear in the
targets seen so far, the filter below has the least mean squared error, whatever the shape of the prior; it is a Kalman filter whose
state does not change. Until the function is determined it is not quite Bayes-optimal: with a bounded prior nonlinear predictions
can be better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

PRIOR_VARIANCE = 1 / 3  # of a coefficient uniform on [-1, 1]
RESOLUTION = 1e-12  # a predicted variance below this is rounding error: the function is known there


class Filtered(NamedTuple):
    """The filter's prediction of each example from those before it, and the squared error it expects, [N, T] each."""

    prediction: np.ndarray
    expected_error: np.ndarray


def quadratic_features(x: np.ndarray) -> np.ndarray:
    """The six features of a quadratic in two inputs, x [..., 2] -> (x1^2, x2^2, x1 x2, x1, x2, 1) [..., 6]."""
    first, second = x[..., 0], x[..., 1]
    return np.stack([first**2, second**2, first * second, first, second, np.ones_like(first)], -1)


def sample_quadratics(tasks: int, examples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs uniform on [-1, 1]^2 and targets without noise: features [N, T, 6] and targets [N, T]."""
    rng = np.random.default_rng(seed)
    features = quadratic_features(rng.uniform(-1, 1, (tasks, examples, 2)))
    coefficients = rng.uniform(-1, 1, (tasks, features.shape[-1]))
    return features, np.einsum("ntj,nj->nt", features, coefficients)


def bayes_linear_filter(features: np.ndarray, targets: np.ndarray, noise: float = 0.0, prior: float = PRIOR_VARIANCE) -> Filtered:
    """Predict each target from those before it, features [N, T, J] and targets [N, T] -> arrays [N, T].

    With mean m and covariance S of the coefficients, from 0 and `prior` I, and v = phi' S phi + noise at each example,
        prediction = m' phi,   expected error = v,   m += S phi (y - prediction) / v,   S -= (S phi)(S phi)' / v.
    `noise` is the variance of the targets' noise. The mean of the expected errors over tasks estimates the same curve as the
    squared errors do and with less variance, as it does not depend on the coefficients drawn.
    """
    features, targets = np.asarray(features, float), np.asarray(targets, float)
    if features.ndim != 3 or targets.shape != features.shape[:2]:
        raise ValueError(
            f"features must be [tasks, examples, features] and targets [tasks, examples], not {features.shape}, {targets.shape}"
        )
    if noise < 0 or prior <= 0:
        raise ValueError(f"noise must not be negative and prior must be positive, not {noise} and {prior}")
    tasks, examples, size = features.shape
    mean, covariance = np.zeros((tasks, size)), np.tile(prior * np.eye(size), (tasks, 1, 1))
    prediction, expected = np.zeros((tasks, examples)), np.zeros((tasks, examples))
    for t in range(examples):
        phi = features[:, t]
        along = np.einsum("nij,nj->ni", covariance, phi)
        # Rounding can make a variance that vanishes slightly negative.
        variance = np.maximum(np.einsum("ni,ni->n", along, phi), 0.0) + noise
        prediction[:, t], expected[:, t] = np.einsum("nj,nj->n", mean, phi), variance
        # Where the function is known the gain is 0: dividing by rounding error would spoil the estimate.
        gain = along / np.where(variance > RESOLUTION, variance, np.inf)[:, None]
        mean += gain * (targets[:, t] - prediction[:, t])[:, None]
        covariance -= gain[:, :, None] * along[:, None, :]
    return Filtered(prediction, expected)
