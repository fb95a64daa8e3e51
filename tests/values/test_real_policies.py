"""Densities, entropies and draws of policies over real numbers, against scipy, quadrature and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from jax.test_util import check_grads

from rulax.agents.distributions import likeliest_choice, sample_choice
from rulax.types import is_real, logits_of
from rulax.values.policies import entropy, kl, log_probability
from rulax.values.real_policies import Beta, Gaussian, Squashed


class Tanh(scipy.stats.rv_continuous):
    """tanh of a normal number, by its distribution function alone."""

    def __init__(self, mean, deviation):
        super().__init__(a=-1, b=1)
        self.mean_before, self.deviation = mean, deviation

    def _cdf(self, x):
        return scipy.stats.norm.cdf(np.arctanh(x), self.mean_before, self.deviation)

    def _pdf(self, x):
        return scipy.stats.norm.pdf(np.arctanh(x), self.mean_before, self.deviation) / (1 - x**2)


def known(policy, row, dimension):
    """One dimension of a policy as scipy has it."""
    first, second = (float(each[row, dimension]) for each in policy)
    if isinstance(policy, Beta):
        return scipy.stats.beta(first, second, loc=-1, scale=2)
    return (Tanh if isinstance(policy, Squashed) else scipy.stats.norm)(first, np.exp(second))


def drawn_policy(kind, rows=4):
    rng = np.random.default_rng(0)
    if kind is Beta:
        return Beta(*(jnp.asarray(rng.uniform(1.05, 6, (rows, 2))) for _ in range(2)))
    return kind(jnp.asarray(rng.normal(size=(rows, 2))), jnp.asarray(rng.uniform(-1.5, 0.5, (rows, 2))))


@pytest.fixture(params=[Gaussian, Squashed, Beta])
def policy(request):
    with jax.enable_x64(True):
        yield drawn_policy(request.param)


def test_log_probabilities_are_scipys_and_add_up_over_dimensions(policy):
    actions = np.random.default_rng(1).uniform(-0.999, 0.999, (4, 2))
    wanted = [sum(np.log(known(policy, row, d).pdf(actions[row, d])) for d in range(2)) for row in range(4)]
    np.testing.assert_allclose(log_probability(policy, jnp.asarray(actions)), wanted, rtol=1e-6)


def test_entropies_are_the_mean_of_minus_the_log_density(policy):
    def of_one(one):
        low, high = max(one.ppf(1e-12), -1 + 1e-12) if one.cdf(1.0) == 1 else one.ppf(1e-12), one.ppf(1 - 1e-12)
        return scipy.integrate.quad(lambda x: -one.pdf(x) * np.log(max(one.pdf(x), 1e-300)), low, high, limit=400)[0]

    wanted = [sum(of_one(known(policy, row, d)) for d in range(2)) for row in range(4)]
    np.testing.assert_allclose(entropy(policy), wanted, rtol=1e-5, atol=1e-5)


def test_draws_follow_the_distribution(policy):
    many = jax.tree.map(lambda x: jnp.broadcast_to(x[0], (4000, 2)), policy)
    actions = np.asarray(sample_choice(jax.random.key(0), many))
    for d in range(2):
        assert scipy.stats.kstest(actions[:, d], known(policy, 0, d).cdf).pvalue > 1e-3
    assert abs(scipy.stats.spearmanr(actions).statistic) < 0.06, "dimensions are independent"


def test_gradients_are_finite_differences(policy):
    action = jnp.asarray(np.random.default_rng(1).uniform(-0.95, 0.95, (4, 2)))
    check_grads(lambda numbers: log_probability(numbers, action), (policy,), order=1, modes=["rev"], atol=1e-5, rtol=1e-5)
    check_grads(entropy, (policy,), order=1, modes=["rev"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [Squashed, Beta])
def test_bounded_policies_stay_finite_at_the_bounds(kind):
    policy = jax.tree.map(lambda x: x.astype(jnp.float32), drawn_policy(kind))
    far = kind(policy[0] + 30, policy[1])
    for each in (policy, far):
        for end in (-1.0, 1.0):
            slopes = jax.grad(lambda p, end=end: jnp.sum(log_probability(p, jnp.full((4, 2), end))))(each)
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
        actions = sample_choice(jax.random.key(0), each)
        assert np.abs(actions).max() <= 1
        assert np.isfinite(log_probability(each, actions)).all()
        assert np.isfinite(entropy(each)).all()


def test_greedy_actions_are_where_no_noise_is_left():
    mean = jnp.array([[0.5, -2.0]])
    still = jnp.full((1, 2), -20.0)
    for kind in (Gaussian, Squashed):
        sharp = kind(mean, still)
        np.testing.assert_allclose(likeliest_choice(sharp), sample_choice(jax.random.key(0), sharp), atol=1e-6)
    sharp = Beta(jnp.array([[3e6, 1e6]]), jnp.array([[1e6, 1e6]]))
    np.testing.assert_allclose(likeliest_choice(sharp), sample_choice(jax.random.key(0), sharp), atol=5e-3)
    np.testing.assert_allclose(likeliest_choice(sharp), [[0.5, 0.0]])


def test_a_rule_that_needs_logits_says_so(policy):
    assert is_real(policy)
    with pytest.raises(ValueError, match="--action-distribution bins"):
        logits_of(policy)
    with pytest.raises(ValueError, match="needs a policy over choices"):
        kl(policy, policy)
