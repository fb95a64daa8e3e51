"""Evaluation episodes: every one counts once, long or short; compiled and on the host; and the numbers made of them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import make_agent
from rulax.envs.base import Environment, Episode, HostEnvironment, HostStreams, Timestep, Transition
from rulax.envs.unseen import unseen_options
from rulax.evaluation import episodes as played
from rulax.evaluation.episodes import Episodes, evaluate, make_evaluator, quotas
from rulax.evaluation.scores import Evaluation, Score
from rulax.settings import Network
from rulax.types import Head, Level

SHORT, LONG = 1, 19


@dataclasses.dataclass(frozen=True)
class Coin(Environment):
    """Half of the episodes last 1 step and half 19; every step pays 1. The task is what a step pays."""

    num_actions = 2
    observation = jax.ShapeDtypeStruct((1,), jnp.float32)

    def default_task(self):
        return jnp.float32(1)

    def sample_task(self, key):
        return jnp.float32(1)

    def reset(self, task, key):
        return jnp.where(jax.random.bernoulli(key), LONG, SHORT).astype(jnp.int32), jnp.ones(1)

    def step(self, task, state, action, key):
        state = state - 1
        return state, Transition(jnp.ones(1), task, state == 0, jnp.bool_(False))


@dataclasses.dataclass(frozen=True)
class Truth(Environment):
    """One step that pays the action, cut off by a time limit rather than ended."""

    num_actions = 3
    observation = jax.ShapeDtypeStruct((1,), jnp.float32)

    def default_task(self):
        return ()

    def sample_task(self, key):
        return ()

    def reset(self, task, key):
        return jnp.int32(0), jnp.ones(1)

    def step(self, task, state, action, key):
        return state, Transition(jnp.ones(1), action.astype(jnp.float32), jnp.bool_(False), jnp.bool_(True))


def agent_of(environment, seed=0):
    heads = {"policy": Head(environment.num_actions)}
    return make_agent(jax.random.key(seed), environment.observation, environment.num_actions, heads, Network(hidden=(4,)))


def test_short_episodes_weigh_no_more_than_long_ones():
    """The first that end, or all that end in some time, would be far too short: the mean is 10, not near 1."""
    found = evaluate(agent_of(Coin()), Coin(), 1500, jax.random.key(1))
    assert len(found.returns) == 1500
    np.testing.assert_array_equal(found.returns, found.lengths)
    assert set(found.lengths) == {SHORT, LONG}
    assert abs(found.returns.mean() - 10) < 4 * 9 / np.sqrt(1500)  # four standard errors


def test_a_number_of_episodes_that_streams_do_not_divide():
    assert quotas(7, 3).tolist() == [3, 2, 2]
    for number in (1, 5, 131):
        assert len(evaluate(agent_of(Coin()), Coin(), number, jax.random.key(0)).returns) == number
    with pytest.raises(ValueError, match="at least one"):
        make_evaluator(Coin(), 0)


def test_the_task_is_the_agents_own_and_the_key_decides():
    one = evaluate(agent_of(Coin()), Coin(), 6, jax.random.key(0), task=jnp.float32(2))
    np.testing.assert_array_equal(one.returns, 2 * one.lengths)
    again = evaluate(agent_of(Coin()), Coin(), 6, jax.random.key(0))
    other = evaluate(agent_of(Coin()), Coin(), 6, jax.random.key(5))
    np.testing.assert_array_equal(one.lengths, again.lengths)
    assert (one.lengths != other.lengths).any()


def test_greedy_takes_the_likeliest_action_and_sampling_all_of_them():
    agent = agent_of(Truth())
    logits, _ = agent.act(jnp.ones((1, 1)), jnp.zeros(1, jnp.int8), ())
    evaluator = make_evaluator(Truth(), 300)
    greedy, sampled = (evaluator(agent, jax.random.key(0), each, None).returns for each in (True, False))
    assert set(greedy) == {float(jnp.argmax(logits))}
    shares = np.bincount(sampled.astype(int), minlength=3) / 300
    np.testing.assert_allclose(shares, np.asarray(jax.nn.softmax(logits[0])), atol=0.12)


def test_episodes_that_do_not_end_are_marked_and_not_counted():
    found = make_evaluator(Coin(), 40, longest=5)(agent_of(Coin()), jax.random.key(0), True, None)
    # Pieces are longer than that, so all end here; a shorter piece leaves the long ones out.
    assert np.isfinite(found.returns).all()
    before, played.PIECE = played.PIECE, 5
    try:
        found = make_evaluator(Coin(), 40, longest=5)(agent_of(Coin()), jax.random.key(0), True, None)
    finally:
        played.PIECE = before
    assert np.isnan(found.returns).any()
    assert set(found.returns[np.isfinite(found.returns)]) == {1.0}
    notes = Evaluation("x", [Score(0, "greedy", found)]).notes()
    assert any("did not end in time" in note for note in notes)


class HostCoin(HostEnvironment):
    """The same on the host; every stream draws from its own generator."""

    num_actions = 2
    observation = jax.ShapeDtypeStruct((1,), np.float32)

    def open(self, num_streams):
        return HostCoinStreams(num_streams)


class HostCoinStreams(HostStreams):
    opened = 0

    def __init__(self, num_streams):
        self.number = num_streams
        HostCoinStreams.opened += 1

    def start(self, seed):
        self.random = np.random.default_rng(seed)
        self.left, self.length = self.random.choice((SHORT, LONG), self.number), np.zeros(self.number, int)
        nothing = np.zeros(self.number, np.float32)
        episode = Episode(nothing > 0, nothing, nothing.astype(np.int32))
        return Timestep(np.ones((self.number, 1), np.float32), np.full(self.number, Level.LIFE, np.int8), nothing, nothing + 1, nothing == 0, episode)  # fmt: skip  # noqa: E501

    def step(self, action):
        self.left, self.length = self.left - 1, self.length + 1
        ended = self.left == 0
        episode = Episode(ended, self.length.astype(np.float32), self.length.astype(np.int32))
        self.left = np.where(ended, self.random.choice((SHORT, LONG), self.number), self.left)
        self.length = np.where(ended, 0, self.length)
        reward = np.ones(self.number, np.float32)
        return Timestep(np.ones((self.number, 1), np.float32), ended.astype(np.int8), reward, 1.0 - ended, reward > 0, episode)

    def close(self):
        HostCoinStreams.opened -= 1


def test_the_host_plays_as_many_and_closes_its_streams():
    found = evaluate(agent_of(HostCoin()), HostCoin(), 400, jax.random.key(1))
    assert len(found.returns) == 400
    np.testing.assert_array_equal(found.returns, found.lengths)
    assert abs(found.returns.mean() - 10) < 4 * 9 / np.sqrt(400)
    assert HostCoinStreams.opened == 0
    again = evaluate(agent_of(HostCoin()), HostCoin(), 400, jax.random.key(1))
    np.testing.assert_array_equal(found.returns, again.returns)


def test_scores_are_the_usual_statistics():
    returns = np.array([0.0, 1.0, 1.0, 4.0])
    score = Score(0, "greedy", Episodes(returns, np.array([1, 2, 3, 4])))
    assert (score.mean, score.length) == (1.5, 2.5)
    low, high = score.interval
    assert 0 <= low < 1.5 < high <= 4
    same = Score(1, "greedy", Episodes(np.ones(4), np.ones(4, int)))
    assert same.interval == (None, None)  # no certainty from equal numbers
    both = Evaluation("catch · ppo", [score, same])
    assert both.mean == 1.25
    assert both.interval_of("greedy") == (None, None)  # two agents
    assert [row[0] for row in both.rows()] == ["0", "1", "mean"]
    assert both.as_dict()["scores"][0]["returns"] == returns.tolist()
    assert "separate evaluation episodes" in str(both)


def test_the_interval_over_agents_is_students():
    from scipy import stats

    scores = [Score(seed, "sampled", Episodes(np.array([value]), np.ones(1, int))) for seed, value in enumerate((1.0, 2.0, 4.0))]
    low, high = Evaluation("x", scores).interval_of("sampled")
    expected = stats.t.interval(0.95, 2, np.mean([1, 2, 4]), stats.sem([1, 2, 4]))
    np.testing.assert_allclose((low, high), expected)


def test_unseen_levels_where_training_is_limited_to_some():
    assert unseen_options("envpool/CoinrunEasy-v0", {"num_levels": 200, "start_level": 5}) == {"num_levels": 0, "start_level": 0}
    assert unseen_options("envpool/CoinrunEasy-v0", {"num_levels": 0}) is None
    assert unseen_options("craftax/Craftax-Symbolic-v1", {}) == {"seed": 1}
    assert unseen_options("craftax/Craftax-Symbolic-v1", {"pool": 0}) is None
    assert unseen_options("jumanji/Sokoban", {"seed": 3, "levels": 10}) == {"seed": 4, "levels": 10}
    assert unseen_options("catch", {}) is None
