"""DQN: its targets against rlax, its dueling values and its exploration in closed form, and what it refuses."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

import rulax
from rulax.agents.base import Carried
from rulax.agents.value_agent import make_value_agent
from rulax.envs.registry import make
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.learning.update import Learner, follow_targets, init_learner_state, make_targets, slow_agent
from rulax.rules.dqn import NETWORK, dqn
from rulax.rules.registry import make_rule
from rulax.settings import Network
from rulax.types import Experience, Factored, Head
from rulax.values.policies import epsilon_greedy
from rulax.values.returns import n_step_returns
from tests.commands.bad_lines import refused_in_one_sentence
from tests.rules import data
from tests.rules.data import A, B, T, random_batch, taken_predictions, with_cut

HEADS = dqn().heads(A)
SMALL = dataclasses.replace(NETWORK, hidden=(8,), action_hidden=(8,))


def batch_of(rule, **options):
    """A batch whose slow copy disagrees with the agent about which action is best."""
    batch = random_batch(rule, **options)
    return batch._replace(slow=random_batch(rule, seed=7).online)


@pytest.mark.parametrize("double", [False, True])
def test_one_step_targets_and_gradients_are_those_of_rlax(double):
    rule = dqn(discount=0.9, double=double, huber=1.0)
    batch = batch_of(rule)
    experience, online, slow = batch.experience, batch.online["value"][..., 0], batch.slow["value"][..., 0]
    assert (online.argmax(-1) != slow.argmax(-1)).any()
    discount = 0.9 * experience.discount

    def error(q, t, b):
        step = (experience.action[t, b], experience.reward[t, b], discount[t, b])
        if double:
            return rlax.double_q_learning(q, *step, slow[t + 1, b], online[t + 1, b])
        return rlax.q_learning(q, *step, slow[t + 1, b])

    targets, _, _ = data.make_targets(rule, batch)
    found = targets["value"] - jnp.take_along_axis(online[:-1], experience.action[..., None], -1)[..., 0]
    gradient = data.gradients(rule, batch, targets)["value"][..., 0]
    for t, b in np.ndindex(T, B):
        np.testing.assert_allclose(found[t, b], error(online[t, b], t, b), rtol=1e-5, atol=1e-6)
        slope = jax.grad(lambda q, t=t, b=b: rlax.huber_loss(error(q, t, b), 1.0))(online[t, b])[experience.action[t, b]]
        np.testing.assert_allclose(gradient[t, b], slope / (T * B), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("steps", [1, 3, T])
def test_returns_of_several_steps_are_those_of_rlax(steps):
    rule = dqn(discount=0.9, steps=steps)
    batch = batch_of(rule)
    experience, values = batch.experience, batch.slow["value"][..., 0].max(-1)
    targets, _, _ = data.make_targets(rule, batch)
    for b in range(B):
        discount = 0.9 * experience.discount[:, b]
        wanted = rlax.n_step_bootstrapped_returns(experience.reward[:, b], discount, values[1:, b], steps)
        np.testing.assert_allclose(targets["value"][:, b], wanted, rtol=1e-5, atol=1e-6)


def test_no_return_reaches_across_an_invalid_step():
    rewards, discounts, values = jnp.arange(1.0, 6), jnp.full(5, 0.5), jnp.arange(10.0, 70, 10)
    valid = jnp.asarray([True, True, False, True, True])
    found = n_step_returns(rewards, discounts, values, valid, steps=3)
    # By hand: 1 + (2 + 30 / 2) / 2, 2 + 30 / 2, its own value, 4 + (5 + 60 / 2) / 2, 5 + 60 / 2.
    np.testing.assert_allclose(found, [9.5, 17, 30, 21.5, 35])


def test_an_invalid_step_does_not_matter():
    rule = dqn(steps=3)
    batch = batch_of(rule, valid=with_cut(3, 1))
    other = batch._replace(experience=batch.experience._replace(reward=batch.experience.reward.at[3, 1].set(jnp.nan)))
    one, two = (data.make_targets(rule, each)[0]["value"] for each in (batch, other))
    np.testing.assert_array_equal(one, two)
    loss, _ = rule.loss({}, taken_predictions(rule, batch), {"value": one}, batch.experience)
    assert jnp.isfinite(loss).all()


# -- the agent -----------------------------------------------------------------------------------------------------------------


def agent_of(dimensions=0, network=SMALL, **options):
    observation = jax.ShapeDtypeStruct((4,), jnp.float32)
    return make_value_agent(jax.random.key(0), observation, A, HEADS, network, dimensions, 2, **options)


def experience_of(dimensions=0):
    shape = (dimensions,) if dimensions else ()
    zeros = jnp.zeros((T, B))
    behaviour = Factored(jnp.zeros((T, B, dimensions, A))) if dimensions else jnp.zeros((T, B, A))
    observation = jax.random.normal(jax.random.key(1), (T + 1, B, 4))
    action = jax.random.randint(jax.random.key(2), (T, B, *shape), 0, A)
    return Experience(observation, action, zeros, zeros, jnp.zeros((T + 1, B), jnp.int8), zeros == 0, behaviour, ())


@pytest.mark.parametrize("dimensions", [0, 2])
def test_dueling_values_have_the_mean_that_the_state_has(dimensions):
    agent = agent_of(dimensions, dueling=True)
    embedding = agent.torso(experience_of().observation)
    values, state = agent.heads.values(embedding), agent.heads.state(embedding)
    advantage = agent.heads.advantage(embedding).reshape(values.shape)
    state = state if dimensions else state[..., 0]
    np.testing.assert_allclose(values.mean(-1), state, atol=1e-5)
    np.testing.assert_allclose(values - values.mean(-1, keepdims=True), advantage - advantage.mean(-1, keepdims=True), atol=1e-5)
    # A constant added to all advantages changes nothing.
    shifted = eqx.tree_at(lambda heads: heads.advantage.layers[-1].bias, agent.heads, replace_fn=lambda bias: bias + 3.0)
    np.testing.assert_allclose(shifted.values(embedding), values, atol=1e-5)
    assert agent_of(dimensions).heads.state is None


@pytest.mark.parametrize("activate_last", [True, False])
@pytest.mark.parametrize(("dimensions", "dueling"), [(0, False), (2, True)])
def test_acting_learning_and_the_action_taken_agree(dimensions, dueling, activate_last):
    agent = agent_of(dimensions, dataclasses.replace(SMALL, activate_last=activate_last), dueling=dueling)
    experience = experience_of(dimensions)
    embedded = agent.embed(experience)
    every, now = agent.predict(embedded), jax.tree.map(lambda x: x[:-1], embedded)
    taken = agent.predict_taken(now, experience.action)
    wanted = jnp.take_along_axis(every["value"][:-1, ..., 0], experience.action[..., None], -1)
    np.testing.assert_allclose(taken["value"], wanted, rtol=1e-5)
    acted, _ = agent.act(experience.observation[2], experience.first[2], ())
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y[2], rtol=1e-4), acted, every["policy"])


def test_exploration_falls_with_the_steps_and_is_the_policy():
    agent = agent_of(first_epsilon=0.9, epsilon=0.1, exploration_steps=4 * T * B)
    observation = experience_of().observation[0]
    best = np.asarray(agent.heads.values(agent.torso(observation))).argmax(-1)
    for unroll, epsilon in enumerate([0.9, 0.7, 0.5, 0.3, 0.1, 0.1]):
        policy = np.asarray(jax.nn.softmax(agent.act(observation, jnp.zeros(B, jnp.int8), ())[0]))
        expected = np.full((B, A), epsilon / A) + (1 - epsilon) * np.eye(A)[best]
        np.testing.assert_allclose(policy, expected, rtol=1e-4, err_msg=f"after {unroll} unrolls")
        agent, _ = agent.written(experience_of(), None)
    assert jnp.isfinite(epsilon_greedy(jnp.eye(3), 0.0)).all()


def test_zero_values_are_zero():
    agent = agent_of(network=dataclasses.replace(SMALL, value_init="zero"), dueling=True)
    np.testing.assert_array_equal(agent.heads.values(agent.torso(experience_of().observation)), 0)


def test_the_target_network_is_copied_now_and_then():
    import optax

    rule = dqn()
    learner = Learner(rule, optax.sgd(0.1), slow_decay=0.0, slow_period=3)
    experience = experience_of()._replace(reward=jnp.ones((T, B)), discount=jnp.ones((T, B)))
    state = init_learner_state(learner, agent_of(), jax.random.key(0))
    weights = lambda agent: np.asarray(agent.heads.advantage.layers[-1].bias)  # noqa: E731
    online, slow = [], []
    for _ in range(7):
        online.append(weights(state.params))
        slow.append(weights(slow_agent(state)))
        made = make_targets(learner, {}, state, experience)
        state, _ = follow_targets(learner, {}, state, made, jax.random.key(0))
    # Copied by the updates 0, 3 and 6, each time as the agent was before that update.
    for update, source in enumerate([0, 0, 0, 0, 3, 3, 3]):
        np.testing.assert_array_equal(slow[update], online[source])


# -- in a life, and in a file ---------------------------------------------------------------------------------------------------


def test_it_runs_on_the_host():
    pytest.importorskip("gymnasium")
    recipe = make_rule("dqn", double=True, steps=3, dueling=True)
    learning = dataclasses.replace(recipe.learning, replay_priority=0.6, warmup=4, capacity=8, batch=4)
    recipe = recipe._replace(learning=learning, network=SMALL)
    trainer = make_trainer(make("CartPole-v1"), recipe, TrainerConfig(seeds=2, total_steps=16 * 8))
    trainer.check()
    state = trainer.init(jax.random.key(0))
    while not trainer.done(state):
        state, metrics = trainer.advance(state)
    trainer.close()
    assert np.isfinite(metrics["loss"][-1]).all()
    np.testing.assert_array_equal(state.life.learner_state.params.heads.steps.value, [128, 128])
    assert trainer.replay.priority.shape == (2, 8)
    assert len(np.unique(trainer.replay.priority)) > 4


def test_an_agent_with_options_is_saved_and_loaded(tmp_path):
    tiny = {"steps": 64, "streams": 2, "unroll": 4, "warmup": 2, "batch": 4, "hidden": 8, "action_hidden": 8, "quiet": True}
    run = rulax.train("catch", rule="dqn", rule_options={"dueling": True, "epsilon": 0.2}, replay_priority=0.5, **tiny)
    loaded = rulax.load_agent(run.agent.save(tmp_path / "agent.safetensors"))
    jax.tree.map(np.testing.assert_array_equal, loaded.params, run.agent.params)
    assert loaded.params.heads.epsilon == (1.0, 0.2, 10_000)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train catch --rule dqn --rule-options steps=9", "steps (9) is more than the 8 steps"),
        ("train CartPole-v1 --rule dqn --rule-options steps=9", "steps (9) is more than the 8 steps"),
        ("train catch --rule dqn --rule-options steps=0", "steps must be at least 1, not 0"),
        ("train catch --rule dqn --rule-options epsilon=2", "epsilon must lie between 0 and 1"),
        ("train catch --rule dqn --replay-priority -1", "replay_priority must not be negative"),
        ("train catch --rule dqn --replay 0 --batch 0 --replay-priority 0.6", "but replay is 0"),
        ("train catch --rule ppo_targets --replay 0.5 --replay-priority 0.6", "needs a rule that says how far off"),
        ("train Pendulum-v1 --rule dqn --action-distribution gaussian", "--action-distribution bins"),
        ("discover catch --replay-priority 0.6", "replay_priority"),
    ],
)
def test_mistakes_are_one_sentence(line, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused_in_one_sentence(line, words, tmp_path, capsys)


def test_other_heads_are_refused():
    observation = jax.ShapeDtypeStruct((4,), jnp.float32)
    with pytest.raises(ValueError, match="predicts one value per action, and nothing else"):
        make_value_agent(jax.random.key(0), observation, A, {"policy": Head(A), "value": Head(5)}, Network())
    assert isinstance(agent_of().heads.steps, Carried)
