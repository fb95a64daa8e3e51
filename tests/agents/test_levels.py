"""Memories that are cleared at different levels: a task that needs two of them, solved exactly by hand and learned by an agent."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.cores import RecurrentCore, clear
from rulax.agents.distributions import sample_choice
from rulax.agents.layers import GRU, LSTM
from rulax.envs.base import Environment, Transition
from rulax.envs.tasks import trial
from rulax.envs.wrappers import streams
from rulax.learning.rollout import act, begin
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.rules.base import Recipe
from rulax.rules.registry import make_rule
from rulax.types import Level

EPISODES = 4  # per trial


class BitsState(NamedTuple):
    """Where an episode of two steps is, and its own bit."""

    step: jax.Array
    bit: jax.Array


@dataclasses.dataclass(frozen=True)
class TwoBits(Environment):
    """The second action of an episode must be the XOR of two bits: the task's, shown where a trial starts, and the episode's own,
    shown where the episode starts. Both are shown as -1 or 1, and as 0 everywhere else."""

    num_actions = 2
    observation = jax.ShapeDtypeStruct((2,), jnp.float32)

    def default_task(self):
        return jnp.int32(0)

    def sample_task(self, key):
        return jax.random.bernoulli(key).astype(jnp.int32)

    def reset(self, task, key):
        state = BitsState(jnp.int32(0), jax.random.bernoulli(key).astype(jnp.int32))
        return state, 2 * jnp.stack([task, state.bit]).astype(jnp.float32) - 1

    def next_episode(self, task, state, key):
        state, shown = self.reset(task, key)
        return state, shown.at[0].set(0)

    def step(self, task, state, action, key):
        right = (state.step == 1) & (action == task ^ state.bit)
        return state._replace(step=state.step + 1), Transition(jnp.zeros(2), right * 1.0, state.step == 1, jnp.bool_(False))


class Adder(NamedTuple):
    """An agent by hand: it counts the ones that it saw in each place, and answers whether the sum of both counts is odd."""

    levels: tuple[Level, Level]  # at which its two counts are cleared: that of the task's bit, and that of the episode's
    sample = staticmethod(sample_choice)

    def initial_memory(self, number):
        return jnp.zeros(number, jnp.int32), jnp.zeros(number, jnp.int32)

    def act(self, observation, first, memory):
        task, own = clear(memory, self.levels, first)
        memory = task + (observation[:, 0] > 0), own + (observation[:, 1] > 0)
        return 100.0 * jax.nn.one_hot((memory[0] + memory[1]) % 2, 2), memory


@pytest.mark.parametrize(
    ("levels", "expected"),
    [((Level.TRIAL, Level.EPISODE), 1.0), ((Level.EPISODE, Level.EPISODE), 0.5), ((Level.TRIAL, Level.TRIAL), 0.5)],
    ids=["one survives episodes", "neither does", "both do"],
)
def test_a_task_that_needs_one_memory_that_survives_episodes_and_one_that_does_not(levels, expected):
    """A first episode is always answered; after it a task's bit that is forgotten, or older bits of episodes in the sum, leave
    nothing but a guess."""
    number, agent = 1000, Adder(levels)
    endless = streams(trial(TwoBits(), EPISODES), number)
    actor = begin(endless, (), agent.initial_memory(number), jax.random.key(0))
    _, experience, _ = act(endless, agent, actor, 2 * 2 * EPISODES, jax.random.key(1))
    answers = np.asarray(experience.reward[1::2]).reshape(2, EPISODES, number)  # two trials
    assert (answers[:, 0] == 1).all()
    right = answers[:, 1:].mean()
    assert right == 1 if expected == 1 else abs(right - expected) < 4 * 0.5 / np.sqrt(answers[:, 1:].size)


def test_every_leaf_is_cleared_at_its_level_and_above():
    memory = {"a": jnp.ones((4, 3)), "b": (jnp.ones(4, jnp.int32), jnp.ones((4, 2, 2)))}
    levels = {"a": Level.LIFE, "b": (Level.EPISODE, Level.TRIAL)}
    first = jnp.array([0, 1, 2, 3], jnp.int8)
    cleared = clear(memory, levels, first)
    kept = [np.asarray(leaf).reshape(4, -1).min(1).tolist() for leaf in jax.tree.leaves(cleared)]
    assert kept == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    assert jax.tree.map(lambda x: (x.shape, x.dtype), cleared) == jax.tree.map(lambda x: (x.shape, x.dtype), memory)
    one_for_all = clear(memory, Level.TRIAL, first)
    assert all(np.asarray(leaf).reshape(4, -1).min(1).tolist() == [1, 1, 0, 0] for leaf in jax.tree.leaves(one_for_all))


@pytest.mark.parametrize("cell", [GRU, LSTM])
@pytest.mark.parametrize("level", [Level.EPISODE, Level.TRIAL, Level.LIFE])
def test_acting_and_learning_clear_alike_and_only_at_the_level(cell, level):
    core = RecurrentCore(cell(jax.random.key(0), 3, 5), level)
    x, first = jax.random.normal(jax.random.key(1), (4, 1, 3)), jnp.array([[0], [1], [2], [3]], jnp.int8)
    memory = jax.tree.map(lambda leaf: leaf + 1, core.initial((1,)))
    at_once, after = core.unroll(memory, x, first), core.remember(memory, x, first)
    for t in range(4):
        memory, shown = core.step(memory, x[t], first[t])
        np.testing.assert_allclose(shown, at_once[t], rtol=1e-4, atol=1e-7)
        fresh = core.unroll(core.initial((1,)), x[t : t + 1], jnp.zeros((1, 1), jnp.int8))
        assert np.allclose(shown, fresh[0], rtol=1e-4, atol=1e-6) == (t >= level), (
            "cleared exactly where something of its level starts"
        )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7), memory, after)


@pytest.mark.learning
@pytest.mark.parametrize(("level", "reached"), [("trial", True), ("episode", False)])
def test_a_recurrent_agent_learns_it_if_its_memory_lasts_for_a_trial(level, reached):
    """With a memory of one episode the first answer of a trial can be known, and the other three are guesses: 2.5 of 4.

    Rewards are withheld. An agent that sees them leaves itself a note: where it has to guess it answers with the episode's own bit,
    and from that and the reward it knows the task's bit one episode later.
    """
    environment = dataclasses.replace(trial(TwoBits(), EPISODES), withheld=True)
    made = make_rule("ppo")
    learning = dataclasses.replace(made.learning, streams=128, unroll=2 * EPISODES, learning_rate=3e-3, schedule="constant")
    network = dataclasses.replace(made.network, hidden=(32,), core="gru", core_size=32, memory_level=level)
    config = TrainerConfig(seeds=4, total_steps=200 * 128 * 2 * EPISODES)
    trainer = make_trainer(environment, Recipe(made.rule, learning, network), config)
    state = trainer.init(jax.random.key(0))
    while not trainer.done(state):
        state, metrics = trainer.advance(state)
    # The mean over four agents: one agent in one iteration is 128 trials, a policy that still explores, and so a noisy number.
    last = float(metrics["episode_return"][-1].sum() / metrics["episodes"][-1].sum())
    assert last > 3.8 if reached else last < 2.8
