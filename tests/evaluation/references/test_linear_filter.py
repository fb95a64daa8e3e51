"""The linear filter against batch regression, closed forms, and figures computed elsewhere."""

import numpy as np
import pytest

from rulax.evaluation import references as refs

FIGURES = [0.712, 0.434, 0.31, 0.20, 0.13, 0.061]  # before examples 1 .. 6
VARIANCE = (2 / 5 + 1 / 9 + 2 / 3 + 1) / 3  # of y: the six features' mean squares, times 1/3


@pytest.fixture(scope="module")
def filtered():
    features, targets = refs.sample_quadratics(20_000, 12, seed=0)
    return features, targets, refs.bayes_linear_filter(features, targets)


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_it_is_ridge_regression_on_all_that_came_before(noise):
    """Batch form: the coefficients' mean is (F'F + noise / prior I)^-1 F'y, their covariance noise times that inverse."""
    features, targets = refs.sample_quadratics(4, 9, seed=3)
    result = refs.bayes_linear_filter(features, targets, noise=noise, prior=0.7)
    for task, t in np.ndindex(4, 9):
        f, y, phi = features[task, :t], targets[task, :t], features[task, t]
        inverse = np.linalg.inv(f.T @ f + noise / 0.7 * np.eye(6))
        assert result.prediction[task, t] == pytest.approx(phi @ inverse @ f.T @ y, rel=1e-8, abs=1e-12)
        assert result.expected_error[task, t] == pytest.approx(noise * (phi @ inverse @ phi + 1), rel=1e-8)


def test_without_noise_it_is_the_least_norm_solution():
    features, targets = refs.sample_quadratics(6, 6, seed=5)
    result = refs.bayes_linear_filter(features, targets)
    for task, t in np.ndindex(6, 6):
        expected = features[task, t] @ np.linalg.pinv(features[task, :t]) @ targets[task, :t] if t else 0.0
        assert result.prediction[task, t] == pytest.approx(expected, abs=1e-7)


def test_the_first_error_is_the_variance(filtered):
    _, targets, result = filtered
    expected = result.expected_error[:, 0]
    assert expected.mean() == pytest.approx(VARIANCE, abs=4 * expected.std() / 20_000**0.5)
    assert targets.var() == pytest.approx(VARIANCE, abs=0.02)


def test_figures_before_each_example(filtered):
    _, targets, result = filtered
    squared = (result.prediction - targets) ** 2
    error = squared.std(0) / 20_000**0.5
    for i, figure in enumerate(FIGURES):
        assert squared[:, i].mean() == pytest.approx(figure, abs=4 * error[i] + 0.02 * figure)
        assert squared[:, i].mean() == pytest.approx(result.expected_error[:, i].mean(), abs=5 * error[i])


def test_six_examples_determine_the_function(filtered):
    _, targets, result = filtered
    assert np.abs(result.prediction - targets)[:, 6:].max() < 1e-5
    assert np.median(result.expected_error[:, 5]) > 1e-3  # and five do not


def test_expected_errors_fall_with_more_examples(filtered):
    mean = filtered[2].expected_error.mean(0)
    assert (np.diff(mean[:7]) < 0).all()


def test_twice_the_same_example_is_known_the_second_time():
    features = refs.quadratic_features(np.tile([[0.3, -0.7]], (1, 3, 1)))
    result = refs.bayes_linear_filter(features, np.full((1, 3), 1.5))
    np.testing.assert_allclose(result.prediction, [[0.0, 1.5, 1.5]])
    np.testing.assert_allclose(result.expected_error[0, 1:], 0.0, atol=1e-15)


def test_features_by_hand():
    np.testing.assert_allclose(refs.quadratic_features(np.array([2.0, -3.0])), [4, 9, -6, 2, -3, 1])


def test_nonsense_is_refused():
    features, targets = refs.sample_quadratics(2, 3, seed=0)
    for call in (
        lambda: refs.bayes_linear_filter(features, targets[:, :2]),
        lambda: refs.bayes_linear_filter(features, targets, noise=-1.0),
        lambda: refs.bayes_linear_filter(features, targets, prior=0.0),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
