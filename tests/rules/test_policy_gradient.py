import jax
import jax.numpy as jnp
import numpy as np

from rulax.rules.policy_gradient import policy_gradient
from rulax.values.two_hot import SMALL_BINS, expected_value, two_hot_value
from tests.rules.data import A, gradients, make_targets, random_batch, with_cut


def test_returns_are_discounted_sums_to_the_end_or_the_bootstrap():
    rule = policy_gradient(discount=0.5)
    batch = random_batch(rule, valid=with_cut(3, 1))
    targets, _, _ = make_targets(rule, batch)
    reward, value = batch.experience.reward, expected_value(batch.online["value"], SMALL_BINS)
    np.testing.assert_allclose(targets["return"][2, 0], reward[2, 0], rtol=1e-5)  # the episode ends here
    np.testing.assert_allclose(targets["return"][1, 0], reward[1, 0] + 0.5 * reward[2, 0], rtol=1e-5)
    np.testing.assert_allclose(targets["return"][2, 1], reward[2, 1] + 0.5 * value[3, 1], rtol=1e-5)  # cut off at 3
    np.testing.assert_allclose(targets["return"][5, 2], reward[5, 2] + 0.5 * value[6, 2], rtol=1e-5)  # the last step
    np.testing.assert_allclose(targets["advantage"], targets["return"] - value[:-1], rtol=1e-5, atol=1e-6)


def test_gradients_are_the_textbook_ones():
    rule = policy_gradient(entropy_cost=0.0, baseline_cost=0.25)
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    gradient = gradients(rule, batch, targets)
    policy = jax.nn.softmax(batch.online["policy"][:-1])
    score = jax.nn.one_hot(batch.experience.action, A) - policy
    count = batch.experience.valid.size
    np.testing.assert_allclose(gradient["policy"], -targets["advantage"][..., None] * score / count, rtol=1e-4, atol=1e-6)
    said = jax.nn.softmax(batch.online["value"][:-1])
    expected = 0.25 * (said - two_hot_value(targets["return"], SMALL_BINS)) / count  # the slope of a cross-entropy
    np.testing.assert_allclose(gradient["value"], expected, rtol=1e-4, atol=1e-6)


def test_the_entropy_bonus_pulls_towards_the_uniform_policy():
    rule = policy_gradient(entropy_cost=1.0)
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    gradient = gradients(rule, batch, jax.tree.map(jnp.zeros_like, targets))["policy"]
    best = jnp.argmax(batch.online["policy"][:-1], -1)
    assert (jnp.take_along_axis(gradient, best[..., None], -1) > 0).all()
