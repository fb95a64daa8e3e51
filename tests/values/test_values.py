import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings

from rulax.values import normalisation, policies, two_hot
from rulax.values.two_hot import Bins
from tests.shared import golden

GRID = np.array([0.0, 1e-4, 0.5, 1.0, 7.25, 299.5, 1e4, 1e5])
GRID = np.concatenate([GRID, -GRID])


def test_squashings_equal_rlax_and_undo_each_other():
    with jax.enable_x64(True):
        grid = jnp.asarray(GRID)
        np.testing.assert_allclose(two_hot.signed_hyperbolic(grid), rlax.signed_hyperbolic(grid), rtol=1e-10)
        np.testing.assert_allclose(two_hot.signed_parabolic(grid), rlax.signed_parabolic(grid), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(two_hot.sign_log(grid), rlax.signed_logp1(grid), rtol=1e-12)
        np.testing.assert_allclose(two_hot.signed_parabolic(two_hot.signed_hyperbolic(grid)), grid, rtol=1e-12)


def test_squashings_are_accurate_in_float32_and_have_their_slope_at_zero():
    grid = jnp.asarray(GRID, jnp.float32)
    np.testing.assert_allclose(two_hot.signed_parabolic(two_hot.signed_hyperbolic(grid)), grid, rtol=2e-6)
    slope = jax.grad(two_hot.signed_hyperbolic)(0.0)
    np.testing.assert_allclose(slope, 0.501, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(two_hot.signed_parabolic)(0.0), 1 / slope, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.floats(-400, 400), st.sampled_from([Bins(), Bins(11, 5.0), Bins(2, 1.0)]))
def test_two_hot_is_a_distribution_with_that_mean(x, bins):
    probabilities = np.asarray(two_hot.two_hot(jnp.float32(x), bins))
    assert (probabilities >= 0).all()
    assert (probabilities > 0).sum() <= 2
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=1e-5)
    mean = probabilities @ np.asarray(two_hot.support(bins))
    np.testing.assert_allclose(mean, np.clip(x, -bins.largest, bins.largest), atol=1e-4 * bins.largest)


def test_two_hot_equals_rlax():
    bins = Bins(21, 4.0)
    x = jnp.linspace(-5, 5, 37)
    theirs = rlax.transform_to_2hot(x, -bins.largest, bins.largest, bins.number)
    np.testing.assert_allclose(two_hot.two_hot(x, bins), theirs, atol=5e-5)  # rlax adds 1e-5 to the width of a bin


def test_a_head_that_says_its_target_has_that_value_and_the_lowest_loss():
    target = jnp.array([-120.0, 0.0, 0.3, 55.0])
    logits = jnp.log(two_hot.two_hot_value(target) + 1e-12)
    np.testing.assert_allclose(two_hot.expected_value(logits), target, rtol=1e-4, atol=1e-4)
    gradient = jax.grad(lambda x: two_hot.value_loss(x, target).sum())(logits)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_categorical_helpers_against_definitions():
    rng = np.random.default_rng(0)
    p, q = jax.nn.softmax(rng.normal(size=(4, 3))), jax.nn.softmax(rng.normal(size=(4, 3)))
    action = jnp.array([0, 2, 1, 1])
    np.testing.assert_allclose(policies.entropy(jnp.log(p) + 3), -(p * jnp.log(p)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(policies.kl(jnp.log(p) - 1, jnp.log(q)), (p * jnp.log(p / q)).sum(-1), rtol=1e-4)
    np.testing.assert_allclose(policies.log_probability(jnp.log(p), action), jnp.log(p[jnp.arange(4), action]), rtol=1e-5)


def test_averages_ignore_what_is_invalid():
    x, valid = jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])
    assert normalisation.masked_mean(x, valid) == 2
    assert normalisation.masked_mean(x, jnp.zeros(3, bool)) == 0
    np.testing.assert_allclose(normalisation.standardise(x, valid), [-1, 1, 0], rtol=1e-6)
    moments = normalisation.update_moments(normalisation.start_moments(), x, valid)
    alone = normalisation.update_moments(normalisation.start_moments(), x[:2])
    np.testing.assert_allclose(moments, alone, rtol=1e-6)
    np.testing.assert_allclose(normalisation.update_moments(moments, x, jnp.zeros(3, bool)), moments)


