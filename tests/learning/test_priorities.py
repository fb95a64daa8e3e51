"""Prioritised replay: frequencies and weights in closed form, what is new and what is overwritten, and the same on the host."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.commands.build import make_recipe
from rulax.discovery.population import Family
from rulax.discovery.settings import Discovery
from rulax.envs.registry import make
from rulax.errors import UserError
from rulax.learning import host_replay, priorities
from rulax.learning import replay as ring
from rulax.learning.life import make_learner
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.learning.update import mean_loss
from rulax.rules.registry import make_rule
from tests.learning.test_replay import trajectories
from tests.rules.data import T, make_targets, random_batch, taken_predictions

ALPHA, BETA = 0.6, 0.4


def prioritised(priority, filled=None):
    """A buffer of trajectories 1, 2, ... with the given priorities."""
    labels = np.arange(1, len(priority) + 1)
    buffer = ring.add(ring.start(trajectories(0 * labels), len(priority), prioritised=True), trajectories(labels))
    filled = len(priority) if filled is None else filled
    return buffer._replace(priority=jnp.asarray(priority, jnp.float32), filled=jnp.int32(filled))


def test_a_trajectory_has_the_priority_of_r2d2():
    errors = np.array([[1.0, -4.0, 0.0], [-3.0, np.nan, 0.0]])
    valid = np.array([[True, True, True], [True, False, True]])
    expected = np.array([0.9 * 3 + 0.1 * 2, 4.0, 0.0]) + 1e-6
    np.testing.assert_allclose(priorities.trajectory_priority(jnp.asarray(errors), jnp.asarray(valid)), expected, rtol=1e-6)
    nothing = priorities.trajectory_priority(jnp.full((2, 1), jnp.nan), jnp.zeros((2, 1), bool))
    np.testing.assert_allclose(nothing, [1e-6], rtol=1e-5)


def test_frequencies_and_weights_are_those_of_the_closed_form():
    priority, number = np.array([0.5, 4.0, 1.0, 2.0, 0.01, 0.0, 0.0]), 40_000
    buffer = prioritised(priority, filled=5)
    drawn = ring.draw(buffer, trajectories([1]), number, 1.0, jax.random.key(0), (ALPHA, BETA))
    mass = priority[:5] ** ALPHA / (priority[:5] ** ALPHA).sum()
    counts = np.bincount(np.asarray(drawn.places), minlength=7)
    assert (counts[5:] == 0).all()
    assert (np.abs(counts[:5] - number * mass) < 5 * np.sqrt(number * mass)).all()
    weight = (5 * mass) ** -BETA
    np.testing.assert_allclose(drawn.experience.weight[0], weight[drawn.places] / weight.max(), rtol=1e-5)
    np.testing.assert_array_equal(drawn.experience.reward[0], np.asarray(drawn.places) + 1)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_full_correction_undoes_the_preference(beta):
    """The weighted mean of anything is then that over the whole buffer: here of the labels 1 to 4."""
    buffer = prioritised([1.0, 2.0, 5.0, 0.5])
    drawn = ring.draw(buffer, trajectories([1]), 40_000, 1.0, jax.random.key(1), (1.0, beta))
    weight, labels = drawn.experience.weight[0], drawn.experience.reward[0]
    uniform, preferred = 2.5, (1 + 4 + 15 + 2) / 8.5
    np.testing.assert_allclose(jnp.sum(weight * labels) / jnp.sum(weight), uniform if beta else preferred, atol=0.03)


def test_what_is_new_has_the_largest_priority_and_overwrites_the_oldest():
    buffer = ring.start(trajectories([0, 0]), 4, prioritised=True)
    buffer = ring.add(buffer, trajectories([1, 2]))
    np.testing.assert_array_equal(buffer.priority, [1, 1, 0, 0])
    buffer = ring.add(buffer._replace(priority=buffer.priority.at[1].set(7.0)), trajectories([3, 4]))
    np.testing.assert_array_equal(buffer.priority, [1, 7, 7, 7])
    buffer = ring.add(buffer._replace(priority=jnp.array([1.0, 0.2, 0.5, 0.3])), trajectories([5, 6]))
    np.testing.assert_array_equal(buffer.priority, [1, 1, 0.5, np.float32(0.3)])
    np.testing.assert_array_equal(buffer.storage.reward[0], [5, 6, 3, 4])


def test_fresh_trajectories_weigh_one_and_are_found_in_the_buffer():
    fresh = trajectories([11, 12])
    buffer = ring.add(prioritised([1.0, 2.0, 3.0, 4.0]), fresh)
    drawn = ring.draw(buffer, fresh, 4, 0.5, jax.random.key(0), (ALPHA, BETA))
    np.testing.assert_array_equal(drawn.experience.weight[:, :2], 1)
    np.testing.assert_array_equal(buffer.storage.reward[0][drawn.places], drawn.experience.reward[0])


def test_the_host_draws_the_same():
    rng, seeds, streams = np.random.default_rng(0), 2, 2
    form = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[:1] + x.shape[2:], x.dtype), trajectories([0])._replace(memory=()))
    host = host_replay.HostReplay(form, seeds, streams, 6, prioritised=True)
    device = [ring.start(trajectories([0, 0])._replace(memory=()), 6, prioritised=True) for _ in range(seeds)]
    for step in range(5):
        fresh = [trajectories([10 * seed + 2 * step + 1, 10 * seed + 2 * step + 2])._replace(memory=()) for seed in range(seeds)]
        together = jax.tree.map(lambda *each: np.stack([np.swapaxes(x, 0, 1) for x in each]), *fresh)
        host.add(together)
        device = [ring.add(buffer, each) for buffer, each in zip(device, fresh, strict=True)]
        np.testing.assert_array_equal(host.priority, [buffer.priority for buffer in device])
        keys = jax.random.split(jax.random.key(step), seeds)
        drawn = host_replay.draw(host, together, 4, 0.75, keys, (ALPHA, BETA))
        priority = rng.random((seeds, 4)).astype(np.float32)
        for seed in range(seeds):
            wanted = ring.draw(device[seed], fresh[seed], 4, 0.75, keys[seed], (ALPHA, BETA))
            np.testing.assert_array_equal(drawn.places[seed], wanted.places)
            np.testing.assert_allclose(np.swapaxes(drawn.experience.weight[seed], 0, 1), wanted.experience.weight, rtol=1e-6)
            np.testing.assert_array_equal(np.swapaxes(drawn.experience.reward[seed], 0, 1), wanted.experience.reward)
            # A place that was drawn twice gets one number in both, as in a life.
            priority[seed] = priority[seed][[list(drawn.places[seed]).index(place) for place in drawn.places[seed]]]
            device[seed] = device[seed]._replace(priority=device[seed].priority.at[wanted.places].set(priority[seed]))
        host.renew(drawn.places, priority)


@pytest.mark.parametrize("name", ["dqn", "q_learning"])
def test_weights_multiply_the_loss_and_priorities_are_temporal_difference_errors(name):
    rule = make_rule(name).rule
    batch = random_batch(rule)
    targets, _, metrics = make_targets(rule, batch)
    errors = rule.priority(targets, batch)
    assert errors.shape == batch.experience.reward.shape
    np.testing.assert_allclose(jnp.mean(errors), metrics["td_error"], rtol=1e-5)
    taken, weight = taken_predictions(rule, batch), jnp.broadcast_to(jnp.arange(3.0), (T, 3))
    losses, _ = rule.loss({}, taken, targets, batch.experience)
    weighted, _ = mean_loss(taken, rule, {}, targets, batch.experience._replace(weight=weight))
    np.testing.assert_allclose(weighted, jnp.mean(losses * weight), rtol=1e-5)


# -- in a life -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    """A short life on Catch with prioritised replay: the trainer, and its state after 20 and after 30 iterations."""
    recipe = make_rule("dqn")
    learning = dataclasses.replace(recipe.learning, replay_priority=ALPHA, warmup=8, capacity=32, batch=8)
    recipe = recipe._replace(learning=learning, network=dataclasses.replace(recipe.network, hidden=(8,), action_hidden=(8,)))
    trainer = make_trainer(make("catch"), recipe, TrainerConfig(seeds=2, total_steps=30 * 16))
    state = trainer.init(jax.random.key(0))
    while int(state.iteration) < 20:
        state, _ = trainer.advance(state, 20 - int(state.iteration))
    middle = jax.tree.map(jnp.copy, state)
    while not trainer.done(state):
        state, _ = trainer.advance(state)
    return SimpleNamespace(trainer=trainer, middle=middle, state=state)


def test_priorities_are_renewed_and_follow_the_agents(trained):
    priority = trained.state.life.replay.priority
    assert priority.shape == (2, 32)
    assert (priority > 0).all()
    assert len(np.unique(priority[0])) > 8
    assert not np.array_equal(priority[0], priority[1])


def test_a_life_goes_on_exactly_from_its_state(trained):
    state = trained.trainer.resume(jax.tree.map(jnp.copy, trained.middle))
    while not trained.trainer.done(state):
        state, _ = trained.trainer.advance(state)
    jax.tree.map(np.testing.assert_array_equal, state.life.replay.priority, trained.state.life.replay.priority)
    weights = lambda each: each.life.learner_state.params.heads.advantage.layers[0].weight  # noqa: E731
    np.testing.assert_array_equal(weights(state), weights(trained.state))


def test_uniform_replay_keeps_nothing_more():
    buffer = ring.start(trajectories([0, 0]), 4)
    assert buffer.priority == ()
    drawn = ring.draw(ring.add(buffer, trajectories([1, 2])), trajectories([1, 2]), 4, 1.0, jax.random.key(0))
    assert drawn.places == ()
    assert drawn.experience.weight is None


# -- errors --------------------------------------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence():
    with pytest.raises(UserError, match=r"replay_priority must not be negative, not -1"):
        make_recipe("dqn", {}, {"replay_priority": -1.0})
    with pytest.raises(UserError, match=r"replay_correction must lie between 0 and 1, not 2"):
        make_recipe("dqn", {}, {"replay_correction": 2.0})
    with pytest.raises(UserError, match=r"replay_priority \(0.6\) orders what is replayed, but replay is 0"):
        make_recipe("q_learning", {}, {"replay_priority": 0.6, "replay": 0.0})
    with pytest.raises(UserError, match="needs a rule that says how far off each step was"):
        make_recipe("ppo", {}, {"replay_priority": 0.6})
    ppo = make_recipe("actor_critic", {}, {"replay_priority": 0.6, "replay": 0.5})
    with pytest.raises(ValueError, match="needs a rule that says how far off each step was"):
        make_learner(ppo)
    dqn = make_recipe("dqn", {}, {"replay_priority": 0.6})
    with pytest.raises(ValueError, match="replay_priority is for training"):
        Family("catch", make("catch"), dqn, Discovery())
    # Recommended and not asked for, it goes with replay.
    assert make_recipe("", {}, {"replay": 0.0, "batch": 0}, dqn).learning.replay_priority == 0
