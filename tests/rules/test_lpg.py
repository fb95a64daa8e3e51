"""A learned policy gradient: targets beside plain loops, cuts, loss, meta-gradient, discovery."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.discovery.discover import Discoverer
from rulax.discovery.outer_loss import penalties
from rulax.discovery.population import Family
from rulax.rules.base import Recipe
from rulax.rules.lpg import lpg
from rulax.rules.lpg_sizes import LpgConstants, LpgSizes
from rulax.rules.registry import make_rule
from rulax.settings import Learning, Network
from rulax.types import now
from tests.discovery.environments import ACTIONS, SETTINGS, jitted_record, make_learner
from tests.discovery.test_memory import assert_derivative, outcome_of
from tests.learning.environments import Counter
from tests.rules.data import A, B, T, gradients, init_params, make_targets, mean_loss, random_batch, taken_predictions, with_cut

SMALL = lpg(LpgSizes(prediction_size=5, hidden=7, encoder_hidden=4))


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def targets_by_loops(network, batch, discount=0.99):
    """As the docstring says, one stream and one step at a time, in NumPy."""
    network, online = (jax.tree.map(lambda x: np.asarray(x, np.float64), each) for each in (network, batch.online))
    reward, going_on, valid, action = (np.asarray(getattr(batch.experience, n)) for n in ("reward", "discount", "valid", "action"))
    first = np.asarray(batch.experience.first)
    # A step that starts an episode did happen, even if it may not be learned from.
    known = valid | ((first[:-1] > 0) & ((going_on == 0) | (first[1:] == 0)))
    y, policy = softmax(online["state_prediction"]), softmax(online["policy"])

    def encode(distribution):
        hidden, out = network.encoder.layers
        return (np.maximum(distribution @ hidden.weight + hidden.bias, 0) @ out.weight + out.bias)[0]

    weights, predictions = np.zeros((T, B)), np.zeros((T, B, y.shape[-1]))
    lstm = network.trajectory
    for b in range(B):
        h = c = np.zeros(lstm.weight_hidden.shape[0])
        for t in reversed(range(T)):
            ended = going_on[t, b] == 0 or (first[t + 1, b] > 0 and not valid[t, b])
            if ended or not known[t, b] or (t + 1 < T and not known[t + 1, b]):
                h = c = np.zeros_like(h)
            coming = 0.0 if ended else encode(y[t + 1, b])
            x = np.array([reward[t, b], going_on[t, b], discount, policy[t, b, action[t, b]], encode(y[t, b]), coming])
            write, candidate, forget, output = np.split(x @ lstm.weight_input + lstm.bias + h @ lstm.weight_hidden, 4)
            c = sigmoid(forget + 1) * c + sigmoid(write) * np.tanh(candidate)
            h = sigmoid(output) * np.tanh(c)
            weights[t, b] = (h @ network.policy_weight.weight + network.policy_weight.bias)[0]
            predictions[t, b] = h @ network.state_prediction.weight + network.state_prediction.bias
    return weights, predictions


@pytest.mark.parametrize("cut", [None, with_cut(3, 1)])
def test_targets_are_those_of_plain_loops(cut):
    batch = random_batch(SMALL, valid=cut)
    if cut is not None:
        first = batch.experience.first.at[4, 1].set(1)  # a time limit: the cut-off step, then another episode
        batch = batch._replace(experience=batch.experience._replace(first=first))
    targets, _, _ = make_targets(SMALL, batch)
    weights, predictions = targets_by_loops(init_params(SMALL), batch)
    np.testing.assert_allclose(targets["policy_weight"], weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(targets["state_prediction"], predictions, rtol=1e-4, atol=1e-5)


def test_nothing_reaches_back_across_an_end_or_from_a_step_that_is_not_valid():
    """The termination is at step 2 of stream 0, the cut-off at step 3 of stream 1."""
    batch = random_batch(SMALL, valid=with_cut(3, 1))
    plain = make_targets(SMALL, batch)[0]["policy_weight"]

    def changed(step, stream):
        reward = batch.experience.reward.at[step, stream].add(5.0)
        moved = make_targets(SMALL, batch._replace(experience=batch.experience._replace(reward=reward)))[0]["policy_weight"]
        return np.abs(np.asarray(moved - plain)) > 1e-7

    later = changed(4, 0)
    assert later[3:5, 0].all()
    assert not later[:3].any()
    assert not changed(3, 1)[:3].any()
    assert changed(3, 2)[:4, 2].all()


def test_the_loss_is_its_formula_and_an_invalid_step_gets_no_gradient():
    batch = random_batch(SMALL, valid=with_cut(3, 1))
    targets, _, _ = make_targets(SMALL, batch)
    taken = taken_predictions(SMALL, batch)
    loss, metrics = SMALL.loss(init_params(SMALL), taken, targets, batch.experience)
    y, wanted, policy = (
        softmax(np.asarray(each)) for each in (taken["state_prediction"], targets["state_prediction"], taken["policy"])
    )
    log_pi = np.log(np.take_along_axis(policy, np.asarray(batch.experience.action)[..., None], -1)[..., 0])
    divergence = (y * np.log(y / wanted)).sum(-1)
    np.testing.assert_allclose(loss, -targets["policy_weight"] * log_pi + 0.5 * divergence, rtol=1e-4, atol=1e-5)
    assert float(metrics["state_prediction_loss"]) > 0
    for gradient in gradients(SMALL, batch, targets).values():
        assert (gradient[3, 1] == 0).all()
        assert jnp.abs(gradient).max() > 1e-6


def test_a_positive_weight_makes_the_action_more_probable():
    batch = random_batch(SMALL)
    targets = make_targets(SMALL, batch)[0] | {"policy_weight": jnp.ones((T, B))}
    slope = gradients(SMALL, batch, targets)["policy"]
    assert (np.take_along_axis(np.asarray(slope), np.asarray(batch.experience.action)[..., None], -1) < 0).all()


def test_one_set_of_weights_serves_any_number_of_actions():
    """Only the probability of the action taken is read: the same one among 3 and among 5 actions gives the same targets."""
    batch = random_batch(SMALL)
    never = jnp.full((T + 1, B, 2), -jnp.inf)
    wider = {**batch.online, "policy": jnp.concatenate([batch.online["policy"], never], -1)}
    assert SMALL.heads(5)["policy"].size == 5
    both = [make_targets(SMALL, each)[0] for each in (batch, batch._replace(online=wider))]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), *both)


def test_penalties_are_mean_squares_over_valid_steps():
    batch = random_batch(SMALL, valid=with_cut(3, 1))
    targets, _, _ = make_targets(SMALL, batch)
    found = penalties(targets, batch)
    valid = np.asarray(batch.experience.valid)
    np.testing.assert_allclose(found["policy_weight_square"], np.square(targets["policy_weight"])[valid].mean(), rtol=1e-5)
    peaked = np.square(softmax(np.asarray(targets["state_prediction"]))).sum(-1)[valid].mean()
    np.testing.assert_allclose(found["state_prediction_square"], peaked, rtol=1e-5)


@pytest.mark.parametrize("strategy", ["remat", pytest.param("mixed", marks=pytest.mark.slow)])
def test_the_meta_gradient_is_that_of_finite_differences(strategy):
    """Through two updates in float64. A ReLU in the encoder of y has kinks, but none within the tiny steps."""
    with jax.enable_x64(True):
        learner = make_learner(SMALL, optax.adam(0.1, eps=1e-2, eps_root=1e-4))
        compiled = outcome_of(learner, strategy, jitted_record(learner, 2))
        params = jax.jit(SMALL.init)(jax.random.key(0))
        grads = compiled(params)[1]
        assert np.abs(grads.policy_weight.weight).max() > 1e-9
        assert np.abs(grads.state_prediction.weight).max() > 1e-9
        assert_derivative(lambda p: compiled(p)[0], params, grads)


def test_it_is_discovered():
    """Two meta-steps of the real thing: every weight moves, and no agent is lost."""
    settings = dataclasses.replace(SETTINGS, memory="remat", meta_optimiser="mean")
    recipe = Recipe(SMALL, Learning(streams=2, unroll=3, learning_rate=0.3), Network(torso="mlp", hidden=(4,), activation="tanh"))
    discoverer = Discoverer([Family("counter", Counter(num_actions=ACTIONS), recipe, settings)], 2)
    state = discoverer.init(jax.random.key(0))
    before = jax.tree.map(np.asarray, state.meta_params)
    while not discoverer.done(state):
        state, metrics = discoverer.advance(state)
        assert metrics[""]["bad_agents"] == 0
    moved = jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - b).max()), state.meta_params, before)
    assert min(jax.tree.leaves(moved)) > 0


def test_its_options_are_those_of_both_dataclasses():
    rule = make_rule("lpg", prediction_size=8, hidden=3, prediction_cost=0.1).rule
    assert rule.heads(A)["state_prediction"].size == 8
    assert init_params(rule).trajectory.size == 3
    with pytest.raises(ValueError, match="prediction_cost must not be negative"):
        make_rule("lpg", prediction_cost=-1.0)
    batch = random_batch(SMALL)
    targets, _, _ = make_targets(SMALL, batch)
    taken = taken_predictions(SMALL, batch)
    free = lpg(LpgSizes(5, 7, 4), LpgConstants(prediction_cost=0.0))
    without = mean_loss(free, taken, targets, batch.experience)
    assert without != mean_loss(SMALL, taken, targets, batch.experience)
    assert now(batch.online["policy"]).shape == (T, B, A)
