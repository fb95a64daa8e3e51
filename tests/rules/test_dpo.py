import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules import ppo
from rulax.rules.dpo import LEARNING, NETWORK, dpo, dpo_drift
from rulax.rules.registry import make_rule
from rulax.rules.tunable import constants_of, tunable
from tests.rules.data import make_targets, mean_loss, random_batch, taken_predictions

ALPHA, BETA = 2.0, 0.6
CASES = [(r, a) for r in (0.05, 0.3, 0.8, 0.999, 1.001, 1.3, 2.5, 12.0) for a in (-3.0, -0.4, 0.0, 0.4, 3.0)]


def by_hand(ratio, advantage):
    """The two cases of the paper's formula in NumPy, one after the other."""
    if advantage >= 0:
        x, scale = (ratio - 1) * advantage, ALPHA
    else:
        x, scale = advantage * np.log(ratio), BETA
    return max(0.0, x - scale * np.tanh(x / scale))


def gain(ratio, advantage):
    return ratio * advantage - dpo_drift(jnp.log(ratio), advantage, ALPHA, BETA)


@pytest.mark.parametrize(("ratio", "advantage"), CASES)
def test_the_drift_is_the_formula(ratio, advantage):
    with jax.enable_x64(True):
        np.testing.assert_allclose(dpo_drift(jnp.log(ratio), advantage, ALPHA, BETA), by_hand(ratio, advantage), atol=1e-12)


@pytest.mark.parametrize(("ratio", "advantage"), CASES)
def test_the_slope_in_closed_form(ratio, advantage):
    """Towards a good action it fades and never reverses; away from a bad one it may reverse; against A it is whole."""
    if (ratio - 1) * advantage <= 0:
        expected = advantage
    elif advantage > 0:
        expected = advantage / np.cosh((ratio - 1) * advantage / ALPHA) ** 2
    else:
        expected = advantage * (1 - np.tanh(advantage * np.log(ratio) / BETA) ** 2 / ratio)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.grad(gain)(ratio, advantage), expected, rtol=1e-9, atol=1e-12)


def test_a_bad_action_whose_probability_has_fallen_far_is_pulled_back():
    slope = jax.grad(gain)
    assert slope(0.9, -1.0) < 0  # less of it
    assert slope(0.2, -1.0) > 0  # that was too much
    assert all(slope(ratio, 1.0) >= 0 for ratio in (0.2, 1.1, 3.0, 10.0))


def test_close_to_one_it_is_of_third_order():
    with jax.enable_x64(True):
        for advantage, scale in ((1.5, ALPHA), (-1.5, BETA)):
            x = 1e-3 * abs(advantage)
            log_ratio = np.log1p(1e-3) if advantage > 0 else -1e-3
            np.testing.assert_allclose(dpo_drift(log_ratio, advantage, ALPHA, BETA), x**3 / (3 * scale**2), rtol=1e-4)


def test_a_ratio_that_underflows_leaves_everything_finite():
    value, slope = jax.value_and_grad(dpo_drift)(-200.0, -1.0, ALPHA, BETA)
    np.testing.assert_allclose([value, slope], [200 - BETA, -1], rtol=1e-6)


def test_large_scales_leave_the_plain_surrogate():
    batch = random_batch(dpo())
    targets, _, _ = make_targets(dpo(), batch)
    taken = taken_predictions(dpo(), batch)
    moved = taken | {"policy": 1.5 * taken["policy"]}
    _, metrics = dpo(alpha=1e4, beta=1e4).loss({}, moved, targets, batch.experience)
    np.testing.assert_allclose(metrics["drift"], 0, atol=1e-6)
    _, usual = dpo().loss({}, moved, targets, batch.experience)
    assert usual["drift"] > 1e-3


def test_both_scales_can_be_learned():
    """A meta-gradient reaches them through the loss: against finite differences in float64."""
    step = 1e-6
    with jax.enable_x64(True):
        rule = tunable(dpo, "alpha", "beta", limits={"alpha": 10.0, "beta": 10.0})
        batch = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, random_batch(rule))
        params = jax.tree.map(lambda x: x.astype(jnp.float64), rule.init(jax.random.key(0)))
        np.testing.assert_allclose(list(constants_of(params, {"alpha": 10.0, "beta": 10.0}).values()), [ALPHA, BETA], rtol=1e-6)
        targets, _, _ = make_targets(dpo(), batch)
        taken = taken_predictions(rule, batch)
        moved = taken | {"policy": 2 * taken["policy"]}
        mean = lambda params: mean_loss(rule, moved, targets, batch.experience, params)  # noqa: E731
        for name, slope in jax.grad(mean)(params).items():
            ends = (mean(params | {name: params[name] + sign * step}) for sign in (1, -1))
            np.testing.assert_allclose(slope, np.subtract(*ends) / (2 * step), rtol=1e-5)
            assert abs(slope) > 1e-4


def test_its_settings_are_ppos_and_its_scales_positive():
    assert (LEARNING, NETWORK) == (ppo.LEARNING, ppo.NETWORK)
    assert make_rule("dpo", alpha=3).learning is ppo.LEARNING
    for scale in ("alpha", "beta"):
        with pytest.raises(ValueError, match=f"{scale} must be greater than 0"):
            make_rule("dpo", **{scale: 0.0})
