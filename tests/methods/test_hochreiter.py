"""Hochreiter's LSTM: no prediction knows its own answer; errors, thresholds and training against closed forms."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.regression import Quadratic
from rulax.methods.experiments import hochreiter
from rulax.methods.experiments.hochreiter import VARIANCE, QuadraticsRun, QuadraticsSizes, examples_needed, squared_errors
from rulax.methods.hochreiter import Regressor, mean_squared_error, sample_functions

KEY = jax.random.key(0)
TIME, STREAMS = 6, 3


def network(size=8):
    return Regressor(KEY, Quadratic.inputs, size)


def test_no_answer_reaches_its_own_prediction_or_an_earlier_one():
    x, y = sample_functions(STREAMS, TIME, KEY)
    slopes = jax.jacobian(lambda y: network()(x, y))(y)  # [T, B, T, B]
    reach = np.abs(np.asarray(slopes)).max((1, 3))  # of the prediction at i from the answer at j
    for i in range(TIME):
        np.testing.assert_array_equal(reach[i, i:], 0.0)  # exactly
        assert np.all(reach[i, :i] > 0)


def test_every_function_has_a_memory_of_its_own_and_no_input_comes_early():
    x, y = sample_functions(STREAMS, TIME, KEY)
    slopes = np.abs(np.asarray(jax.jacobian(lambda x: network()(x, y))(x))).max(-1)  # [T, B, T, B]
    for b in range(STREAMS):
        np.testing.assert_array_equal(np.delete(slopes[:, b], b, axis=-1), 0.0)
        np.testing.assert_array_equal(np.triu(slopes[:, b, :, b], 1), 0.0)
        assert np.all(np.diag(slopes[:, b, :, b]) > 0)


def test_the_gradient_through_the_whole_sequence_is_that_of_finite_differences():
    """Back-propagation through time, against central differences in float64 along random directions."""
    with jax.enable_x64(True):
        to_float64 = functools.partial(jax.tree.map, lambda leaf: jnp.asarray(leaf, jnp.float64))
        params, (x, y) = to_float64(network(4)), to_float64(sample_functions(STREAMS, TIME, KEY))
        loss = jax.jit(lambda params: mean_squared_error(params, x, y))
        slope, step = jax.grad(loss)(params), 1e-5
        for seed in range(4):
            rng = np.random.default_rng(seed)
            way = jax.tree.map(lambda leaf, rng=rng: jnp.asarray(rng.normal(size=leaf.shape)), params)
            ahead, behind = (loss(jax.tree.map(lambda a, b, s=s: a + s * b, params, way)) for s in (step, -step))
            along = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(way), strict=True))
            np.testing.assert_allclose(along, (ahead - behind) / (2 * step), rtol=1e-7, atol=1e-10)


def test_the_variance_of_the_answers_is_the_exact_one():
    _, y = sample_functions(20_000, 4, KEY)
    assert float(jnp.var(y)) == pytest.approx(VARIANCE, rel=0.02)
    assert pytest.approx(0.7259, abs=1e-4) == VARIANCE


def test_a_network_that_says_nothing_has_the_error_of_the_prior_and_the_filter_knows_all_after_six(monkeypatch):
    monkeypatch.setattr(hochreiter, "TEST_AT_ONCE", 1500)  # two groups of different sizes
    silent = eqx.tree_at(lambda net: net.head, network(), jax.tree.map(jnp.zeros_like, network().head))
    each, filtered = squared_errors(silent, 2000, 8)
    errors = each.mean(0)
    assert each.shape == (2000, 8)
    np.testing.assert_allclose(errors, VARIANCE, rtol=0.12)
    np.testing.assert_allclose(filtered[0], VARIANCE, rtol=0.05)
    assert np.all(np.diff(filtered[:7]) < 0)
    assert filtered[6] < 1e-9
    assert examples_needed(filtered, 0.05) == 7
    assert examples_needed(errors, 0.05) == 9


def test_the_first_example_that_is_good_enough_counts_from_one():
    bound = 0.05 * VARIANCE
    assert examples_needed(np.array([1.0, bound * 1.01, bound, 1.0]), 0.05) == 3
    assert examples_needed(np.array([0.0]), 0.05) == 1


def test_a_run_trains_and_is_tested():
    sizes = QuadraticsSizes(updates=60, test_functions=200, functions=16, examples=36, memory=8, learning_rate=1e-2)
    run = QuadraticsRun({"quick": sizes}, "quick", 0)
    values = []
    while not run.done():
        values.append(run.advance())
    assert values[-1].meta_updates == 60
    assert values[-1].fraction == 1.0
    assert values[-1].env_steps == 60 * 16 * 36
    assert values[-1].value < 0.85 * values[0].value
    tested = run.test()
    assert tested.reference.value == 7
    assert tested.values[0] == 37  # so little training learns no function
    assert tested.details["error at 7, of the variance"] < 1
