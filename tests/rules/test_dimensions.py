"""Actions of several dimensions: joint quantities against all joint actions, and rules that look at one dimension at a time."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.disco import disco
from rulax.rules.registry import make_rule
from rulax.types import Batch, Factored, logits_of, now
from rulax.values.policies import entropy, kl, log_probability
from tests.metanet.environments import SMALL
from tests.rules.data import T, make_targets, random_batch, taken_predictions
from tests.shared import weights

D, A = 3, 4
SLOW = ("actor_critic", "policy_gradient", "ppo_targets", "q_learning", "disco103")  # as the others, each in seconds
EVERY = np.array(list(itertools.product(range(A), repeat=D)))  # [A^D, D]


def random_policy(seed):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(2, D, A)), jnp.float32)


def over_joint_actions(logits):
    """Probabilities of all joint actions [2, A^D], by multiplication in float64."""
    numbers = np.exp(np.asarray(logits, np.float64))
    numbers /= numbers.sum(-1, keepdims=True)
    return np.stack([[np.prod(one[np.arange(D), action]) for action in EVERY] for one in numbers])


def test_log_probabilities_are_of_the_joint_action():
    logits = random_policy(0)
    joint = over_joint_actions(logits)
    np.testing.assert_allclose(joint.sum(-1), 1)
    shown = [log_probability(Factored(logits), jnp.broadcast_to(action, (2, D))) for action in EVERY]
    np.testing.assert_allclose(np.stack(shown, -1), np.log(joint), rtol=1e-5)


def test_entropy_and_divergence_are_those_over_joint_actions():
    one, other = random_policy(0), random_policy(1)
    p, q = over_joint_actions(one), over_joint_actions(other)
    np.testing.assert_allclose(entropy(Factored(one)), -(p * np.log(p)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(kl(Factored(one), Factored(other)), (p * np.log(p / q)).sum(-1), rtol=1e-4)


def side_by_side(batches):
    """One batch of D dimensions from batches of one choice that share what happened; heads per state are the first's."""
    first = batches[0]

    def together(name, parts):
        if name == "policy":
            return Factored(jnp.stack(parts, 2))
        return jnp.stack(parts, 2) if parts[0].ndim == 4 else parts[0]

    online, slow = (
        {name: together(name, [getattr(each, kind)[name] for each in batches]) for name in first.online}
        for kind in ("online", "slow")
    )
    behaviour = Factored(jnp.stack([each.experience.behaviour for each in batches], 2))
    action = jnp.stack([each.experience.action for each in batches], 2)
    return Batch(first.experience._replace(action=action, behaviour=behaviour), online, slow)


def taken_together(rule, batches):
    parts = [taken_predictions(rule, each) for each in batches]
    heads = rule.heads(3)
    stacked = {name: jnp.stack([part[name] for part in parts], 2) for name in heads if heads[name].per_action}
    joint = {name: parts[0][name] for name in heads if not heads[name].per_action}
    return joint | stacked | {"policy": Factored(jnp.stack([part["policy"] for part in parts], 2))}


def same_events(rule, number):
    """Batches that differ in policies, choices and predictions, but not in rewards and ends."""
    batches = [random_batch(rule, seed) for seed in range(number)]
    shared = batches[0].experience
    keep = {"reward": shared.reward, "discount": shared.discount, "first": shared.first, "valid": shared.valid}
    return [each._replace(experience=each.experience._replace(**keep)) for each in batches]


