"""A learned drift starts as PPO's, exactly; it is moved by evolution, and by gradients once it says something."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.agents import make_agent
from rulax.learning.update import Learner, init_learner_state, update
from rulax.rules.lpo import LEARNING, NETWORK, lpo, shrink
from rulax.rules.lpo_sizes import DriftConstants, DriftSizes
from rulax.rules.ppo import LEARNING as PPO_LEARNING
from rulax.rules.ppo import NETWORK as PPO_NETWORK
from rulax.rules.ppo import ppo
from rulax.rules.registry import make_rule
from tests.rules.data import A, init_params, make_targets, mean_loss, random_batch, taken_predictions, with_cut

SMALL = lpo(DriftSizes(8))


def test_it_starts_as_ppo_exactly():
    """Not only closely: loss, metrics and gradients of a policy that has moved are the same numbers, with and without compiling."""
    plain = ppo()
    batch = random_batch(plain, valid=with_cut())
    params = init_params(SMALL)
    assert float(jnp.abs(params["hidden"]).max()) > 0.1
    ours, theirs = (make_targets(rule, batch) for rule in (SMALL, plain))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    taken = taken_predictions(plain, batch)
    for scale in (1.0, 1.5, 3.0, -1.0):
        moved = taken | {"policy": scale * taken["policy"]}
        losses = [rule.loss(each, moved, ours[0], batch.experience) for rule, each in ((SMALL, params), (plain, {}))]
        np.testing.assert_array_equal(losses[0][0], losses[1][0])
        assert all(losses[0][1][name] == losses[1][1][name] for name in losses[0][1])
        grads = [
            jax.grad(lambda each, rule=rule, of=of: mean_loss(rule, each, ours[0], batch.experience, of))(moved)
            for rule, of in ((SMALL, params), (plain, {}))
        ]
        jax.tree.map(np.testing.assert_array_equal, *grads)
    assert losses[0][1]["drift"] > 0.1


def test_several_epochs_on_one_set_of_targets_move_an_agent_as_ppo_does():
    """A whole update of four epochs: at first to the same agent; with other weights to another one; and the first step alone to
    the same one whatever the weights, since at ratio 1 every drift is inert."""

    def updated(rule, params, epochs):
        learner = Learner(rule, optax.sgd(0.5), epochs=epochs)
        batch = random_batch(rule, seed=3)
        experience = batch.experience._replace(observation=jax.random.normal(jax.random.key(2), (7, 3, 4)))
        network = dataclasses.replace(PPO_NETWORK, torso="mlp", hidden=(8,))
        agent = make_agent(jax.random.key(0), jax.ShapeDtypeStruct((4,), jnp.float32), A, rule.heads(A), network)
        state = init_learner_state(learner, agent, jax.random.key(1))
        # What acted is the agent itself, as in training.
        policy = agent.predict(agent.heads.begin(agent.torso(experience.observation[:-1])))["policy"]
        experience = experience._replace(behaviour=policy)
        return update(learner, params, state, experience, jax.random.key(4))[0].params

    params = init_params(SMALL)
    other = params | {"output": jax.random.normal(jax.random.key(5), params["output"].shape)}
    same = lambda a, b: max(float(jnp.abs(x - y).max()) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))  # noqa: E731
    plain = updated(ppo(), {}, 4)
    assert same(updated(SMALL, params, 4), plain) == 0
    assert same(updated(SMALL, other, 4), plain) > 1e-4
    assert same(updated(SMALL, other, 1), updated(ppo(), {}, 1)) == 0


def test_extreme_ratios_leave_everything_finite():
    params = init_params(lpo(DriftSizes(8), DriftConstants(first_std=1.0)))
    batch = random_batch(SMALL)
    targets, _, _ = make_targets(SMALL, batch)
    taken = taken_predictions(SMALL, batch)
    moved = taken | {"policy": 25 * taken["policy"]}  # log ratios down to -60 and up to a few
    grads = jax.grad(lambda p, each: mean_loss(SMALL, each, targets, batch.experience, p), (0, 1))(params, moved)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize(("value", "left", "slope"), [(0.0, 0, 0), (0.05, 0, 0), (-0.1, 0, 0), (0.3, 0.2, 1), (-0.3, -0.2, 1)])
def test_the_first_of_a_number_does_not_count(value, left, slope):
    np.testing.assert_allclose(jax.value_and_grad(shrink)(value, 0.1), (left, slope), atol=1e-7)


def test_the_weights_have_a_gradient_once_the_network_says_something():
    """Against finite differences in float64, where a meta-gradient would enter; with the first weights there is none."""
    step = 1e-6
    with jax.enable_x64(True):
        rule = lpo(DriftSizes(4), DriftConstants(first_std=0.5))
        batch = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, random_batch(rule))
        targets, _, _ = make_targets(rule, batch)
        taken = taken_predictions(rule, batch)
        moved = taken | {"policy": 2 * taken["policy"]}
        mean = jax.jit(lambda params: mean_loss(rule, moved, targets, batch.experience, params))
        params = init_params(rule)
        exact = jax.grad(mean)(params)
        for seed in range(3):
            direction = jax.tree.map(lambda x, seed=seed: jax.random.normal(jax.random.key(seed), x.shape), params)
            ends = (mean(jax.tree.map(lambda p, d, s=s: p + s * step * d, params, direction)) for s in (1, -1))
            slope = sum(jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (exact, direction)), strict=True))
            np.testing.assert_allclose(slope, np.subtract(*ends) / (2 * step), rtol=1e-6)
            assert abs(float(slope)) > 1e-4
        still = jax.grad(mean)(params | {"output": jnp.zeros_like(params["output"])})
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(still))


def test_its_settings_are_ppos_and_its_options_those_of_both_dataclasses():
    assert (LEARNING, NETWORK) == (PPO_LEARNING, PPO_NETWORK)
    rule = make_rule("lpo", drift_hidden=5, clip=0.1, bins=31).rule
    assert init_params(rule)["hidden"].shape == (8, 5)
    assert rule.heads(A)["value"].size == 31
    assert sum(leaf.size for leaf in jax.tree.leaves(init_params(make_rule("lpo").rule))) == 1152
    with pytest.raises(ValueError, match="clip must not be negative"):
        make_rule("lpo", clip=-1.0)
