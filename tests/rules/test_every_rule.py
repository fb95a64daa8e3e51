"""What every rule in the table promises: shapes, masks, dtypes, and that it can be split by streams."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.registry import RULES, make_rule
from rulax.settings import Learning, Network
from tests.rules.data import B, T, gradients, init_params, make_targets, random_batch, taken_predictions, with_cut

HAND_DESIGNED = ["policy_gradient", "actor_critic", "ppo", "dpo", "lpo", "ppo_targets", "q_learning", "dqn", "diayn"]
FOLLOWS = {"dqn"}  # whose policy is not learned, but read off the values


@pytest.fixture(params=HAND_DESIGNED)
def name(request):
    return request.param


@pytest.fixture
def rule(name):
    return make_rule(name).rule


def test_the_table_holds_them():
    assert set(HAND_DESIGNED) <= set(RULES)
    for name in HAND_DESIGNED:
        recipe = make_rule(name)
        assert isinstance(recipe.learning, Learning)
        assert isinstance(recipe.network, Network)
        assert recipe.rule.heads(5)["policy"] == (5, False)


def test_shapes_and_metrics(name, rule):
    batch = random_batch(rule)
    targets, state, metrics = make_targets(rule, batch)
    assert {leaf.shape[:2] for leaf in jax.tree.leaves(targets)} == {(T, B)}
    assert jax.tree.structure(state) == jax.tree.structure(rule.start(jax.random.key(0)))
    loss, loss_metrics = rule.loss(init_params(rule), taken_predictions(rule, batch), targets, batch.experience)
    assert loss.shape == (T, B)
    assert {"value_loss", "entropy"} <= set(loss_metrics)
    assert ("policy_loss" in loss_metrics) == (name not in FOLLOWS)
    assert not set(metrics) & set(loss_metrics)
    for metric in [*metrics.values(), *loss_metrics.values()]:
        assert metric.shape == ()
        assert jnp.isfinite(metric)


def test_every_head_learns(name, rule):
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    for head, gradient in gradients(rule, batch, targets).items():
        learns = not (name in FOLLOWS and head == "policy")
        assert (jnp.abs(gradient).max() > 1e-6) == learns, head
    assert rule.by_gradient


def test_a_rule_that_takes_no_gradient_steps_says_so():
    rule = make_rule("mfec").rule
    assert not rule.by_gradient
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    for gradient in gradients(rule, batch, targets).values():
        np.testing.assert_array_equal(gradient, 0)


def test_an_invalid_step_contributes_nothing(rule):
    """Whatever reward a cut-off step shows, the gradient, the state and the metrics are the same; and it gets no gradient."""
    batch = random_batch(rule, valid=with_cut(3, 1))
    experience = batch.experience
    other = batch._replace(experience=experience._replace(reward=experience.reward.at[3, 1].set(100.0)))
    results = []
    for each in (batch, other):
        targets, state, metrics = make_targets(rule, each)
        _, loss_metrics = rule.loss(init_params(rule), taken_predictions(rule, each), targets, each.experience)
        results.append((gradients(rule, each, targets), state, metrics, loss_metrics))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), *results)
    for gradient in results[0][0].values():
        np.testing.assert_array_equal(gradient[3, 1], 0)


def test_streams_are_independent_given_the_targets(rule):
    """The learner splits a batch by streams: the losses of the parts are the parts of the loss."""
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    taken = taken_predictions(rule, batch)
    whole, _ = rule.loss(init_params(rule), taken, targets, batch.experience)
    experience = batch.experience._replace(memory=(), observation=())
    part, _ = rule.loss(init_params(rule), *jax.tree.map(lambda x: x[:, 1:2], (taken, targets, experience)))
    np.testing.assert_allclose(part, whole[:, 1:2], rtol=1e-5)


def test_float64_stays_float64(rule):
    with jax.enable_x64(True):
        batch = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, random_batch(rule))
        targets, _, _ = make_targets(rule, batch)
        loss, _ = rule.loss(init_params(rule), taken_predictions(rule, batch), targets, batch.experience)
        assert {leaf.dtype for leaf in jax.tree.leaves((targets, loss))} == {jnp.dtype(jnp.float64)}


def test_a_compiled_scan_gives_what_a_plain_loop_gives(rule):
    """A lifetime can be one compiled loop: state keeps its structure and types, and carries over from update to update."""
    batches, start = [random_batch(rule, seed) for seed in range(3)], rule.start(jax.random.key(0))

    def step(state, batch):
        targets, state, metrics = rule.targets({}, state, batch)
        return state, (targets, metrics)

    state, outputs = jax.lax.scan(step, start, jax.tree.map(lambda *each: jnp.stack(each), *batches))
    expected = start
    for index, batch in enumerate(batches):
        expected, wanted = step(expected, batch)
        for found, right in zip(jax.tree.leaves(outputs), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(found[index], right, rtol=2e-5, atol=1e-6)
    for found, right, before in zip(*map(jax.tree.leaves, (state, expected, start)), strict=True):
        assert found.dtype == before.dtype
        np.testing.assert_allclose(found, right, rtol=2e-5, atol=1e-6)
