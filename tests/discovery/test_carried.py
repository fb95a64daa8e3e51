"""Discovery with agents that carry something: a window can be repeated from its record, and what is written is data."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.agents import Carried, WrappedAgent, make_agent
from rulax.agents.counting import with_count_bonus
from rulax.discovery.estimators import first_order
from rulax.discovery.meta_step import rule_problem
from rulax.discovery.objectives import by_bootstrap
from rulax.discovery.outer_loss import outer_loss
from rulax.discovery.population import init_population, refresh
from rulax.discovery.window import mean_penalties, relive
from tests.discovery.families import make_family, rule_params
from tests.discovery.test_window import close

BONUS = 0.5


class Echo(WrappedAgent):
    """Writes down a number that its trained parameters determine, and shifts its policy by it: a way round for a meta-gradient."""

    heard: Carried  # []

    def predict(self, embedded):
        return self._shift(super().predict(embedded))

    def predict_taken(self, embedded, action):
        return self._shift(super().predict_taken(embedded, action))

    def written(self, experience, episodes):
        loudness = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(self.agent.torso))
        after, experience = super().written(experience, episodes)
        reward = experience.reward + 0.1 * loudness
        return eqx.tree_at(lambda agent: agent.heard.value, after, loudness), experience._replace(reward=reward)

    def _shift(self, predictions):
        policy = predictions["policy"]
        return predictions | {"policy": policy + self.heard.value * jnp.arange(policy.shape[-1])}


def make_echo(*arguments, **keywords):
    return Echo(make_agent(*arguments, **keywords), Carried(jnp.float32(0)))


def family_of(maker, **settings):
    family = make_family(**settings)
    return dataclasses.replace(family, recipe=family.recipe._replace(make_agent=maker))


MAKERS = {
    "echo": make_echo,
    "counting": with_count_bonus(lambda observation: observation[..., 0].astype(jnp.int32), 4, BONUS),
}


@functools.cache
def lived(name, strategy, **settings):
    """Gradient, member and metrics of one agent; the metrics also hold the window."""
    family = family_of(MAKERS[name], **settings)
    problem = rule_problem(family, strategy)

    def outcome(params, member):
        after, window, metrics = problem.live(problem.updates, params, member)
        loss, _ = problem.judge(problem.updates, params, after, window)
        return loss, (after, window, metrics)

    members = jax.jit(lambda key: init_population(family, key))(jax.random.key(0))
    member = jax.tree.map(lambda x: x[0], members)
    return jax.jit(jax.value_and_grad(outcome, has_aux=True))(rule_params(), member)


def test_a_window_lived_again_from_its_record_is_the_same():
    """In the record what was written is data; so the gradients agree only if it is data in the window, too."""
    family = family_of(make_echo)
    problem = rule_problem(family, "plain")
    (loss, (_, window, _)), grads = lived("echo", "plain")

    def outcome(params):
        state, _, penalties = relive(problem.updates, params, window.record)
        means = mean_penalties(penalties)
        return outer_loss(family.settings, state.params, window.validation, window.advantage, means)[0], state

    (again, state), grads_again = jax.jit(jax.value_and_grad(outcome, has_aux=True))(rule_params())
    np.testing.assert_allclose(again, loss, rtol=1e-5)
    assert float(optax.global_norm(grads)) > 1e-6
    close(grads_again, grads)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), state.params, window.agent)


def test_a_strategy_that_stores_less_gives_the_same_gradient():
    close(lived("echo", "both")[1], lived("echo", "plain")[1])


def test_the_agent_counts_all_that_it_does_and_is_judged_by_what_the_environment_paid():
    """Two updates of 2 x 3 steps and 2 x 4 of validation; `Counter` pays 10 * observation + action + task."""
    (_, (after, window, _)), _ = lived("counting", "plain")
    visits = window.agent.visits.value
    assert int(visits.sum()) == 12, "the agent that is judged has not written down its validation yet"
    assert int(after.life.learner_state.params.visits.value.sum()) == 20
    assert jax.tree.leaves(after.life.learner_state.slow.visits) == []
    task = after.life.actor.task

    def paid(experience):
        return 10 * experience.observation[..., :-1, :, 0] + experience.action + task

    np.testing.assert_allclose(window.validation.reward, paid(window.validation), rtol=1e-6)
    learned = window.record.experience
    extra = np.asarray(learned.reward - paid(learned))
    assert (extra > BONUS / np.sqrt(12) - 1e-3).all()
    assert (extra < BONUS + 1e-3).all()


def test_experience_that_was_collected_before_the_window_is_written_then_but_validation_is_not():
    (_, (after, window, _)), _ = lived("counting", "plain", collection="before_window")
    assert int(window.record.learner_state.params.visits.value.sum()) == 12
    assert int(window.agent.visits.value.sum()) == 12, "the agent that is judged has not written down its validation yet"
    assert int(after.life.learner_state.params.visits.value.sum()) == 20


def test_the_next_life_begins_with_an_empty_table():
    (_, (after, _, _)), _ = lived("counting", "plain")
    family = family_of(MAKERS["counting"])
    two = jax.tree.map(lambda x: jnp.stack([x, x]), after)._replace(budget=jnp.array([2, 8]))
    visits = refresh(family, two).life.learner_state.params.visits.value
    np.testing.assert_array_equal(visits.sum((1, 2)), [0, 20])


@pytest.mark.parametrize("collection", ["on_policy", "before_window"])
def test_every_estimator_and_objective_leaves_the_table_alone(collection):
    """Traced only: a derivative with respect to whole numbers would fail there."""
    family = family_of(MAKERS["counting"], bootstrap_updates=1, collection=collection)
    problem = rule_problem(family, "plain")._replace(judge=by_bootstrap(family))
    member = lived("counting", "plain")[0][1][0]
    _, after, _ = jax.eval_shape(functools.partial(first_order, problem), rule_params(), member)
    assert after.life.learner_state.params.visits.value.dtype == jnp.int32
