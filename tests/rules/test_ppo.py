import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.ppo import LEARNING, clip_drift, ppo
from rulax.values.two_hot import SMALL_BINS, expected_value
from tests.rules.data import make_targets, random_batch, taken_predictions, with_cut


def surrogate(log_ratio, advantage):
    return jnp.exp(log_ratio) * advantage - clip_drift(log_ratio, advantage, 0.2)


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
    result, gradient = jax.value_and_grad(surrogate)(jnp.log(ratio), advantage)
    np.testing.assert_allclose([result, gradient / ratio], [value, slope], rtol=1e-6)


def test_the_drift_makes_the_surrogate_of_the_paper():
    """The minimum of equation 7, and the gradient that autodiff finds for it: equal, not only close."""
    rng = np.random.default_rng(0)
    log_ratio, advantage = rng.normal(size=(2, 500)).astype(np.float32)

    def paper(log_ratio, advantage):
        ratio = jnp.exp(log_ratio)
        return jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)

    ours, theirs = (jax.vmap(jax.value_and_grad(each))(log_ratio, advantage) for each in (surrogate, paper))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ours[1], theirs[1])
    assert 0.1 < (theirs[1] == 0).mean() < 0.5


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
