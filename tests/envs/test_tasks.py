"""Combinators of tasks: what ends when, what survives it, and which tasks come back."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.distributions import sample_choice
from rulax.envs import make, streams
from rulax.envs.bandit import BernoulliBandit, DependentArms, InformativeArm
from rulax.envs.classic.cartpole import CartPole
from rulax.envs.tasks import draws_tasks, finite_set, mutable, randomised, recurring, trial, with_reward
from rulax.envs.two_step import TwoStep
from rulax.envs.wrappers import TimeLimit
from rulax.learning.rollout import act, begin
from rulax.types import Level


class Sure(BernoulliBandit):
    """Two arms, one of which always pays and the other never."""

    def sample_task(self, key):
        good = jax.random.bernoulli(key).astype(jnp.float32)
        return self.default_task()._replace(means=jnp.stack([good, 1 - good]))


def live(environment, steps, number=1, seed=0):
    """States and timesteps [T, B] of an environment in which the first action is always taken."""
    endless = streams(environment, number)
    state, first = endless.start(environment.default_task(), jax.random.key(seed))

    def step(state, key):
        state, timestep = endless.step(environment.default_task(), state, jnp.zeros(number, jnp.int32), key)
        return state, (state.stream.env_state, timestep)

    _, (states, steps_made) = jax.lax.scan(step, state, jax.random.split(jax.random.key(seed + 1), steps))
    return state.stream.env_state, first, states, steps_made


def test_episode_trial_and_task_end_at_different_times():
    """Three pulls per episode, two episodes per trial, two trials per task."""
    environment = trial(BernoulliBandit(arms=2, pulls=3), episodes=2, trials=2)
    _, _, states, steps = live(environment, 36)
    ended = np.asarray(steps.episode.ended[:, 0])
    np.testing.assert_array_equal(np.flatnonzero(ended), np.arange(5, 36, 6))  # streams see trials
    first = np.asarray(steps.first[:, 0])
    np.testing.assert_array_equal(first, np.where(ended, Level.TRIAL, np.where(np.arange(36) % 6 == 2, Level.EPISODE, 0)))
    assert (np.asarray(steps.discount[:, 0]) == np.where(ended, 0, 1)).all()  # only a trial terminates
    shown = np.asarray(steps.observation[:, 0, -1])  # whether an episode ended; a trial begins without a past
    np.testing.assert_array_equal(np.flatnonzero(shown), np.arange(2, 36, 6))
    means = np.asarray(states.task.means[:, 0, 0])
    changes = np.flatnonzero(np.diff(means)) + 1
    # A state after the last step of a task is the first of the next one.
    np.testing.assert_array_equal(changes, np.arange(11, 36, 12))


def test_the_observation_tells_what_happened():
    environment = trial(BernoulliBandit(arms=3, pulls=2), episodes=2, clock=4)
    _, first, _, steps = live(environment, 4)
    assert environment.observation.shape == (1 + 3 + 2 + 1,)
    np.testing.assert_array_equal(first.observation[0], [1, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(steps.observation[:3, 0, 1:4], np.tile([1.0, 0, 0], (3, 1)))
    np.testing.assert_array_equal(steps.observation[:3, 0, 4], steps.reward[:3, 0])
    np.testing.assert_array_equal(steps.observation[:3, 0, 5], [0, 1, 0])
    np.testing.assert_allclose(steps.observation[:3, 0, 6], [0.25, 0.5, 0.75])


class Guess(NamedTuple):
    """A learner by hand: it tries the first arm, remembers which arm is good, and forgets when it is told to."""

    forgets: str  # at the end of a "trial" or "episode", or "never"
    sample = staticmethod(sample_choice)

    def initial_memory(self, number):
        return jnp.full((number,), -1)  # nothing is known

    def act(self, observation, first, memory):
        action, reward = observation[:, 1:3], observation[:, 3]
        past = action.sum(-1) > 0
        learned = jnp.where(reward > 0, action.argmax(-1), 1 - action.argmax(-1))
        starts = {"trial": Level.TRIAL, "episode": Level.EPISODE, "never": Level.LIFE}
        forget = first >= starts[self.forgets]
        memory = jnp.where(past & (memory < 0), learned, memory)  # what it knows, it believes
        memory = jnp.where(forget, -1, memory)
        return 100.0 * jax.nn.one_hot(jnp.maximum(memory, 0), 2), memory


@pytest.mark.parametrize(("forgets", "expected"), [("trial", 3.5), ("episode", 2.0), ("never", 2.0)])
def test_a_task_that_is_solvable_only_if_memory_survives_episodes_and_not_trials(forgets, expected):
    """Four pulls of one of two sure arms. Who remembers through episodes and forgets between trials gets 1/2 + 3. Who forgets at
    every episode guesses four times; who never forgets believes in the arm of an old task, which is as good as a guess."""
    environment = trial(Sure(arms=2, pulls=1), episodes=4)
    agent, number = Guess(forgets), 4000
    endless = streams(environment, number)
    actor = begin(endless, (), agent.initial_memory(number), jax.random.key(0))
    actor, _, _ = act(endless, agent, actor, 4, jax.random.key(1))  # a first trial, to have something to forget
    _, experience, _ = act(endless, agent, actor, 4, jax.random.key(2))
    earned = float(experience.reward.sum(0).mean())
    assert abs(earned - expected) < 0.1  # four standard errors


def test_contexts_come_back_and_are_told_apart():
    contexts, repeats = 4, 3
    environment = recurring(BernoulliBandit(arms=2, pulls=2), contexts, repeats, bits=3)
    start, first, states, steps = live(environment, 2 * contexts * repeats * 2)
    codes = np.concatenate([np.asarray(first.observation["context"]), np.asarray(steps.observation["context"][:-1, 0])])
    epoch = contexts * repeats * 2
    for part in (codes[:epoch], codes[epoch:]):
        found, counts = np.unique(part, axis=0, return_counts=True)
        assert len(found) == contexts
        assert (counts == repeats * 2).all()
    tasks = np.concatenate([np.asarray(start.tasks.means), np.asarray(states.tasks.means[:, 0])])
    assert (tasks[:epoch] == tasks[0]).all()
    assert (tasks[epoch : 2 * epoch] == tasks[epoch]).all()
    assert (tasks[0] != tasks[epoch]).all()


def test_staggered_streams_begin_epochs_at_different_times():
    """Each starts in the middle of an epoch, as if some repeats were over; its second epoch is a whole one."""
    contexts, repeats, pulls, number = 2, 4, 1, 40
    environment = dataclasses.replace(recurring(BernoulliBandit(arms=2, pulls=pulls), contexts, repeats, bits=1), staggered=True)
    batch, epoch = streams(environment, number), contexts * repeats * pulls

    def step(state, key):
        return batch.step((), state, jnp.zeros(number, jnp.int32), key)

    state, _ = batch.start((), jax.random.key(0))
    first = np.asarray(jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 2 * epoch))[1].first)  # [T, B]
    begins = [1 + np.flatnonzero(first[:, b] == Level.TRIAL) for b in range(number)]
    assert {each[0] for each in begins} == {contexts * pulls * met for met in range(1, repeats + 1)}
    assert all((np.diff(each) == epoch).all() for each in begins)


def test_what_draws_tasks_inside_has_none_to_choose_from_outside():
    for environment in (trial(CartPole(), 2), recurring(CartPole(), 2), TimeLimit(trial(CartPole(), 2), 5)):
        assert environment.one_task
        assert draws_tasks(environment)
    assert not draws_tasks(TimeLimit(CartPole(), 5))


def test_physics_from_a_box():
    environment = randomised(CartPole(), half_length=(0.2, 0.3))
    tasks = jax.vmap(environment.sample_task)(jax.random.split(jax.random.key(0), 200))
    length = np.asarray(tasks.half_length)
    assert 0.2 <= length.min() < 0.21
    assert 0.29 < length.max() <= 0.3
    others = {name: value for name, value in environment.default_task()._asdict().items() if name != "half_length"}
    for name, value in others.items():
        assert (np.asarray(getattr(tasks, name)) == np.asarray(value)).all()
    with pytest.raises(ValueError, match="has no constant 'lenght'; did you mean"):
        randomised(CartPole(), lenght=(0.2, 0.3))


def test_a_finite_set_has_as_many_tasks_as_it_says():
    environment = finite_set(BernoulliBandit(arms=2), number=5, seed=3)
    drawn = np.asarray(jax.vmap(environment.sample_task)(jax.random.split(jax.random.key(0), 300)).means)
    listed = np.asarray(jax.vmap(environment.task)(jnp.arange(5)).means)
    assert len(np.unique(drawn, axis=0)) == 5
    np.testing.assert_array_equal(np.unique(drawn, axis=0), np.unique(listed, axis=0))


def test_another_reward_and_a_mutation():
    environment = with_reward(BernoulliBandit(arms=3, pulls=4), lambda task, state, action, transition: task.means[action] + state)
    _, _, _, steps = live(environment, 4)
    np.testing.assert_allclose(steps.reward[:, 0], 0.1 + np.arange(4), rtol=1e-6)
    hook = mutable(BernoulliBandit(arms=3), lambda task, key: task._replace(means=task.means + 0.1))
    np.testing.assert_allclose(hook.mutate(hook.default_task(), None).means, hook.default_task().means + 0.1)


def test_environments_of_wang_et_al():
    tasks = jax.vmap(DependentArms().sample_task)(jax.random.split(jax.random.key(0), 100))
    np.testing.assert_allclose(tasks.means.sum(-1), 1.0)
    hard = jax.vmap(DependentArms(low=0.4).sample_task)(jax.random.split(jax.random.key(0), 100)).means
    np.testing.assert_allclose(np.unique(np.asarray(hard).round(4)), [0.4, 0.6])
    told = np.asarray(jax.vmap(InformativeArm().sample_task)(jax.random.split(jax.random.key(0), 500)).means)
    np.testing.assert_allclose(told[:, :10].argmax(-1) + 1, told[:, 10] * 10, rtol=1e-6)
    assert (told[:, :10].sum(-1) == 14).all()
    assert len(np.unique(told[:, 10])) == 10
    environment = TwoStep()
    chosen = [float(environment.expected_reward(environment.default_task(), environment.reset((), None)[0], a)) for a in (0, 1)]
    np.testing.assert_allclose(chosen, [0.7, 0.3], rtol=1e-6)


def test_the_two_step_task_pays_what_it_should():
    environment = make("two_step")
    _, _, _, steps = live(environment, 2, number=20_000)
    assert (np.asarray(steps.episode.ended[:, :]) == [[False], [True]]).all()
    assert (np.asarray(steps.reward[0]) == 0).all()
    assert abs(float(steps.reward[1].mean()) - 0.7) < 3 * np.sqrt(0.21 / 20_000)


@pytest.mark.parametrize("make_it", [lambda: trial(Sure(), episodes=0), lambda: recurring(Sure(), 9, bits=3)])
def test_senseless_sizes_are_refused(make_it):
    with pytest.raises(ValueError, match="need"):
        make_it()
