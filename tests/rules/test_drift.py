"""What every drift function must be, by mirror learning: never negative, and at ratio 1 zero with its gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.dpo import dpo, dpo_drift
from rulax.rules.lpo import lpo, network, shrink
from rulax.rules.lpo_sizes import DriftConstants, DriftSizes
from rulax.rules.policy_gradient import policy_gradient
from rulax.rules.ppo import clip_drift, ppo
from tests.rules.data import gradients, init_params, make_targets, mean_loss, random_batch, taken_predictions, with_cut

DRIFTS = {
    "ppo": functools.partial(clip_drift, clip=0.2),
    "dpo": functools.partial(dpo_drift, alpha=2.0, beta=0.6),
    "dpo, other scales": functools.partial(dpo_drift, alpha=0.3, beta=1.7),
}
FLAT = DriftConstants().flat


def learned(key):
    """LPO's drift with random weights, in either precision."""
    rng = np.random.default_rng(key)
    weights = {"hidden": rng.normal(size=(8, 16)) / 2, "output": rng.normal(size=(16, 1)) / 4}

    def drift(log_ratio, advantage):
        log_ratio, advantage = jnp.broadcast_arrays(log_ratio, advantage)
        cast = {name: jnp.asarray(value, log_ratio.dtype) for name, value in weights.items()}
        return jax.nn.relu(clip_drift(log_ratio, advantage, 0.2) + shrink(network(cast, log_ratio, advantage), FLAT))

    return drift


def random_lpo(entropy_cost=0.01, value_cost=0.1):
    """LPO whose network says something."""
    constants = DriftConstants(entropy_cost=entropy_cost, value_cost=value_cost, first_std=0.3)
    return lpo(DriftSizes(16), constants)


DRIFTS |= {f"lpo {key}": learned(key) for key in range(3)}
RULES = {"ppo": ppo, "dpo": dpo, "lpo": random_lpo}
GRID = np.stack(np.meshgrid(np.linspace(-3, 3, 61), np.linspace(-4, 4, 33)), -1).reshape(-1, 2)  # log ratio and advantage


@pytest.fixture(params=DRIFTS)
def drift(request):
    return DRIFTS[request.param]


@pytest.fixture(params=RULES)
def make(request):
    return RULES[request.param]


@pytest.mark.parametrize("x64", [False, True])
def test_a_drift_is_never_negative_and_somewhere_positive(drift, x64):
    with jax.enable_x64(x64):
        found = np.asarray(drift(*jnp.asarray(GRID).T))
    assert (found >= 0).all()
    assert (found > 0.01).mean() > 0.2


def test_at_ratio_one_there_is_neither_drift_nor_gradient(drift):
    advantages = jnp.linspace(-4, 4, 33)
    value, slope = jax.vmap(jax.value_and_grad(drift), (None, 0))(0.0, advantages)
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_array_equal(slope, 0)


def test_at_ratio_one_the_gradient_is_the_policy_gradient(make):
    rule, plain = make(entropy_cost=0.02, value_cost=0.1), policy_gradient(entropy_cost=0.02, baseline_cost=0.1)
    batch = random_batch(rule, valid=with_cut())
    targets, _, _ = make_targets(rule, batch)
    ours = gradients(rule, batch, targets)
    theirs = gradients(plain, batch, targets)  # the names of targets are the same
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), ours, theirs)


def test_away_from_it_the_gradient_is_that_of_finite_differences(make):
    """Of the whole loss in float64, with respect to every prediction, after the policy has moved."""
    step = 1e-5
    with jax.enable_x64(True):
        rule = make()
        batch = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, random_batch(rule))
        targets, _, _ = make_targets(rule, batch)
        before = taken_predictions(rule, batch)
        rng = np.random.default_rng(1)
        moved = {name: values + rng.normal(size=values.shape) for name, values in before.items()}
        params = init_params(rule)
        mean = jax.jit(lambda taken: mean_loss(rule, taken, targets, batch.experience, params))
        exact = jax.grad(mean)(moved)
        assert rule.loss(params, moved, targets, batch.experience)[1]["drift"] > 0.01
        for seed in range(5):
            rng = np.random.default_rng(seed)
            direction = {name: rng.normal(size=values.shape) for name, values in moved.items()}
            ends = (mean({n: moved[n] + sign * step * direction[n] for n in moved}) for sign in (1, -1))
            slope = sum(np.vdot(exact[name], direction[name]) for name in moved)
            np.testing.assert_allclose(slope, np.subtract(*ends) / (2 * step), rtol=1e-6, atol=1e-9)
