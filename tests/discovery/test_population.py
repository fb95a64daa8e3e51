"""Lives: how long they are, who is replaced, and what a fresh agent has."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.discovery.discover import refresh_if_due
from rulax.discovery.memory import make_updates
from rulax.discovery.population import draw_budget, init_population, refresh
from rulax.discovery.window import live
from rulax.learning.update import step
from tests.discovery.families import LEARNING, make_family, population, rule_params

LIFETIMES = (10, 20, 50, 100)
KEY = 2  # with it, two of four agents are given a life of 4 updates and two one of 8


def test_budgets_are_drawn_with_probability_inverse_to_their_length():
    draws = 20_000
    found = jax.vmap(functools.partial(draw_budget, LIFETIMES))(jax.random.split(jax.random.key(0), draws))
    counts = np.array([(np.asarray(found) == length).sum() for length in LIFETIMES])
    shares = 1 / np.array(LIFETIMES) / np.sum(1 / np.array(LIFETIMES))
    assert counts.sum() == draws
    chi_square = np.sum((counts - draws * shares) ** 2 / (draws * shares))
    assert chi_square < 16.3  # three degrees of freedom: exceeded once in a thousand
    np.testing.assert_allclose(counts * LIFETIMES / (counts * LIFETIMES).sum(), 0.25, atol=0.02)  # equal shares of experience


@functools.cache
def lived():
    """Three agents: one in the middle of its life, one at its end, one whose budget was taken away; none is fresh."""

    def change(x):
        return x if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.ones_like(x)

    members = jax.tree.map(change, population(3))
    return members._replace(age=jnp.array([3, 8, 5]), budget=jnp.array([8, 8, 0]), resets=jnp.array([1, 4, 2]))


@functools.cache
def refreshed():
    return jax.jit(functools.partial(refresh, make_family(agents=3)))(lived())


def numbers(tree):
    """Leaves as NumPy arrays, by path; keys as their data."""

    def plain(x):
        return np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return {jax.tree_util.keystr(path): plain(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def test_those_whose_budget_is_spent_are_born_again_and_only_those():
    before, after = numbers(lived()), numbers(refreshed())
    for name, old in before.items():
        if name != ".life.key":  # it was split, so that a later birth is another
            np.testing.assert_array_equal(after[name][0], old[0], err_msg=name)
    np.testing.assert_array_equal(after[".resets"], [1, 5, 3])
    np.testing.assert_array_equal(after[".age"], [3, 0, 0])
    assert set(after[".budget"][1:]) <= {4, 8}
    for agent in (1, 2):
        weights = [
            name for name in before if name.startswith((".life.learner_state.params", ".critic.params")) and "weight" in name
        ]
        assert weights
        assert all((after[name][agent] != 1).any() for name in weights)


def test_a_fresh_agent_has_a_task_of_its_own_and_has_seen_nothing():
    after = refreshed()
    task = np.asarray(after.life.actor.task)
    assert task[0] == 1  # who lives on keeps its task
    assert len({*task.tolist()}) == 3
    np.testing.assert_array_equal(after.life.replay.filled[1:], 0)
    assert int(after.life.replay.filled[0]) == 1
    np.testing.assert_array_equal(after.life.learner_state.updates[1:], 0)
    adam = jax.tree.leaves(jax.tree.map(lambda x: x[1:], (after.life.learner_state.optimiser_state, after.critic.optimiser_state)))
    assert all(not np.any(leaf) for leaf in adam)
    fast, slow = after.life.learner_state.params, after.life.learner_state.slow
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1:], b[1:]), fast, slow)


def test_every_fresh_agent_has_other_randomness():
    """Twins, made at the same time, differ in task and weights; so do two agents that follow each other in one place."""
    members = population(3)
    assert len(set(np.asarray(members.life.actor.task).tolist())) == 3
    again = jax.jit(functools.partial(refresh, make_family(agents=3)))(refreshed()._replace(age=jnp.full(3, 99)))
    tasks = [float(t) for state in (members, refreshed(), again) for t in state.life.actor.task[1:]]
    assert len(set(tasks)) == len(tasks)


def test_births_are_looked_for_before_they_are_computed():
    calls = []

    def renew(members):
        calls.append(members)
        return members

    members = lived()
    refresh_if_due(renew, members._replace(budget=jnp.array([8, 9, 6])))
    assert not calls
    refresh_if_due(renew, members)
    assert len(calls) == 1


@functools.cache
def scheduled(schedule: str, rise: int, epochs: int):
    """Four agents whose learning rate follows a schedule, at the beginning of their lives."""
    learning = dataclasses.replace(LEARNING, schedule=schedule, warmup_updates=rise, epochs=epochs)
    family = make_family(learning, agents=4)
    return family, jax.jit(functools.partial(init_population, family))(jax.random.key(KEY))


def rates(family, member, number):
    """The learning rates of the next gradient steps: with a gradient of ones, Adam's direction is one."""
    learner, state = family.learner, member.life.learner_state
    params, optimiser_state = jnp.zeros(()), family.learner.optimiser.init(jnp.zeros(()))
    found = []
    for _ in range(number):
        after, optimiser_state = step(learner, params, optimiser_state, jnp.ones(()), state.hyperparameters)
        found.append(float(params - after))
        params = after
    return np.array(found)


