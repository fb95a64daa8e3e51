"""The discovered rule as a rule: its interface, its losses, and that one update by the learner works."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import make_agent
from rulax.learning.optimisers import make_optimiser
from rulax.learning.update import Learner, init_learner_state, update
from rulax.metanet.sizes import Constants
from rulax.rules.base import Recipe
from rulax.rules.disco import LEARNING, NETWORK, disco, heads, losses
from rulax.rules.registry import make_rule
from rulax.settings import Learning
from rulax.values.policies import kl
from tests.metanet.environments import SMALL, A, B, T, cut, random_batch, targets_of
from tests.metanet.test_ablations import taken


def test_the_table_has_it_and_options_reach_it():
    recipe = make_rule("disco", prediction_size=9, lifetime=False, discount=0.9)
    assert isinstance(recipe, Recipe)
    assert recipe.rule.heads(4)["state_prediction"].size == 9
    assert recipe.rule.start(jax.random.key(0)).lifetime == ()
    assert recipe.learning is LEARNING
    assert recipe.network is NETWORK
    with pytest.raises(ValueError, match=r"rule 'disco' has no option 'predction_size'; did you mean 'prediction_size'"):
        make_rule("disco", predction_size=9)


def test_the_clip_follows_adam():
    """A port that clips before Adam learns something else; the recipe must say the right one."""
    assert (LEARNING.clip_update, LEARNING.clip_gradient) == (1.0, 0.0)


def test_rules_differ_by_key_only():
    rule = disco(SMALL)
    a, b, c = (rule.init(jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert jnp.abs(a.trajectory.weight_input - c.trajectory.weight_input).max() > 0


def test_each_loss_is_zero_at_its_target():
    batch = random_batch()
    targets, _, _ = targets_of(batch)
    at_target = {name: targets[name] for name in heads(A, SMALL) if name != "value"} | {"value": taken(batch)["value"]}
    terms = losses(at_target, targets, batch.experience, SMALL)
    for name in at_target:
        if name != "value":
            np.testing.assert_allclose(terms[name], 0, atol=1e-6)


def test_the_next_policy_is_not_asked_for_across_an_end():
    batch = cut(random_batch(), 3, 1)
    targets, _, _ = targets_of(batch)
    found = losses(taken(batch), targets, batch.experience, SMALL)["next_policy"]
    expected = kl(batch.online["policy"][1:], taken(batch)["next_policy"])
    ended = np.zeros((T, B), bool)
    ended[2, 0] = ended[3, 1] = True
    np.testing.assert_allclose(found, np.where(ended, 0, expected), rtol=1e-5)


def test_costs_weigh_the_losses():
    batch = random_batch()
    targets, _, _ = targets_of(batch)
    terms = losses(taken(batch), targets, batch.experience, SMALL)
    costs = {f"{name}_cost": float(number) for number, name in enumerate(terms, 2)}
    loss, metrics = disco(SMALL, Constants(**costs)).loss({}, taken(batch), targets, batch.experience)
    np.testing.assert_allclose(loss, sum(costs[f"{name}_cost"] * term for name, term in terms.items()), rtol=1e-5)
    for name, term in terms.items():
        np.testing.assert_allclose(metrics[f"{name}_loss"], term.mean(), rtol=1e-5)


@pytest.mark.parametrize("core", ["none", pytest.param("lstm", marks=pytest.mark.slow)])
def test_the_learner_updates_an_agent_with_it(core):
    batch, rule = random_batch(), disco(SMALL)
    network = dataclasses.replace(NETWORK, hidden=(8,), action_model=4, action_hidden=(4,), core=core, core_size=8)
    spec = jax.ShapeDtypeStruct((3,), jnp.float32)
    agent = make_agent(jax.random.key(0), spec, A, rule.heads(A), network)
    learner = Learner(rule, make_optimiser(Learning(clip_update=1.0, learning_rate=1e-2)))
    state = init_learner_state(learner, agent, jax.random.key(1))
    observation = jax.random.normal(jax.random.key(2), (T + 1, B, 3))
    experience = batch.experience._replace(observation=observation, memory=agent.initial_memory(B))
    step = jax.jit(lambda network, state: update(learner, network, state, experience, jax.random.key(0)))
    rule_params = rule.init(jax.random.key(3))
    for _ in range(2):
        state, metrics = step(rule_params, state)
    assert all(jnp.isfinite(metric).all() for metric in metrics.values())
    moved = jax.tree.map(lambda new, old: jnp.abs(new - old).max(), state.params, agent)
    assert max(jax.tree.leaves(moved)) > 1e-3
    assert int(state.updates) == 2


@pytest.mark.slow  # as parity does, where the recorded data is
def test_it_runs_in_float64():
    with jax.enable_x64(True):
        batch = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, random_batch())
        targets, state, _ = targets_of(batch)
        loss, _ = disco(SMALL).loss({}, taken(batch), targets, batch.experience)
        assert {leaf.dtype for leaf in jax.tree.leaves((targets, state, loss))} == {jnp.dtype(jnp.float64)}


@pytest.mark.slow  # discovery, whose tests run always, is such a vmap
def test_many_lives_at_once():
    """A population is one `vmap`: over rules, lives and experience alike."""
    rule, batches = disco(SMALL), [random_batch(seed=seed) for seed in range(2)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    params = jax.vmap(rule.init)(jax.random.split(jax.random.key(0), 2))
    states = jax.vmap(rule.start)(jax.random.split(jax.random.key(0), 2))
    together, _, _ = jax.vmap(rule.targets)(params, states, stacked)
    one = jax.tree.map(lambda x: x[1], params)
    alone, _, _ = rule.targets(one, rule.start(jax.random.key(0)), batches[1])
    np.testing.assert_allclose(together["policy"][1], alone["policy"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["atari", "crafter", "dmlab", "nethack", "procgen", "sokoban"])
def test_the_papers_settings_can_be_run(name):
    from rulax.commands.settings import check_settings, override
    from rulax.commands.train.settings import build_train, check_train

    config = build_train({"preset": f"paper-{name}", "env": "catch"})
    check_train(config)
    learning = override(LEARNING, config.overrides)
    check_settings(learning, override(NETWORK, config.overrides))
    assert config.rule == "disco103"
    assert (learning.clip_gradient, learning.weight_decay > 0) == (0.0, True)
