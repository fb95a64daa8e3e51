"""RL²: what it is judged by, and that a real memory learns to learn."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.bandit import BernoulliBandit
from rulax.methods.catalogue import METHODS, experiments_of
from rulax.methods.experiments import trial_scoring
from rulax.methods.experiments.rl2 import RL2Run, ScoredTrials
from rulax.methods.rl2 import RL2, mean_par, play_trials, with_expected_rewards
from tests.envs.test_tasks import Sure

SMALL = RL2(
    environment=lambda: Sure(arms=2, pulls=4),
    steps=4,
    updates=80,
    streams=256,
    memory=32,
    learning_rate=1e-2,
    epochs=2,
    minibatches=4,
)
SEED = 2016


def test_an_untrained_agent_earns_what_chance_does_and_is_scored_by_means():
    rl2 = RL2(environment=lambda: BernoulliBandit(arms=3, pulls=5), steps=5, updates=1, streams=8)
    run = RL2Run({"quick": ScoredTrials(rl2, trial_scoring.bandit(5))}, "quick", 0)
    played, tasks = play_trials(rl2.trials(), 5, run.trainer.agent(run.state), 2000, SEED)
    totals, means = np.asarray(played.reward.sum(0)), np.asarray(tasks.means)
    assert means.shape == (2000, 3)
    # A total is a sum of five of the task's own means: never more than five times the best, never less than five times the worst.
    assert (totals <= 5 * means.max(1) + 1e-5).all()
    assert (totals >= 5 * means.min(1) - 1e-5).all()
    uniform = 5 * means.mean(1)
    assert (
        abs((totals - uniform).mean()) < 4 * (totals - uniform).std() / np.sqrt(2000) + 0.02
    )  # an untrained policy is nearly uniform


@pytest.mark.parametrize("pulls", [3, 10])
def test_the_luck_of_tasks_falls_out_and_the_mean_stays(pulls):
    """Always the first arm earns pulls / 2 on average; always the best, pulls K / (K + 1), and that without any spread."""
    means = np.random.default_rng(0).uniform(size=(4000, 4))
    tasks, score = SimpleNamespace(means=means), trial_scoring.bandit(pulls).score
    first, best = score(pulls * means[:, 0], tasks), score(pulls * means.max(1), tasks)
    np.testing.assert_allclose(best.values, pulls * 4 / 5, rtol=1e-12)
    assert abs(first.values.mean() - pulls / 2) < 4 * first.values.std() / np.sqrt(4000)
    assert first.reference.kind == "exact"
    assert first.reference.value > first.baselines["greedy"] - 0.1 > first.baselines["thompson"] - 0.2


def test_regret_is_measured_against_the_best_arm():
    means = np.random.default_rng(1).uniform(size=(20_000, 2))
    tested = trial_scoring.two_arms().score(100 * means.mean(1), SimpleNamespace(means=means))
    assert abs(tested.values.mean() - tested.random) < 0.4  # who chooses by chance
    assert tested.reference.value < tested.baselines["thompson"] < tested.random


def test_a_par_is_taken_off_each_reward_and_off_nothing_that_is_seen():
    """Five arms of which the best has a mean of 5/6 on average, and no action that an agent may take changes what is taken off."""
    rl2 = RL2(
        environment=lambda: BernoulliBandit(arms=5, pulls=6), steps=6, updates=1, streams=64, par=lambda task: jnp.max(task.means)
    )
    assert abs(mean_par(rl2) - 6 * 5 / 6) < 4 * 6 * np.sqrt(5 / 252 / 10_000)  # variance of the largest of five: 5 / 252
    lives = []
    for par in (None, rl2.par):
        environment = with_expected_rewards(rl2.trials(), par)
        state, seen = environment.reset((), jax.random.key(1))
        best, life = jnp.max(state.task.means), []
        for number, key in enumerate(jax.random.split(jax.random.key(2), 5)):  # the sixth pull ends the trial
            state, transition = environment.step((), state, jnp.int32(number), key)
            life.append((transition.observation, transition.reward + (0 if par is None else best)))
        lives.append((seen, life))
    for left, right in zip(jax.tree.leaves(lives[0]), jax.tree.leaves(lives[1]), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_experiments_can_be_told_apart_and_have_a_quick_goal_that_is_no_harder(method):
    found = experiments_of(method)
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert each.method == method
        # Where the quick suite measures something else (shorter trials, a looser threshold) the two cannot be compared.
        if each.goal is not None and each.quick_goal is not None and "quick:" not in each.about + each.metric:
            assert each.reaches(each.goal, "quick"), each.name


@pytest.mark.learning
def test_a_memory_learns_to_find_out_and_then_to_exploit():
    """Four pulls of two sure arms: 1/2 + 3 for who remembers the first; 2 for who does not."""
    run = RL2Run({"quick": ScoredTrials(SMALL, trial_scoring.bandit(4))}, "quick", 0)
    while not run.done():
        progress = run.advance()
    assert progress.fraction == 1
    agent = run.trainer.agent(run.state)
    played, _ = play_trials(SMALL.trials(), 4, agent, 2000, SEED)
    assert float(played.reward.sum(0).mean()) > 3.3
    blind, _ = play_trials(dataclasses.replace(SMALL.trials(), withheld=True), 4, agent, 2000, SEED)
    # Told that nothing ever pays, it has nothing to go by: half of the pulls pay, as if by chance (Wang et al. 2016).
    assert abs(float(blind.reward.sum(0).mean()) - 2) < 0.15


def test_stay_probabilities_tell_a_model_from_a_habit():
    """Two hand-made players: one repeats what paid, one chooses again the way to where it was paid."""
    rng, choices, tasks = np.random.default_rng(0), 10, 4000
    for has_model, expected in ((False, 0.0), (True, 2.0)):
        action = np.zeros((choices + 1, tasks), int)
        common, paid = rng.random((choices + 1, tasks)) < 0.75, rng.random((choices + 1, tasks)) < 0.5
        for t in range(choices):
            stay = (paid[t] == common[t]) if has_model else paid[t]
            action[t + 1] = np.where(stay, action[t], 1 - action[t])
        shown = np.zeros((2 * choices + 3, tasks, 7))
        place = np.where(common, action, 1 - action)
        for t in range(choices + 1):
            shown[2 * t + 1, :, 1:3] = np.eye(2)[place[t]]
            shown[2 * t + 2, :, 5] = paid[t]
        played = SimpleNamespace(observation=shown, action=np.repeat(action, 2, 0))
        found = trial_scoring.stay_probabilities(played)
        np.testing.assert_allclose(found["stay interaction"], expected, atol=1e-12)
