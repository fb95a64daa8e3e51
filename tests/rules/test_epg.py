"""An evolved loss: PPO at a share of 1, its own formula at 0, the buffer and its context, handover, discovery on both roads."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.discovery.discover import Discoverer
from rulax.discovery.meta_step import with_share
from rulax.discovery.population import Family
from rulax.discovery.settings import Discovery
from rulax.rules.base import Recipe
from rulax.rules.epg import RECORDED, append, epg, read_context
from rulax.rules.epg_sizes import EpgConstants, EpgSizes
from rulax.rules.ppo import ppo
from rulax.settings import Learning, Network
from tests.learning.environments import Counter
from tests.rules.data import B, T, gradients, init_params, make_targets, random_batch, taken_predictions, with_cut

SIZES = EpgSizes(buffer=40, first_channels=3, second_channels=4, context=5, loss_hidden=6)
DRAWN = EpgConstants(first_std=0.3)  # a loss that says something
ALONE, AS_PPO = epg(SIZES, DRAWN), epg(SIZES, EpgConstants(ppo_share=1.0))


def test_at_first_it_teaches_nothing():
    rule = epg(SIZES)
    batch = random_batch(rule)
    slopes = gradients(rule, batch, make_targets(rule, batch)[0])
    assert not np.any(slopes["policy"])
    assert np.any(slopes["value"])


def test_with_a_share_of_one_it_is_ppo():
    batch = random_batch(AS_PPO, valid=with_cut(3, 1))
    taken = taken_predictions(AS_PPO, batch)
    own, plain = make_targets(AS_PPO, batch)[0], make_targets(ppo(), batch)[0]
    loss, _ = AS_PPO.loss(init_params(AS_PPO), taken, own, batch.experience)
    expected, _ = ppo().loss({}, taken, plain, batch.experience)
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-6)
    for name, slope in gradients(AS_PPO, batch, own).items():
        np.testing.assert_allclose(slope, gradients(ppo(), batch, plain)[name], rtol=1e-4, atol=1e-6)


def context_by_loops(network, buffer):
    """Both convolutions and the mean, one window at a time, in NumPy."""
    found = np.asarray(buffer, np.float64)
    for kernel, stride in ((network.first, 5), (network.second, 2)):
        kernel = np.asarray(kernel, np.float64)
        rows = range(0, len(found) - len(kernel) + 1, stride)
        found = np.stack([np.einsum("wi,wio->o", found[row : row + len(kernel)], kernel) for row in rows])
        found = np.where(found > 0, found, 0.01 * found)
    return np.tanh(found.mean(0) @ np.asarray(network.context.weight) + np.asarray(network.context.bias))


def test_without_ppo_it_is_what_the_network_says():
    batch = random_batch(ALONE, valid=with_cut(3, 1))
    network, taken = init_params(ALONE), taken_predictions(ALONE, batch)
    targets, state, _ = make_targets(ALONE, batch)
    loss, metrics = ALONE.loss(network, taken, targets, batch.experience)
    policy, behaviour = (jax.nn.log_softmax(jnp.asarray(each)) for each in (taken["policy"], batch.experience.behaviour))
    action = np.asarray(batch.experience.action)[..., None]
    log_pi, log_mu = (np.take_along_axis(np.asarray(each), action, -1)[..., 0] for each in (policy, behaviour))
    randomness = -(np.exp(policy) * policy).sum(-1)
    said = np.stack([np.arcsinh(log_pi), np.arcsinh(log_pi - log_mu), randomness], -1)
    context = np.broadcast_to(context_by_loops(network, state["buffer"]), (T, B, SIZES.context))
    read = np.concatenate([targets["recorded"], said, context], -1)
    hidden = np.tanh(read @ np.asarray(network.hidden.weight) + np.asarray(network.hidden.bias))
    learned = (hidden @ np.asarray(network.output.weight) + np.asarray(network.output.bias))[..., 0]
    value_only = ppo(entropy_cost=0.0).loss({}, taken, targets | {"advantage": jnp.zeros((T, B))}, batch.experience)[0]
    np.testing.assert_allclose(loss, learned + value_only, rtol=1e-4, atol=1e-4)
    assert np.isfinite(float(metrics["learned_loss"]))


def test_the_buffer_keeps_the_latest_steps_stream_after_stream():
    buffer = jnp.arange(40.0)[:, None] * jnp.ones(RECORDED)
    steps = 100 + jnp.arange(T * B, dtype=jnp.float32).reshape(T, B, 1) * jnp.ones(RECORDED)
    after = append(buffer, steps)
    assert after.shape == buffer.shape
    np.testing.assert_array_equal(after[: 40 - T * B], buffer[T * B :])
    np.testing.assert_array_equal(after[-T:, 0], steps[:, -1, 0])


def test_an_empty_buffer_gives_the_same_context_whatever_it_would_hold():
    network = init_params(ALONE)
    context = read_context(network, jnp.zeros((40, RECORDED)))
    np.testing.assert_allclose(context, np.tanh(np.asarray(network.context.bias)), atol=1e-6)
    batch = random_batch(ALONE)
    assert np.abs(read_context(network, make_targets(ALONE, batch)[1]["buffer"]) - context).max() > 1e-4


def test_an_invalid_step_gets_no_gradient():
    batch = random_batch(ALONE, valid=with_cut(3, 1))
    targets, _, _ = make_targets(ALONE, batch)
    assert (np.asarray(targets["recorded"])[3, 1] == 0).all()
    for gradient in gradients(ALONE, batch, targets).values():
        assert (gradient[3, 1] == 0).all()
        assert jnp.abs(gradient).max() > 1e-6


LEARNING = Learning(streams=4, unroll=8, minibatches=2, learning_rate=1e-2)
RECIPE = Recipe(ALONE, LEARNING, Network(hidden=(8,)))
EVOLVING = Discovery(
    agents=2,
    lifetimes=(4,),
    estimator="evolution",
    fitness="end",
    pairs=2,
    noise=0.1,
    handover=2,
    critic_hidden=(4,),
    memory="plain",
)


def test_evolution_over_whole_lives_moves_the_loss_and_ppo_hands_over():
    discoverer = Discoverer([Family("counter", Counter(), RECIPE, EVOLVING)], 3)
    state = discoverer.init(jax.random.key(0))
    before = jax.tree.map(np.asarray, state.meta_params)
    shares = []
    for _ in range(3):
        state, _ = discoverer.advance(state)
        shares.append(float(state.members[0].life.learner_state.rule_state["ppo_share"][0]))
    assert shares == [1.0, 0.5, 0.0]
    moved = jax.tree.map(lambda a, b: np.abs(a - np.asarray(b)).max(), before, state.meta_params)
    assert min(jax.tree.leaves(moved)) > 0


def test_backprop_reaches_the_loss_network():
    settings = dataclasses.replace(EVOLVING, estimator="backprop", fitness="validation", window=2, validation_unroll=8, handover=0)
    discoverer = Discoverer([Family("counter", Counter(), RECIPE, settings)], 1)
    _, metrics = discoverer.advance(discoverer.init(jax.random.key(0)))
    assert (metrics["counter"]["meta_gradient_norm"] > 0).all()
    assert np.isfinite(metrics["counter"]["meta_gradient_norm"]).all()


def test_without_a_handover_members_are_left_alone():
    assert with_share("members", 0, 0) == "members"


def test_lifetimes_end_where_they_should():
    """The last quarter of four updates is one: what is earned in it alone is the fitness."""
    families = {
        fitness: Family("counter", Counter(), RECIPE, dataclasses.replace(EVOLVING, fitness=fitness, handover=0))
        for fitness in ("lifetime", "end")
    }
    from rulax.discovery.population import init_member
    from rulax.discovery.whole_life import live_to_the_end, whole_life_problem

    member = init_member(families["end"], jax.random.key(0))
    params, lived = init_params(ALONE), {}
    for fitness, family in families.items():
        _, lived[fitness], ended = live_to_the_end(family, whole_life_problem(family).updates, params, member)
    assert 0 < float(lived["end"].episodes) < float(lived["lifetime"].episodes)
    assert float(lived["end"].reward) < float(lived["lifetime"].reward)
    assert float(lived["lifetime"].episodes) == LEARNING.streams + float(ended["episodes"])


def test_sizes_below_what_the_convolutions_need_are_refused():
    from rulax.errors import UserError
    from rulax.rules.registry import make_rule

    with pytest.raises((UserError, ValueError), match="at least 32"):
        make_rule("epg", buffer=8)
