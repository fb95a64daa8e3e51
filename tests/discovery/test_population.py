"""Lives: how long they are, who is born again, and what a newborn has."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rulax.discovery.discover import refresh_if_due
from rulax.discovery.population import draw_budget, refresh
from tests.discovery.families import make_family, population

LIFETIMES = (10, 20, 50, 100)


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
    """Three agents: one in the middle of its life, one at its end, one whose budget was taken away; none is a newborn."""

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
    np.testing.assert_array_equal(after[".births"], [1, 5, 3])
    np.testing.assert_array_equal(after[".age"], [3, 0, 0])
    assert set(after[".budget"][1:]) <= {4, 8}
    for agent in (1, 2):
        weights = [
            name for name in before if name.startswith((".life.learner_state.params", ".critic.params")) and "weight" in name
        ]
        assert weights
        assert all((after[name][agent] != 1).any() for name in weights)


def test_a_newborn_has_a_task_of_its_own_and_has_seen_nothing():
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


def test_every_birth_has_other_randomness():
    """Twins, born at the same time, differ in task and weights; so do two births of one agent."""
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
