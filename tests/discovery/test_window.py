"""The window: living it again from its record gives the same agent and gradient; groups of agents give what all at once do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.discovery.estimators import backprop
from rulax.discovery.meta_step import estimate, rule_problem
from rulax.discovery.outer_loss import outer_loss
from rulax.discovery.window import mean_penalties, relive
from tests.discovery.families import make_family, member, population, rule_params

STRATEGY = "both"


def with_window(problem):
    """A problem whose metrics hold the window itself."""

    def judge(update, rule_params, member, window):
        loss, metrics = problem.judge(update, rule_params, member, window)
        return loss, metrics | {"window": window}

    return problem._replace(judge=judge)


@functools.cache
def lived():
    """Gradient, member and metrics of one agent, by `live`."""
    problem = with_window(rule_problem(make_family(), STRATEGY))
    return jax.jit(lambda params, one: backprop(problem, params, one))(rule_params(), member())


def close(ours, wanted, rtol=2e-4):
    size = max(float(optax.global_norm(wanted)), 1e-12)
    assert jax.tree.structure(ours) == jax.tree.structure(wanted)
    assert float(optax.global_norm(jax.tree.map(lambda a, b: a - b, ours, wanted))) <= rtol * size


def test_a_window_lived_again_from_its_record_is_the_same():
    family = make_family()
    problem = rule_problem(family, STRATEGY)
    grads, after, metrics = lived()
    window = metrics["window"]

    def outcome(params):
        learner, numbers = relive(problem.update, params, window.record)
        penalties = mean_penalties(numbers)
        return outer_loss(family.settings, learner.params, window.validation, window.advantage, penalties)[0], learner

    (loss, learner), again = jax.jit(jax.value_and_grad(outcome, has_aux=True))(rule_params())
    np.testing.assert_allclose(loss, metrics["outer_loss"], rtol=1e-5)
    close(learner.params, after.life.learner.params, 1e-6)
    close(learner.slow, after.life.learner.slow, 1e-6)
    assert float(optax.global_norm(grads)) > 1e-6
    close(again, grads)


def test_a_window_goes_on_where_the_last_one_ended():
    """The agent has made its updates, filled its replay, learned from fresh and old, and keeps its task."""
    before, (_, after, metrics) = member(), lived()
    window, learner = metrics["window"], after.life.learner
    assert [int(after.age), int(learner.updates), int(after.life.replay.filled)] == [2, 2, 4]
    assert window.record.experience.action.shape == (2, 3, 2)
    assert window.validation.action.shape == (4, 2)
    np.testing.assert_array_equal(after.life.actor.task, before.life.actor.task)
    np.testing.assert_array_equal(window.validation.observation[-1], after.life.actor.observation)
    assert float(after.critic.advantage.decay_product) == pytest.approx(0.99**3)  # two updates and the validation
    close(window.agent, learner.params, 0)


@functools.cache
def gradients(at_once):
    family = make_family(agents=4)
    return jax.jit(estimate(family, rule_problem(family, STRATEGY), at_once))(rule_params(), population(4))


def test_agents_in_groups_give_what_all_at_once_give():
    (all_grads, all_after, _), (grads, after, _) = gradients(0), gradients(2)
    for agent in range(4):
        close(*(jax.tree.map(lambda x, agent=agent: x[agent], tree) for tree in (grads, all_grads)))
    close(after.life.learner.params, all_after.life.learner.params, 1e-5)
    np.testing.assert_array_equal(after.budget, all_after.budget)
    norms = jax.vmap(optax.global_norm)(all_grads)
    assert len(set(np.asarray(norms).tolist())) == 4  # four lives, four gradients


def test_an_agent_is_traced_once_whatever_their_number():
    counts = {}
    for agents in (1, 3, 8):
        members, calls = jax.tree.map(lambda x, a=agents: jnp.zeros((a, *x.shape[1:])), population().age[:, None]), []

        def one(member, calls=calls):
            calls.append(1)
            return member, member, {}

        class Members:
            age = members[:, 0]

        jax.eval_shape(lambda m, one=one: jax.vmap(one)(m), members)
        counts[agents] = len(calls)
    assert set(counts.values()) == {1}


def test_a_life_without_a_gradient_is_over():
    family = make_family()
    spoiled = population()._replace(budget=jnp.array([8, 8]))
    weights = jax.tree.map(lambda x: x.at[1].set(jnp.nan), spoiled.life.learner.params)
    learner = spoiled.life.learner._replace(params=weights)
    spoiled = spoiled._replace(life=spoiled.life._replace(learner=learner))
    problem = rule_problem(family, STRATEGY)
    grads, after, _ = jax.jit(estimate(family, problem, 0))(rule_params(), spoiled)
    finite = np.isfinite(jax.vmap(optax.global_norm)(grads))
    np.testing.assert_array_equal(finite, [True, False])
    np.testing.assert_array_equal(after.budget, [8, 0])
