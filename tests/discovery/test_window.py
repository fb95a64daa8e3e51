"""The window: living it again from its record gives the same agent and gradient; groups of agents give what all at once do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.discovery.estimators import in_groups
from rulax.discovery.flops import programs_in
from rulax.discovery.meta_step import estimate, rule_problem
from rulax.discovery.outer_loss import outer_loss
from rulax.discovery.population import init_population
from rulax.discovery.window import mean_penalties, relive
from tests.discovery.families import make_family, member, population, rule_params


@functools.cache
def compiled():
    """The meta-gradient of two agents; its metrics also hold the window itself. One program for all tests of this file."""
    problem = rule_problem(make_family(), "plain")

    def judge(update, rule_params, member, window):
        loss, metrics = problem.judge(update, rule_params, member, window)
        return loss, metrics | {"window": window}

    return jax.jit(estimate(make_family(), problem._replace(judge=judge)))


@functools.cache
def lived():
    """Gradient, member and metrics of the first agent."""
    return jax.tree.map(lambda x: x[0], compiled()(rule_params(), population()))


def close(ours, wanted, rtol=2e-4):
    size = max(float(optax.global_norm(wanted)), 1e-12)
    assert jax.tree.structure(ours) == jax.tree.structure(wanted)
    assert float(optax.global_norm(jax.tree.map(lambda a, b: a - b, ours, wanted))) <= rtol * size


def test_a_window_lived_again_from_its_record_is_the_same():
    family = make_family()
    problem = rule_problem(family, "plain")
    grads, after, metrics = lived()
    window = metrics["window"]

    def outcome(params):
        learner, _, penalties = relive(problem.updates, params, window.record)
        means = mean_penalties(penalties)
        return outer_loss(family.settings, learner.params, window.validation, window.advantage, means)[0], learner

    (loss, learner), again = jax.jit(jax.value_and_grad(outcome, has_aux=True))(rule_params())
    np.testing.assert_allclose(loss, metrics["outer_loss"], rtol=1e-5)
    close(learner.params, after.life.learner_state.params, 1e-6)
    close(learner.slow, after.life.learner_state.slow, 1e-6)
    assert float(optax.global_norm(grads)) > 1e-6
    close(again, grads)


def test_a_window_goes_on_where_the_last_one_ended():
    """The agent has made its updates, filled its replay, learned from fresh and old, and keeps its task."""
    before, (_, after, metrics) = member(), lived()
    window, learner = metrics["window"], after.life.learner_state
    assert [int(after.age), int(learner.updates), int(after.life.replay.filled)] == [2, 2, 4]
    assert window.record.experience.action.shape == (2, 3, 2)
    assert window.validation.action.shape == (4, 2)
    np.testing.assert_array_equal(after.life.actor.task, before.life.actor.task)
    np.testing.assert_array_equal(window.validation.observation[-1], after.life.actor.observation)
    assert float(after.critic.advantage.decay_product) == pytest.approx(0.99**3)  # two updates and the validation
    close(window.agent, learner.params, 0)


def test_a_life_without_a_gradient_is_over_and_the_other_goes_on():
    learner = population().life.learner_state
    learner = learner._replace(params=jax.tree.map(lambda x: x.at[1].set(jnp.nan), learner.params))
    spoiled = population()._replace(life=population().life._replace(learner_state=learner), budget=jnp.array([8, 8]))
    grads, after, _ = compiled()(rule_params(), spoiled)
    np.testing.assert_array_equal(np.isfinite(jax.vmap(optax.global_norm)(grads)), [True, False])
    np.testing.assert_array_equal(after.budget, [8, 0])
    close(jax.tree.map(lambda x: x[0], grads), lived()[0], 1e-6)


@pytest.mark.parametrize("at_once", [0, 1, 2, 5, 9])
def test_agents_in_groups_give_what_all_at_once_give(at_once):
    """Five agents: groups that divide them and groups that do not."""
    members = population(5)

    def one(member):
        grads = jax.tree.map(lambda x: jnp.tanh(x) @ x.T if x.ndim == 2 else x, member.life.learner_state.params)
        return grads, member._replace(age=member.age + 3), {"seen": member.life.actor.task}

    grads, after, metrics = jax.jit(lambda m: in_groups(one, m, at_once))(members)
    for agent in range(5):
        wanted, _, seen = one(jax.tree.map(lambda x, agent=agent: x[agent], members))
        close(jax.tree.map(lambda x, agent=agent: x[agent], grads), wanted, 1e-5)
        assert float(metrics["seen"][agent]) == float(seen["seen"])
    np.testing.assert_array_equal(after.age, 3)


def operations(program):
    """Operations in a traced program, those of inner programs included."""
    equations = getattr(program, "jaxpr", program).eqns
    return len(equations) + sum(operations(inner) for equation in equations for inner in programs_in(equation))


def test_the_program_is_the_same_whatever_the_number_of_agents():
    """What is compiled has as many operations for eight agents as for two: agents are an axis, not a Python loop."""
    numbers = {}
    for agents in (2, 8):
        family = make_family(agents=agents)
        members = jax.eval_shape(lambda key, family=family: init_population(family, key), jax.random.key(0))
        numbers[agents] = operations(jax.make_jaxpr(estimate(family, rule_problem(family, "plain")))(rule_params(), members))
    assert numbers[2] == numbers[8] > 1000