def test_moments_that_have_seen_nothing_change_nothing():
    np.testing.assert_allclose(normalisation.normalise(GRID, normalisation.start_moments()), GRID, rtol=1e-6)


def test_normalised_values_have_mean_zero_and_deviation_one():
    x = jnp.asarray(np.random.default_rng(0).normal(3.0, 5.0, 100), jnp.float32)
    moments = normalisation.start_moments()
    for _ in range(3):
        moments = normalisation.update_moments(moments, x)
    normal = normalisation.normalise(x, moments)
    np.testing.assert_allclose([normal.mean(), normal.std()], [0, 1], atol=1e-4)
    np.testing.assert_allclose(normalisation.normalise(x, moments, subtract_mean=False), x / x.std(), rtol=1e-4)


def test_float64_stays_float64():
    with jax.enable_x64(True):
        x = jnp.asarray(GRID)
        moments = normalisation.update_moments(normalisation.start_moments(), x, jnp.ones(x.shape, bool))
        outputs = [
            two_hot.two_hot_value(x),
            two_hot.expected_value(jnp.zeros((2, 601))),
            normalisation.normalise(x, moments),
            normalisation.standardise(x),
            *moments,
        ]
        assert {output.dtype for output in outputs} == {jnp.dtype(jnp.float64)}


@pytest.mark.parametrize(
    ("name", "function", "inputs", "tolerance"),
    [
        ("signed_hyperbolic", two_hot.signed_hyperbolic, ["grid_wide"], 1e-6),
        ("signed_parabolic", two_hot.signed_parabolic, ["grid"], 1e-6),
        ("signed_logp1", two_hot.sign_log, ["grid_wide"], 1e-6),
        ("two_hot_linear", two_hot.two_hot, ["grid"], 4e-5),  # the reference rounds: 1e-5 in the width of a bin
        ("two_hot_of_signed_hyperbolic", two_hot.two_hot_value, ["grid_wide"], 4e-5),
        ("value_logits_to_scalar", two_hot.mean_of_bins, ["v_logits"], 1e-5),
        ("values_from_net_cat_nl", two_hot.expected_value, ["v_logits"], 5e-5),
        ("loss_target_cat", lambda logits, target: two_hot.value_loss(logits[:-1], target), ["v_logits", "value_target"], 1e-5),
    ],
)
def test_values_equal_the_reference(name, function, inputs, tolerance):
    data = golden("2_value_utils.npz")
    recorded = data[f"out/{name}"]
    ours = function(*(data[f"in/{key}"] for key in inputs))
    np.testing.assert_allclose(ours, recorded, rtol=0, atol=tolerance * np.abs(recorded).max())


def test_gradient_of_the_value_loss_equals_the_reference():
    data = golden("2_value_utils.npz")
    gradient = jax.grad(lambda x: two_hot.value_loss(x, data["in/value_target"]).sum())(data["in/v_logits"][:-1])
    np.testing.assert_allclose(gradient, data["out/loss_target_cat_grad_of_sum"], atol=5e-5)


def test_moving_normalisation_equals_the_reference():
    data = golden("2_value_utils.npz")
    moments = normalisation.start_moments()
    for i, batch in enumerate(data["in/ema_values"]):
        moments = normalisation.update_moments(moments, batch)
        for field, value in moments._asdict().items():
            np.testing.assert_allclose(value, data[f"out/ema_{i}/{field}"], rtol=1e-5)
        probe = data["in/ema_probe"]
        np.testing.assert_allclose(normalisation.normalise(probe, moments), data[f"out/ema_{i}/normalize"], rtol=1e-4, atol=1e-5)
        centred = normalisation.normalise(probe, moments, subtract_mean=False)
        np.testing.assert_allclose(centred, data[f"out/ema_{i}/normalize_nomean"], rtol=1e-4, atol=1e-5)
