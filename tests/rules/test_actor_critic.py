import jax
import jax.numpy as jnp
import numpy as np

from rulax.rules.actor_critic import actor_critic
from rulax.values.policies import log_probability
from rulax.values.returns import lambda_returns, over_streams
from rulax.values.two_hot import BINS, SMALL_BINS, expected_value, two_hot_value
from tests.rules.data import make_targets, random_batch, with_cut


def test_on_policy_the_targets_are_lambda_returns():
    rule = actor_critic(discount=0.9, trace=0.8, normalise_advantages=False)
    batch = random_batch(rule, valid=with_cut())
    targets, state, _ = make_targets(rule, batch)
    experience, values = batch.experience, expected_value(batch.online["value"], SMALL_BINS)
    arrays = (experience.reward, 0.9 * experience.discount, values, experience.valid)
    expected = over_streams(lambda_returns, *arrays, trace=0.8)
    np.testing.assert_allclose(targets["return"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(targets["advantage"], expected - values[:-1], rtol=1e-4, atol=1e-5)
    assert state == {}


def test_off_policy_a_step_that_the_policy_would_never_take_teaches_nothing():
    """Ratio 0: no advantage, the value is its own target, and the step before sees its value only."""
    rule = actor_critic(discount=0.9, trace=1.0, normalise_advantages=False)
    batch = random_batch(rule)
    action = batch.experience.action
    policy = batch.online["policy"].at[3, 1, action[3, 1]].set(-100.0)
    batch = batch._replace(online=batch.online | {"policy": policy})
    targets, _, _ = make_targets(rule, batch)
    values, reward = expected_value(batch.online["value"], SMALL_BINS), batch.experience.reward
    np.testing.assert_allclose(targets["advantage"][3, 1], 0, atol=1e-6)
    np.testing.assert_allclose(targets["return"][3, 1], values[3, 1], rtol=1e-6)
    np.testing.assert_allclose(targets["return"][2, 1], reward[2, 1] + 0.9 * values[3, 1], rtol=1e-4, atol=1e-5)


def test_ratios_are_clipped():
    rule = actor_critic(trace=0.0, clip_ratio=2.0, normalise_advantages=False)
    batch = random_batch(rule, behaviour=random_batch(rule, seed=9).experience.behaviour)
    targets, _, _ = make_targets(rule, batch)
    experience, values = batch.experience, expected_value(batch.online["value"], SMALL_BINS)
    action = experience.action
    ratio = jnp.exp(log_probability(batch.online["policy"][:-1], action) - log_probability(experience.behaviour, action))
    error = experience.reward + 0.99 * experience.discount * values[1:] - values[:-1]
    assert ratio.max() > 2 > ratio.min()
    np.testing.assert_allclose(targets["advantage"], jnp.minimum(2.0, ratio) * error, rtol=1e-4, atol=1e-5)


def test_normalised_advantages_do_not_know_the_scale_of_rewards():
    rule = actor_critic(bins=BINS)
    batch = random_batch(rule, valid=with_cut())
    targets, state, _ = make_targets(rule, batch)
    experience = batch.experience._replace(reward=10 * batch.experience.reward)
    values = 10 * expected_value(batch.online["value"], BINS)
    online = batch.online | {"value": jnp.log(two_hot_value(values, BINS) + 1e-30)}  # the same values, 10 times as large
    scaled, _, _ = make_targets(rule, batch._replace(experience=experience, online=online))
    np.testing.assert_allclose(scaled["advantage"], targets["advantage"], rtol=1e-3, atol=1e-4)
    valid = batch.experience.valid
    np.testing.assert_allclose(targets["advantage"][valid].mean(), 0, atol=1e-4)
    np.testing.assert_allclose(targets["advantage"][valid].std(), 1, atol=1e-3)
    again, state, _ = rule.targets({}, state, batch)
    np.testing.assert_allclose(state.decay_product, 0.99**2, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), again, targets)
