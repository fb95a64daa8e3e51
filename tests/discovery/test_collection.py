"""Experience collected before a window, as in DeepMind's notebook: `live` against the same thing written out step by step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.discovery.critic import improve, judge
from rulax.discovery.meta_step import estimate, rule_problem
from rulax.discovery.outer_loss import outer_loss, penalties
from rulax.discovery.population import init_population
from rulax.discovery.window import describe, rewards_of
from rulax.learning.rollout import act
from rulax.learning.update import follow_targets, make_targets
from rulax.settings import Learning
from tests.discovery.environments import ACTIONS, random_experience
from tests.discovery.families import make_family, rule_params

# Large steps, so that the agent after an update is clearly another one than before the window.
LEARNING = Learning(streams=2, unroll=3, learning_rate=0.5)
NOTEBOOK = {"collection": "before_window", "critic_activate_last": False, "critic_head_std": 0.01, "critic_statistics": "learned"}


@functools.cache
def family():
    return make_family(LEARNING, **NOTEBOOK)


@functools.cache
def fresh_member():
    members = jax.jit(lambda key: init_population(family(), key))(jax.random.key(0))
    return jax.tree.map(lambda x: x[0], members)


@functools.cache
def lived():
    """Gradient, member and metrics of one agent; its metrics also hold the window itself."""
    problem = rule_problem(family(), "plain")

    def show_window(updates, rule_params, member, window):
        loss, metrics = problem.judge(updates, rule_params, member, window)
        return loss, metrics | {"window": window}

    members = jax.tree.map(lambda x: x[None], fresh_member())
    outcome = jax.jit(estimate(family(), problem._replace(judge=show_window)))(rule_params(), members)
    return jax.tree.map(lambda x: x[0], outcome)


def collected(member):
    """Three rollouts, one after another, all by the agent before the window; the keys of its updates; where it is then."""
    settings, actor, key, rollouts, keys = family().settings, member.life.actor, member.life.key, [], []
    for length in (*[LEARNING.unroll] * settings.window, settings.validation_unroll):
        key, key_act, key_learn = jax.random.split(key, 3)
        actor, experience, _ = act(family().streams, member.life.learner_state.params, actor, length, key_act)
        rollouts.append(experience)
        keys.append(jax.random.split(key_learn)[1])
    return rollouts, keys, actor


def acting_policy(agent, experience):
    """Policy logits [T, B, A] as acting would compute them, one step after another."""
    return jnp.stack([agent.act(experience.observation[t], experience.first[t], ())[0] for t in range(len(experience.action))])


def by_hand(params, member):
    """The outer loss of a window, written out; and everything else that it leaves behind."""
    settings, learner = family().settings, family().learner
    (*training, validation), keys, actor = collected(member)
    state, critic, norms, losses, penalised = member.life.learner_state, member.critic, [], [], []
    for experience, key in zip(training, keys, strict=False):
        policy = jax.lax.stop_gradient(acting_policy(state.params, experience))
        critic, measured = improve(settings, critic, experience, policy)
        before, made = state, make_targets(learner, params, state, experience)
        state, _ = follow_targets(learner, params, state, made, key)
        penalised.append(penalties(made.targets, made.batch))
        norms.append(optax.global_norm(jax.tree.map(lambda new, old: new - old, state.params, before.params)))
        losses.append(measured["critic_loss"])
    judgement = judge(settings, critic, validation, jax.lax.stop_gradient(acting_policy(state.params, validation)))
    means = jax.tree.map(lambda *values: sum(values) / len(values), *penalised)
    loss, _ = outer_loss(settings, state.params, validation, judgement.normalised_advantage, means)
    return loss, (state, critic, judgement, training, validation, actor, jnp.stack(norms), jnp.stack(losses))


@functools.cache
def reference():
    return jax.jit(jax.value_and_grad(by_hand, has_aux=True))(rule_params(), fresh_member())


def close(ours, wanted, rtol=1e-5):
    size = max(float(optax.global_norm(wanted)), 1e-12)
    assert float(optax.global_norm(jax.tree.map(lambda a, b: a - b, ours, wanted))) <= rtol * size


def test_a_window_of_old_experience_is_what_it_says():
    (loss, (state, critic, judgement, _, validation, actor, _, _)), slopes = reference()
    grads, after, metrics = lived()
    window = metrics["window"]
    np.testing.assert_allclose(metrics["outer_loss"], loss, rtol=1e-5)
    assert float(optax.global_norm(slopes)) > 1e-6
    close(grads, slopes, 2e-4)
    close(after.life.learner_state.params, state.params)
    close(after.critic.params, critic.params)
    np.testing.assert_allclose(window.advantage, judgement.normalised_advantage, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(window.validation.action, validation.action)
    np.testing.assert_array_equal(after.life.actor.observation, actor.observation)  # the next window goes on from here


def test_the_agent_before_the_window_acts_and_importance_weights_correct():
    (_, (state, _, judgement, _, validation, _, _, _)), _ = reference()
    _, _, metrics = lived()
    behaviour = acting_policy(fresh_member().life.learner_state.params, validation)
    np.testing.assert_allclose(metrics["window"].validation.behaviour, behaviour, rtol=1e-5, atol=1e-6)
    probabilities = [jax.nn.softmax(policy) for policy in (acting_policy(state.params, validation), behaviour)]
    taken = [np.take_along_axis(np.asarray(p), np.asarray(validation.action)[..., None], -1)[..., 0] for p in probabilities]
    ratios = taken[0] / taken[1]
    assert np.abs(ratios - 1).max() > 0.05, "the agent has hardly changed: this would test nothing"
    np.testing.assert_allclose(judgement.ratios, ratios, rtol=1e-3)
    np.testing.assert_allclose(metrics["importance_weight"], np.minimum(1, ratios).mean(), rtol=1e-4)


def test_validation_leaves_no_trace_in_the_statistics_of_the_critic():
    assert float(lived()[1].critic.advantage.decay_product) == pytest.approx(0.99**2)  # two updates and nothing else


def test_what_a_window_measures():
    (_, (_, _, judgement, training, _, _, norms, losses)), _ = reference()
    metrics = lived()[2]
    rewards = np.concatenate([np.asarray(experience.reward) for experience in training])
    np.testing.assert_allclose(metrics["reward"], rewards.mean(), rtol=1e-5)
    assert [int(metrics["positive_rewards"]), int(metrics["negative_rewards"])] == [(rewards > 0).sum(), 0]
    np.testing.assert_allclose(metrics["update_norm"], np.mean(norms), rtol=1e-4)
    np.testing.assert_allclose(metrics["critic_loss"], np.mean(losses), rtol=1e-4)
    np.testing.assert_allclose(metrics["critic_value"], judgement.value[:-1].mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics["critic_advantage"], judgement.advantage.mean(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["meta_gradient_norm"], optax.global_norm(lived()[0]), rtol=1e-5)


def test_the_loss_of_the_critic_is_half_the_squared_normalised_error():
    experience = random_experience(0)
    critic = fresh_member().critic
    observation = jnp.ones((*experience.first.shape, 1))
    experience = experience._replace(observation=observation)
    judgement = judge(family().settings, critic, experience, experience.behaviour)
    _, measured = improve(family().settings, critic, experience, experience.behaviour)
    valid = np.asarray(experience.valid)
    np.testing.assert_allclose(
        measured["critic_loss"], (0.5 * np.asarray(judgement.normalised_error) ** 2)[valid].mean(), rtol=1e-5
    )


def test_rewards_count_where_they_are_valid():
    experience = random_experience(1)._replace(
        reward=jnp.array([[1.0, -2.0], [0.0, 4.0], [8.0, -16.0]]), valid=jnp.array([[1, 1], [1, 1], [0, 0]], bool)
    )
    found = rewards_of(experience)
    assert [float(found[name]) for name in ("reward", "positive_rewards", "negative_rewards")] == [0.75, 2, 1]
    assert float(describe({}, experience, {})["validation_reward"]) == 0.75


def test_evolution_has_nothing_to_compare_in_old_experience():
    with pytest.raises(ValueError, match=r"collection before_window .* use collection on_policy"):
        make_family(estimator="evolution", collection="before_window")
    assert make_family(estimator="evolution").environment.num_actions == ACTIONS
