"""Agents whose actions have several dimensions: one dimension is exactly one choice, and factored environments are learned."""

import dataclasses

import jax
import numpy as np
import pytest

import rulax
from rulax.agents import make_agent
from rulax.commands.train.agent import AgentHandle
from rulax.discovery.evaluate import frozen
from rulax.envs.registry import make
from rulax.envs.wrappers import Wrapped
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.rollout import act, begin
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.methods.plain import NETWORK
from rulax.rules.disco import disco
from rulax.rules.registry import make_rule
from rulax.types import Factored, now
from tests.metanet.environments import SMALL
from tests.shared import weights

from .environments import Counter
from .test_train import finish

SMALL_NETWORK = dataclasses.replace(NETWORK, hidden=(8,), action_model=4, action_hidden=(4,))


@dataclasses.dataclass(frozen=True)
class Single(Wrapped):
    """The same environment, whose action is called a vector of one choice."""

    action_dimensions = 1

    def step(self, task, state, action, key):
        return self.environment.step(task, state, action[0], key)


def lived(environment, made, iterations=4):
    learning = dataclasses.replace(made.learning, streams=4, unroll=5, batch=8 if made.learning.replay else 0)
    if learning.replay:
        learning = dataclasses.replace(learning, capacity=16, warmup=4)
    recipe = made._replace(learning=dataclasses.replace(learning, minibatches=min(2, learning.minibatches)), network=SMALL_NETWORK)
    trainer = make_trainer(environment, recipe, TrainerConfig(total_steps=20 * iterations))
    return finish(trainer, trainer.init(jax.random.key(3)))


COMPILED_LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("ppo", "q_learning", "ppo_targets", "disco", "disco103")]


