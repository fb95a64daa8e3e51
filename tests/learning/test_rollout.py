"""Alignment: what `pack` says happened is what happened, with terminations, time limits and dummy steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import make_agent
from rulax.envs.wrappers import streams
from rulax.learning.rollout import act, begin
from rulax.settings import Network
from rulax.types import Head, later, now

from .environments import Counter


def collect(environment, steps, core="none"):
    network = Network(hidden=(4,), core=core, core_size=3)
    agent = make_agent(jax.random.key(0), environment.observation, 2, {"policy": Head(2)}, network)
    lanes = streams(environment, 5)
    actor = begin(lanes, environment.default_task(), agent.initial_memory(5), jax.random.key(1))
    return agent, lanes, *act(lanes, agent, actor, steps, jax.random.key(2))


def test_terminations_are_aligned():
    _, _, _, data, episode = collect(Counter(length=3), 7)
    seen = np.asarray(data.observation[:, 0, 0])
    np.testing.assert_array_equal(seen, [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(data.first[:, 0], [3, 0, 0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(data.discount[:, 0], [1, 1, 0, 1, 1, 0, 1])
    assert data.valid.all()
    np.testing.assert_allclose(data.reward, 10 * now(data.observation)[..., 0] + data.action)
    np.testing.assert_array_equal(later(data.first), data.discount == 0)
    np.testing.assert_allclose(episode.total[2], jnp.sum(data.reward[:3], axis=0))
    np.testing.assert_array_equal(episode.ended[:, 0], [0, 0, 1, 0, 0, 1, 0])
    assert (episode.length[2] == 3).all()


def test_a_time_limit_shows_the_last_observation_and_then_a_dummy_step():
    _, _, _, data, episode = collect(Counter(length=3, cut=True), 8)
    np.testing.assert_array_equal(data.observation[:, 0, 0], [0, 1, 2, 3, 0, 1, 2, 3, 0])
    np.testing.assert_array_equal(data.first[:, 0], [3, 0, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(data.valid[:, 0], [1, 1, 1, 0, 1, 1, 1, 0])
    assert (data.discount == 1).all()
    assert (data.reward[3] == 0).all()
    np.testing.assert_array_equal(episode.ended[:, 0], [0, 0, 1, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(episode.total[2], jnp.sum(data.reward[:3], axis=0))


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_behaviour_and_memory_are_those_of_the_moment(core):
    agent, lanes, actor, data, _ = collect(Counter(length=4), 6, core)
    policy = agent.predict(agent.embed(data))["policy"]
    np.testing.assert_allclose(data.behaviour, now(policy), rtol=1e-5, atol=1e-6)
    actor, following, _ = act(lanes, agent, actor, 6, jax.random.key(3))
    policy = agent.predict(agent.embed(following))["policy"]
    np.testing.assert_allclose(following.behaviour, now(policy), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(following.observation[0], data.observation[-1])
