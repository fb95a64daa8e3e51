"""Agents that act by real numbers: what they learn, what is stored, what a run folder restores, and what rules refuse."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rulax
from rulax.discovery.evaluate import frozen
from rulax.envs.base import Environment, Transition
from rulax.envs.registry import make
from rulax.envs.wrappers import Continuous
from rulax.errors import UserError
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.rules.registry import make_rule
from rulax.settings import Learning
from rulax.values.real_policies import Gaussian

from .test_train import finish

BEST = (0.5, -0.3)
SMALL = {"streams": 4, "unroll": 8, "hidden": [4], "quiet": True}


@dataclasses.dataclass(frozen=True)
class Aim(Environment):
    """One step, paid by how close two real numbers come to `BEST`."""

    num_actions = 2  # dimensions of an action
    observation = jax.ShapeDtypeStruct((1,), jnp.float32)
    one_task = True

    def default_task(self):
        return ()

    def sample_task(self, key):
        return ()

    def reset(self, task, key):
        return jnp.int32(0), jnp.ones(1, jnp.float32)

    def step(self, task, state, action, key):
        reward = -jnp.sum(jnp.square(action - jnp.array(BEST)))
        return state, Transition(jnp.ones(1, jnp.float32), reward, jnp.bool_(True), jnp.bool_(False))


CASES = [("ppo", "gaussian"), ("actor_critic", "squashed"), ("policy_gradient", "beta")]
OTHERS = [
    ("ppo", "squashed"),
    ("ppo", "beta"),
    ("actor_critic", "gaussian"),
    ("actor_critic", "beta"),
    ("policy_gradient", "gaussian"),
]


@pytest.mark.parametrize(("rule", "distribution"), [*CASES, *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS)])
def test_the_best_action_is_found(rule, distribution):
    settings = {"streams": 32, "unroll": 2, "learning_rate": 0.01, "schedule": "constant", "hidden": [8], "quiet": True}
    run = rulax.train(
        Continuous(Aim()),
        rule=rule,
        steps=64 * 300,
        action_distribution=distribution,
        minibatches=1,
        epochs=2 if rule == "ppo" else 1,
        **settings,
    )
    np.testing.assert_allclose(run.agent.act(np.ones(1)), BEST, atol=0.15)
    assert run.metrics["entropy"][-1] < run.metrics["entropy"][0]


def test_replay_stores_real_numbers_and_the_policy_that_drew_them():
    made = make_rule("actor_critic")
    learning = dataclasses.replace(made.learning, streams=4, unroll=3, batch=8, replay=0.5, capacity=16, warmup=4)
    recipe = made._replace(learning=learning, network=dataclasses.replace(made.network, hidden=(4,)))
    trainer = make_trainer(Continuous(Aim()), recipe, TrainerConfig(total_steps=12 * 5))
    state, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    stored = state.life.replay.storage
    assert stored.action.dtype == jnp.float32
    assert stored.action.shape[-1] == 2
    assert isinstance(stored.behaviour, Gaussian)
    assert len(np.unique(stored.action)) == stored.action.size, "no number is rounded to a choice"
    assert np.isfinite(metrics["loss"][-1]).all()


def test_frozen_agents_draw_real_numbers_and_do_not_learn():
    """The untrained agents of a comparison."""
    made = frozen(make_rule("actor_critic"))
    recipe = made._replace(learning=dataclasses.replace(made.learning, streams=2, unroll=3))
    trainer = make_trainer(Continuous(Aim()), recipe, TrainerConfig(total_steps=12))
    state = trainer.init(jax.random.key(0))
    before = jax.tree.map(np.array, state.life.learner_state.params)
    after, metrics = finish(trainer, state)
    jax.tree.map(np.testing.assert_array_equal, before, after.life.learner_state.params)
    assert np.isfinite(metrics["episode_return"]).all()


def test_rules_that_need_choices_have_bins():
    environment = make("pendulum/continuous")
    assert (environment.num_actions, environment.action_dimensions, environment.real_dimensions) == (11, 0, 1)
    assert make("pendulum/continuous", bins=5).real_dimensions == 0
    assert make("pendulum/continuous", trial=2).real_dimensions == 0, "a trial shows the last choice"
    for rule in ("q_learning", "ppo_targets", "disco"):
        assert make_rule(rule).network.action_distribution == "bins"
        with pytest.raises(UserError, match="for every action, of which there are too many among real numbers"):
            rulax.train("pendulum/continuous", rule=rule, steps=1000, action_distribution="gaussian", quiet=True)
    with pytest.raises(UserError, match="action_distribution expects one of gaussian, squashed, beta, bins"):
        rulax.train("pendulum/continuous", rule="ppo", steps=1000, action_distribution="normal", quiet=True)


def test_the_continuous_pendulum_is_the_other_one_at_its_torques():
    few, any_torque = make("pendulum"), make("pendulum/continuous")
    task, key = few.default_task(), jax.random.key(0)
    state, _ = few.reset(task, key)
    for choice, share in ((0, -1.0), (1, -0.5), (4, 1.0), (4, 3.0)):
        wanted = few.step(task, state, jnp.int32(choice), key)[1]
        found = any_torque.step(task, state, jnp.array([share], jnp.float32), key)[1]
        np.testing.assert_array_equal(found.observation, wanted.observation)
        np.testing.assert_array_equal(found.reward, wanted.reward)


def test_a_run_goes_on_exactly_and_its_agent_speaks_the_environments_units(tmp_path):
    settings = {"rule": "ppo", "minibatches": 2, "schedule": "constant", **SMALL}
    whole = rulax.train("pendulum/continuous", steps=256, out=tmp_path / "whole", **settings)
    rulax.train("pendulum/continuous", steps=128, out=tmp_path / "half", **settings)
    again = rulax.train(resume=tmp_path / "half", steps=256, quiet=True)
    for one, other in zip(jax.tree.leaves(whole.agent.params), jax.tree.leaves(again.agent.params), strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.agent.params.heads.distribution == "gaussian"
    assert np.abs(whole.agent.params.heads.log_deviation).max() > 0, "it is learned"
    loaded = rulax.load(tmp_path / "half").agent
    np.testing.assert_array_equal(loaded.act(np.zeros(3)), whole.agent.act(np.zeros(3)))


def test_gymnasium_gets_its_own_numbers(tmp_path):
    pytest.importorskip("gymnasium")
    settings = {"rule": "actor_critic", **SMALL}
    run = rulax.train("Pendulum-v1", steps=64, out=tmp_path / "real", **settings)
    action = run.agent.act(np.ones((5, 3), np.float32), jax.random.key(0), greedy=False)
    assert (action.shape, action.dtype) == ((5, 1), np.float32)
    assert np.abs(action).max() <= 2
    assert len(np.unique(action)) > 1
    binned = rulax.train("Pendulum-v1", steps=64, env_options={"bins": 3}, out=tmp_path / "bins", **settings)
    assert float(binned.agent.act(np.ones(3))[0]) in (-2.0, 0.0, 2.0)
    # A folder from before there were other policies than bins.
    old = rulax.train("Pendulum-v1", steps=64, out=tmp_path / "old", action_distribution="bins", **settings)
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    del config["network"]["action_distribution"]
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    wanted = old.agent.act(np.ones(3))
    assert np.abs(np.linspace(-2, 2, 11) - wanted[0]).min() < 1e-6
    np.testing.assert_array_equal(rulax.load(tmp_path / "old").agent.act(np.ones(3)), wanted)
    assert rulax.train(resume=tmp_path / "old", steps=96, quiet=True).finished


def test_minibatches_of_single_steps():
    settings = {"rule": "ppo", "steps": 128, **SMALL}
    assert rulax.train("pendulum/continuous", minibatches=16, shuffle="steps", **settings).finished
    for wrong, sentence in (
        ({"minibatches": 16}, r"streams \(4\) must be divisible by minibatches \(16\); --shuffle steps splits them further"),
        ({"minibatches": 5, "shuffle": "steps"}, r"the steps of a batch \(32\) must be divisible by minibatches \(5\)"),
        ({"minibatches": 2, "shuffle": "steps", "core": "gru"}, "in which the core gru remembers"),
    ):
        with pytest.raises(UserError, match=sentence):
            rulax.train("pendulum/continuous", **settings, **wrong)
    assert Learning().shuffle == "streams"
