import jax
import numpy as np
import pytest

from rulax.rules.policy_gradient import policy_gradient
from rulax.rules.ppo import LEARNING, clipped_surrogate, ppo
from rulax.values.two_hot import SMALL_BINS, expected_value
from tests.rules.data import gradients, make_targets, random_batch, taken_predictions, with_cut


def test_at_ratio_one_the_gradient_is_the_policy_gradient():
    rule, plain = ppo(entropy_cost=0.02, value_cost=0.1), policy_gradient(entropy_cost=0.02, baseline_cost=0.1)
    batch = random_batch(rule, valid=with_cut())
    targets, _, _ = make_targets(rule, batch)
    ours = gradients(rule, batch, targets)
    theirs = gradients(plain, batch, targets)  # the names of targets are the same
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), ours, theirs)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.5, 2.0, 2.4, 0.0),  # far enough in the right direction
        (0.5, 2.0, 1.0, 2.0),  # the wrong direction: come back
        (0.5, -2.0, -1.6, 0.0),
        (1.5, -2.0, -3.0, -2.0),
    ],
)
def test_surrogate_by_hand(ratio, advantage, value, slope):
    result, gradient = jax.value_and_grad(clipped_surrogate)(ratio, advantage, 0.2)
    np.testing.assert_allclose([result, gradient], [value, slope], rtol=1e-6)


def test_advantages_are_standardised_over_valid_steps_and_returns_are_not():
    rule = ppo()
    batch = random_batch(rule, valid=with_cut())
    targets, _, metrics = make_targets(rule, batch)
    valid = batch.experience.valid
    np.testing.assert_allclose(targets["advantage"][valid].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(targets["advantage"][valid].std(), 1, rtol=1e-5)
    raw = targets["return"] - expected_value(batch.online["value"][:-1], SMALL_BINS)
    np.testing.assert_allclose(metrics["advantage"], raw[valid].mean(), rtol=1e-4)


def test_metrics_of_a_policy_that_has_not_moved_and_of_one_that_has():
    rule = ppo(clip=0.2)
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    taken = taken_predictions(rule, batch)
    _, still = rule.loss({}, taken, targets, batch.experience)
    np.testing.assert_allclose([still["clip_fraction"], still["kl"]], 0, atol=1e-6)
    _, moved = rule.loss({}, taken | {"policy": 3 * taken["policy"]}, targets, batch.experience)
    assert moved["clip_fraction"] > 0.3
    assert moved["kl"] > 0.05


def test_the_recommended_streams_divide_into_minibatches():
    assert LEARNING.streams % LEARNING.minibatches == 0