@pytest.mark.parametrize("name", ["ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW), "disco"])
def test_one_dimension_is_one_choice(name, monkeypatch):
    """Targets, rule state, loss and its gradient are the same numbers, bit by bit."""
    if name == "disco103":
        monkeypatch.setenv("RULAX_RULES", str(weights().parent))
    rule = disco(SMALL) if name == "disco" else make_rule(name).rule
    batch = random_batch(rule)
    single = side_by_side([batch])
    targets, state, _ = make_targets(rule, batch)
    single_targets, single_state, _ = make_targets(rule, single)
    for one, other in zip(jax.tree.leaves((targets, state)), jax.tree.leaves((single_targets, single_state)), strict=True):
        np.testing.assert_array_equal(one, jnp.reshape(other, one.shape))

    def slopes(taken, targets, experience):
        def total(predictions):
            loss, _ = rule.loss({}, predictions, targets, experience)
            return loss.sum(), loss

        return jax.grad(total, has_aux=True)(taken)

    expected, loss = slopes(taken_predictions(rule, batch), targets, batch.experience)
    found, single_loss = slopes(taken_together(rule, [batch]), single_targets, single.experience)
    np.testing.assert_array_equal(loss, single_loss)
    for key, value in expected.items():
        np.testing.assert_array_equal(value, jnp.reshape(logits_of(found[key]), value.shape))


def test_q_learning_teaches_each_dimension_as_if_it_were_alone():
    rule = make_rule("q_learning").rule
    batches = same_events(rule, 2)
    targets, _, _ = make_targets(rule, side_by_side(batches))
    loss, _ = rule.loss({}, taken_together(rule, batches), targets, side_by_side(batches).experience)
    alone = 0.0
    for dimension, each in enumerate(batches):
        expected, _, _ = make_targets(rule, each)
        np.testing.assert_allclose(targets["value"][:, :, dimension], expected["value"], rtol=1e-5)
        alone += rule.loss({}, taken_predictions(rule, each), expected, each.experience)[0]
    np.testing.assert_allclose(loss, alone, rtol=1e-5)


@pytest.mark.parametrize("name", [pytest.param("disco", marks=pytest.mark.slow), "ppo_targets"])
def test_twin_dimensions_get_the_targets_of_one(name):
    """Whatever a rule pools over the batch, two dimensions that are alike in everything are taught what one is taught."""
    rule = disco(SMALL) if name == "disco" else make_rule(name).rule
    batch = random_batch(rule)
    twins = side_by_side([batch, batch])
    expected, state, _ = make_targets(rule, batch)
    targets, twin_state, _ = make_targets(rule, twins)
    for key, value in expected.items():
        assert targets[key].shape == (T, value.shape[1], 2, *value.shape[2:])
        np.testing.assert_allclose(targets[key], jnp.stack([value, value], 2), rtol=1e-4, atol=1e-5)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(twin_state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)

    def slopes(taken, targets, experience):
        return jax.grad(lambda predictions: rule.loss({}, predictions, targets, experience)[0].sum())(taken)

    plain = slopes(taken_predictions(rule, batch), expected, batch.experience)
    twin = slopes(taken_together(rule, [batch, batch]), targets, twins.experience)
    for key, head in rule.heads(3).items():
        once = jnp.stack([plain[key]] * 2, 2) if head.per_action or key == "policy" else plain[key]
        found = twin[key].logits if key == "policy" else twin[key]
        np.testing.assert_allclose(found, once, rtol=1e-4, atol=1e-6)  # per state: the mean of two opinions, not their sum


def test_rules_ask_for_the_ratio_of_the_joint_action():
    """V-trace of actor-critic: on a batch in which every dimension halved its probability, the ratio is 1/4."""
    rule = make_rule("actor_critic").rule
    batch = side_by_side(same_events(rule, 2))
    logits = now(batch.online["policy"]).logits
    taken = jax.nn.one_hot(batch.experience.action, logits.shape[-1])
    chance = jax.nn.softmax(logits)
    doubled = jnp.where(taken > 0, 2 * jnp.minimum(chance, 0.4), 0)
    others = (1 - doubled.sum(-1, keepdims=True)) / (logits.shape[-1] - 1)
    behaviour = Factored(jnp.log(jnp.where(taken > 0, doubled, others)))
    policy = jnp.where(taken > 0, jnp.minimum(chance, 0.4), (1 - (doubled / 2).sum(-1, keepdims=True)) / (logits.shape[-1] - 1))
    online = batch.online | {"policy": Factored(jnp.log(jnp.concatenate([policy, policy[-1:]])))}
    _, _, metrics = make_targets(rule, Batch(batch.experience._replace(behaviour=behaviour), online, batch.slow))
    np.testing.assert_allclose(metrics["ratio"], 0.25, rtol=1e-5)