@pytest.mark.parametrize(("schedule", "rise", "epochs"), [("linear", 0, 1), ("cosine", 2, 2)])
def test_a_schedule_follows_each_agents_own_budget(schedule, rise, epochs):
    family, members = scheduled(schedule, rise, epochs)
    budgets = np.asarray(members.budget)
    assert set(budgets) == {4, 8}, "both lengths of life are among the four"
    for agent, budget in enumerate(budgets):
        total = epochs * budget
        found = rates(family, jax.tree.map(lambda x, agent=agent: x[agent], members), total + 1)
        share = np.clip((np.arange(total + 1) - rise) / (total - rise), 0, 1)
        wanted = 1 - share if schedule == "linear" else 0.5 * (1 + np.cos(np.pi * share))
        wanted[:rise] = np.arange(rise) / max(rise, 1)
        np.testing.assert_allclose(found, LEARNING.learning_rate * wanted, atol=1e-6)
    due = members._replace(age=members.budget)
    after = jax.jit(functools.partial(refresh, family))(due)
    np.testing.assert_array_equal(after.life.learner_state.hyperparameters["horizon"], epochs * np.asarray(after.budget))
    np.testing.assert_array_equal(after.life.learner_state.optimiser_state[-1].count, 0)


def test_agents_with_a_schedule_learn_until_the_end_of_their_life():
    """One update per window: every one of a life of four moves the agent; one more does not, for its rate is zero."""
    family, members = scheduled("linear", 0, 1)
    family = dataclasses.replace(family, settings=dataclasses.replace(family.settings, window=1))
    member = jax.tree.map(lambda x: x[list(members.budget).index(4)], members)
    rule = rule_params()  # made here: what is cached inside of a compiled function leaks into the next test
    one = jax.jit(lambda member: live(family, make_updates(family.learner, "plain"), rule, member)[0])
    moved = []
    for _ in range(5):
        after = one(member)
        olds, news = (jax.tree.leaves(each.life.learner_state.params) for each in (member, after))
        moved.append(max(float(jnp.abs(a - b).max()) for a, b in zip(olds, news, strict=True)))
        member = after
    assert all(size > 1e-4 for size in moved[:4])
    assert moved[4] == 0


def test_replay_is_warm_before_an_agents_first_update():
    """Two unrolls of two streams are there at birth, so that with the first of a window replay holds the six that are asked for."""
    learning = dataclasses.replace(LEARNING, capacity=8, warmup=6)
    family = make_family(learning, agents=2)
    members = jax.jit(functools.partial(init_population, family))(jax.random.key(0))
    replay, cold = members.life.replay, population(2)
    np.testing.assert_array_equal(replay.filled, 4)
    np.testing.assert_array_equal(cold.life.replay.filled, 0)
    np.testing.assert_array_equal(members.life.learner_state.updates, 0)
    np.testing.assert_array_equal(members.age, 0)
    assert np.asarray(replay.storage.valid[:, :, :4]).any()
    seen = np.asarray(replay.storage.observation)  # [A, T+1, C, 1]
    np.testing.assert_array_equal(seen[:, -1, :2], seen[:, 0, 2:4])  # the second unroll goes on where the first ended
    np.testing.assert_array_equal(seen[:, -1, 2:4], members.life.actor.observation)
    assert len(set(map(bytes, np.asarray(jax.random.key_data(members.life.key))))) == 2
    np.testing.assert_array_equal(members.budget, cold.budget)  # the agents themselves are the same
    jax.tree.map(np.testing.assert_array_equal, members.life.learner_state.params, cold.life.learner_state.params)
