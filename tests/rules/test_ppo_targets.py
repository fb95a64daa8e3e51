import jax
import jax.numpy as jnp
import numpy as np

from rulax.rules.ppo_targets import ppo_targets
from rulax.values.policies import entropy, log_probability
from rulax.values.returns import lambda_returns, over_streams
from rulax.values.two_hot import Bins, expected_value
from tests.rules.data import gradients, make_targets, random_batch, taken_predictions, with_cut

BINS = Bins(31, 10.0)


def test_for_small_advantages_the_gradient_points_where_the_policy_gradient_does():
    """Per step: pi(a) / temperature times the gradient of -A log pi(a); no other head is involved."""
    temperature = 1e3
    rule = ppo_targets(temperature=temperature, entropy_cost=0.0, bins=BINS)
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    ours = gradients(rule, batch, targets)["policy"] * batch.experience.valid.size

    policy, action = batch.online["policy"][:-1], batch.experience.action
    push = targets["policy"] - jax.nn.log_softmax(policy)
    advantage = temperature * jnp.take_along_axis(push, action[..., None], -1)[..., 0]
    score = jax.grad(lambda logits: log_probability(logits, action).sum())(policy)
    probability = jnp.exp(log_probability(policy, action))
    expected = -(probability * advantage / temperature)[..., None] * score
    np.testing.assert_allclose(ours, expected, atol=2e-3 * jnp.abs(expected).max())
    np.testing.assert_allclose(advantage.std(), 1, rtol=1e-2)


def test_the_power_of_the_policy_is_an_entropy_bonus():
    cost = 1e-3
    rule = ppo_targets(temperature=1e8, entropy_cost=cost, bins=BINS)
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    ours = gradients(rule, batch, targets)["policy"] * batch.experience.valid.size
    expected = -cost * jax.grad(lambda logits: entropy(logits).sum())(batch.online["policy"][:-1])
    np.testing.assert_allclose(ours, expected, atol=2e-3 * jnp.abs(expected).max())


def test_the_push_is_clipped_and_only_at_the_action_taken():
    rule = ppo_targets(temperature=0.1, clip=0.7, entropy_cost=0.0, bins=BINS)
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    push = targets["policy"] - jax.nn.log_softmax(batch.online["policy"][:-1])
    taken = jax.nn.one_hot(batch.experience.action, push.shape[-1], dtype=bool)
    np.testing.assert_allclose(push[~taken], 0, atol=1e-6)
    assert jnp.abs(push).max() <= 0.7 + 1e-5


def test_values_are_lambda_returns_over_the_mean_of_q():
    rule = ppo_targets(discount=0.9, trace=0.8, bins=BINS)
    batch = random_batch(rule, valid=with_cut())
    targets, _, _ = make_targets(rule, batch)
    policy = jax.nn.softmax(batch.online["policy"])
    values = (policy * expected_value(batch.online["value"], BINS)).sum(-1)
    experience = batch.experience
    arrays = (experience.reward, 0.9 * experience.discount, values, experience.valid)
    np.testing.assert_allclose(targets["value"], over_streams(lambda_returns, *arrays, trace=0.8), rtol=1e-4, atol=1e-5)


def test_the_next_policy_is_learned_only_where_there_is_one():
    rule = ppo_targets(bins=BINS)
    batch = random_batch(rule, valid=with_cut(3, 1))
    targets, _, _ = make_targets(rule, batch)
    gradient = gradients(rule, batch, targets)["next_policy"]
    learned = np.abs(gradient).max(-1) > 0
    nothing = np.zeros_like(learned)
    nothing[2, 0] = nothing[3, 1] = True  # the end of an episode, and a cut-off
    np.testing.assert_array_equal(learned, ~nothing)
    perfect = taken_predictions(rule, batch) | {"next_policy": batch.online["policy"][1:]}
    _, metrics = rule.loss({}, perfect, targets, batch.experience)
    np.testing.assert_allclose(metrics["next_policy_loss"], 0, atol=1e-6)