@pytest.mark.parametrize("name", ["actor_critic", *COMPILED_LONG])
def test_whole_lives_with_one_dimension_are_those_with_one_choice(name, monkeypatch):
    if name == "disco103":
        monkeypatch.setenv("RULAX_RULES", str(weights().parent))
    made = make_rule("disco")._replace(rule=disco(SMALL)) if name == "disco" else make_rule(name)
    plain, plain_metrics = lived(Counter(length=4, num_actions=3), made)
    single, single_metrics = lived(Single(Counter(length=4, num_actions=3)), made)
    for key, values in plain_metrics.items():
        np.testing.assert_allclose(single_metrics[key], values, rtol=2e-4, atol=1e-5, err_msg=key)
    for one, other in zip(*(jax.tree.leaves(each.life.learner_state.params) for each in (plain, single)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    if plain.life.replay:
        assert isinstance(single.life.replay.storage.behaviour, Factored)
        np.testing.assert_array_equal(plain.life.replay.storage.action, single.life.replay.storage.action[..., 0])


def agent_of(environment, core="none"):
    recipe = make_rule("disco")._replace(network=dataclasses.replace(SMALL_NETWORK, core=core, core_size=6))
    heads = disco(SMALL).heads(environment.num_actions)
    return make_agent(
        jax.random.key(0), environment.observation, environment.num_actions, heads, recipe.network, environment.action_dimensions
    )


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_what_acting_said_is_what_learning_reads(core):
    environment = make("point")
    agent, streams = agent_of(environment, core), make_streams(environment, 4)
    actor = begin(streams, environment.default_task(), agent.initial_memory(4), jax.random.key(1))
    _, lived, _ = jax.jit(lambda actor: act(streams, agent, actor, 5, jax.random.key(2)))(actor)
    assert lived.action.shape == (5, 4, 2)
    assert len(np.unique(np.asarray(lived.action), axis=1)) > 1
    predictions = agent.predict(agent.embed(lived))
    np.testing.assert_allclose(predictions["policy"].logits[:-1], lived.behaviour.logits, rtol=1e-5, atol=1e-6)
    assert predictions["action_prediction"].shape == (6, 4, 2, 5, SMALL.prediction_size)
    taken = agent.predict_taken(now(agent.embed(lived)), lived.action)
    picked = np.take_along_axis(np.asarray(predictions["value"][:-1]), np.asarray(lived.action)[..., None, None], -2)[..., 0, :]
    np.testing.assert_allclose(taken["value"], picked, rtol=1e-5, atol=1e-6)
    assert np.ptp(np.asarray(picked), axis=2).max() > 0, "dimensions with their own predictions"


def test_an_agent_acts_in_the_numbers_of_its_environment():
    environment = make("point")
    handle = AgentHandle(agent_of(environment), environment)
    action = handle.act(np.zeros(2, np.float32))
    assert action.shape == (2,)
    assert np.isin(action, np.linspace(-1, 1, 5)).all()
    drawn = np.stack([handle.act(np.zeros((3, 2), np.float32), jax.random.key(k), greedy=False) for k in range(9)])
    assert drawn.shape == (9, 3, 2)
    assert len(np.unique(drawn)) == 5
    assert (drawn[..., 0] != drawn[..., 1]).any(), "dimensions are drawn by themselves"


def test_agents_that_never_change_live_here_too():
    """They are what `rulax compare` starts its scores from."""
    recipe = make_rule("actor_critic")
    small = dataclasses.replace(recipe.learning, streams=2, unroll=4), dataclasses.replace(recipe.network, hidden=(4,))
    recipe = frozen(recipe._replace(learning=small[0], network=small[1]))
    trainer = make_trainer(make("catch/several"), recipe, TrainerConfig(total_steps=16))
    state = trainer.init(jax.random.key(0))
    before = jax.tree.map(np.asarray, state.life.learner_state.params)
    state, _ = trainer.advance(state)
    jax.tree.map(np.testing.assert_array_equal, before, state.life.learner_state.params)


def test_gymnasium_s_pendulum_trains_by_bins():
    pytest.importorskip("gymnasium")
    run = rulax.train(
        "Pendulum-v1", rule="actor_critic", action_distribution="bins", steps=32, streams=2, unroll=8, hidden=(8,), quiet=True
    )
    action = run.agent.act(np.zeros(3, np.float32))
    assert action.shape == (1,)
    assert np.abs(action - np.linspace(-2, 2, 11)).min() < 1e-6


@pytest.mark.learning
@pytest.mark.parametrize("rule", ["ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("actor_critic", "rulax5"))])
def test_the_factored_bandit_is_learned_to_its_optimum(rule):
    """Uniform choices earn about a half; the last tenth of training must be within 5 % of the best there is."""
    environment = make("bandit/factored")
    best = float(environment.best_reward(environment.default_task()))
    run = rulax.train("bandit/factored", rule=rule, steps=100_000, seeds=2, quiet=True)
    assert (np.array(run.final_returns) > 0.95 * best).all(), run.final_returns
    chosen = run.agent.act(np.ones(1, np.float32))
    assert float(environment.expected_reward(environment.default_task(), None, chosen)) == best


@pytest.mark.learning
def test_a_discovered_rule_plays_several_games_at_once():
    """Rulax5 has only seen environments with one choice; a random player gets about -0.6 here, and 1 is the best there is."""
    run = rulax.train("catch/several", rule="rulax5", steps=64_000, quiet=True)
    assert run.final_returns[0] > 0.7, run.final_returns


@pytest.mark.slow
def test_the_published_rule_plays_several_games_at_once(monkeypatch):
    """As the rule comes. A random player gets about -0.6, and 1 is the best there is; measured: 0.92 (docs/results/actions.md)."""
    monkeypatch.setenv("RULAX_RULES", str(weights().parent))
    run = rulax.train("catch/several", rule="disco103", steps=250_000, quiet=True)
    assert run.final_returns[0] > 0.7, run.final_returns


@pytest.mark.slow
def test_the_published_rule_swings_a_pendulum_up_by_bins(monkeypatch):
    """Real-valued torques of gymnax's Pendulum by five bins. Random ones get about -1,200; measured: docs/results/actions.md."""
    monkeypatch.setenv("RULAX_RULES", str(weights().parent))
    settings = {"learning_rate": 3e-3, "hidden": (128, 128), "value_init": "drawn", "env_options": {"bins": 5}}
    settings |= {"rule_options": {"discount": 0.97}}
    run = rulax.train("gymnax/Pendulum-v1", rule="disco103", steps=600_000, quiet=True, **settings)
    assert run.final_returns[0] > -500, run.final_returns
