"""Evolution over whole lives, against lives that are lived update by update and a sum over perturbations that is written out."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.discovery.discover import Discoverer
from rulax.discovery.estimators import draw_noise, evolution
from rulax.discovery.population import init_population
from rulax.discovery.whole_life import Lived, reward_per_episode, whole_life_problem
from rulax.learning.life import sample_and_update, split_keys, store
from rulax.learning.rollout import act
from tests.discovery.families import LEARNING, make_family, rule_params

EPISODE = 3  # steps, of `Counter`
NOISE = 0.5
FAMILY = functools.partial(make_family, dataclasses.replace(LEARNING, learning_rate=0.5), estimator="evolution", fitness="lifetime")


@functools.cache
def members():
    """Two fresh agents with lives of two and of five updates."""
    made = jax.jit(lambda key: init_population(FAMILY(agents=2), key))(jax.random.key(0))
    return made._replace(budget=jnp.array([2, 5]))


def one(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


@functools.cache
def one_update():
    """One iteration of a life, of the functions that training uses: the life, and the reward that the environment paid."""
    family = FAMILY()

    @jax.jit
    def iterate(params, life):
        keys = split_keys(life)
        actor, experience, _ = act(family.streams, life.learner_state.params, life.actor, LEARNING.unroll, keys.act)
        life = store(life._replace(actor=actor), experience)
        state, *_ = sample_and_update(family.learner, family.recipe.learning, params, life, experience, keys.learn)
        return life._replace(learner_state=state, key=keys.life), jnp.sum(experience.reward)

    return iterate


def lived_by_hand(params, life, updates):
    total = 0.0
    for _ in range(updates):
        life, reward = one_update()(params, life)
        total += float(reward)
    return life, total


def fitness_by_hand(params, member):
    """Every step is valid here, and every stream begins an episode at the start and one every three steps."""
    updates = int(member.budget)
    begun = LEARNING.streams * (1 + updates * LEARNING.unroll // EPISODE)
    return lived_by_hand(params, member.life, updates)[1] / begun


def test_every_agent_lives_to_the_end_of_its_own_budget():
    problem = whole_life_problem(FAMILY())
    after, lived, metrics = jax.jit(jax.vmap(lambda member: problem.live(problem.updates, rule_params(), member)))(members())
    np.testing.assert_array_equal(after.age, members().budget)
    np.testing.assert_array_equal(after.life.learner_state.updates, members().budget)
    np.testing.assert_array_equal(metrics["episodes"], lived.episodes - LEARNING.streams)
    for index in range(2):
        member = one(members(), index)
        life, reward = lived_by_hand(rule_params(), member.life, int(member.budget))
        np.testing.assert_allclose(lived.reward[index], reward, rtol=1e-5)
        np.testing.assert_array_equal(jax.random.key_data(after.life.key[index]), jax.random.key_data(life.key))
        ours, wanted = jax.tree.leaves(one(after.life.learner_state.params, index)), jax.tree.leaves(life.learner_state.params)
        for a, b in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_life_goes_on_from_its_age():
    problem, member = whole_life_problem(FAMILY()), one(members(), 0)
    after, _, _ = jax.jit(lambda member: problem.live(problem.updates, rule_params(), member))(
        member._replace(age=member.budget - 1)
    )
    assert [int(after.age), int(after.life.learner_state.updates)] == [int(member.budget), 1]


def test_evolution_is_the_sum_over_antithetic_lives_with_the_same_random_numbers():
    problem, member, pairs = whole_life_problem(FAMILY()), one(members(), 0), 2
    estimate = functools.partial(evolution, problem, pairs=pairs, noise=NOISE, shaping="values")
    grads, after, metrics = jax.jit(estimate)(rule_params(), member)
    entered, key = problem.split_key(member)
    noise = draw_noise(rule_params(), pairs, key)
    wanted, found = jax.tree.map(lambda e: np.zeros(e.shape[1:]), noise), []
    for index in range(pairs):
        for sign in (1, -1):
            direction = jax.tree.map(lambda e, sign=sign, index=index: sign * e[index], noise)
            perturbed = jax.tree.map(lambda p, e: p + NOISE * e, rule_params(), direction)
            found.append(fitness_by_hand(perturbed, entered))
            wanted = jax.tree.map(lambda total, e, f=found[-1]: total - f * np.asarray(e) / (2 * pairs * NOISE), wanted, direction)
    assert np.std(found) > 0.05, "or the rules would make no difference here"
    np.testing.assert_allclose([metrics["fitness"], metrics["fitness_spread"]], [np.mean(found), np.std(found)], rtol=1e-4)
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4), grads, wanted)
    life, _ = lived_by_hand(rule_params(), entered.life, int(member.budget))
    np.testing.assert_array_equal(jax.random.key_data(after.life.key), jax.random.key_data(life.key))


def test_the_fitness_tells_agents_apart_where_every_step_pays_the_same():
    """As on CartPole (more steps per episode are better) and MountainCar (fewer are); an agent that never finishes has a score."""
    steps = 12.0

    def fitness(reward, ended):
        return float(reward_per_episode(None, Lived(jnp.float32(reward), jnp.float32(1 + ended)), {}))

    assert fitness(steps, 0) > fitness(steps, 1) > fitness(steps, 3)
    assert fitness(-steps, 0) < fitness(-steps, 1) < fitness(-steps, 3)


def test_every_meta_step_begins_with_fresh_agents():
    discoverer = Discoverer([FAMILY(lifetimes=(2, 3), pairs=2, noise=NOISE)], 2)
    state = discoverer.init(jax.random.key(0), rule_params())
    moved = []
    for step in (1, 2):
        before = jax.tree.map(np.asarray, state.meta_params)
        state, metrics = discoverer.advance(state)
        moved.append(any(np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (before, state.meta_params)), strict=True)))
        (lived,) = state.members
        np.testing.assert_array_equal(lived.resets, step)
        np.testing.assert_array_equal(lived.age, lived.budget)
        assert {"fitness", "episodes", "episode_return"} <= metrics["counter"].keys()
    assert any(moved)


@pytest.mark.parametrize("estimator", ["backprop", "first_order"])
def test_nothing_differentiates_a_whole_life(estimator):
    with pytest.raises(ValueError, match=f"fitness lifetime needs estimator evolution: estimator {estimator}"):
        make_family(estimator=estimator, fitness="lifetime")
