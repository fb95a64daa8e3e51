"""RL²'s experiments: bandits, random MDPs, dependent arms, the two-step task and an arm that only informs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.bandit import BernoulliBandit, BernoulliTask, DependentArms, InformativeArm
from rulax.envs.base import Environment
from rulax.envs.mdp import ten_steps
from rulax.envs.two_step import TwoStep
from rulax.methods.base import Experiment, Progress, Published, SeedRun, Suite, Tested
from rulax.methods.experiments.trial_scoring import (
    Scoring,
    bandit,
    dependent_arms,
    informative_arm,
    random_mdp,
    two_arms,
    two_step,
)
from rulax.methods.loop import advance_trainer
from rulax.methods.rl2 import RL2, make_trainer, mean_par, play_trials
from rulax.types import Array

TEST_TASKS = {"quick": 4_000, "full": 20_000}
WITHHELD_TASKS = 1_000  # for the ablation that hides rewards
TEST_SEED = 2016  # never a seed of training
DUAN = "Duan et al. 2016, table 1"


class ScoredTrials(NamedTuple):
    """Trials to train on, and how their rewards are scored."""

    rl2: RL2
    scoring: Scoring


class RL2Run(SeedRun):
    """One seed: a recurrent agent and the trials it is trained on."""

    kept = ("state",)

    def __init__(self, suites: dict[Suite, ScoredTrials], suite: Suite, seed: int):
        self.rl2, self.scoring = suites[suite]
        self.test_tasks = TEST_TASKS[suite]
        self.par = mean_par(self.rl2)
        self.trainer = make_trainer(self.rl2)
        self.state = self.trainer.init(jax.random.key(seed))

    def advance(self) -> Progress:
        self.state, progress = advance_trainer(self.trainer, self.state)
        return progress._replace(value=self.scoring.metric(progress.value + self.par))

    def done(self) -> bool:
        return self.trainer.done(self.state)

    def test(self) -> Tested:
        environment, agent, scoring = self.rl2.trials(), self.trainer.agent(self.state), self.scoring
        played, tasks = play_trials(environment, self.rl2.steps, agent, self.test_tasks, TEST_SEED)
        # An agent that learns from rewards alone must fall to chance where it cannot observe them.
        withheld = dataclasses.replace(environment, withheld=True)
        without, _ = play_trials(withheld, self.rl2.steps, agent, WITHHELD_TASKS, TEST_SEED)
        tested = scoring.score(np.asarray(played.reward.sum(0)), jax.tree.map(np.asarray, tasks))
        details = {"reward withheld": scoring.metric(float(without.reward.sum(0).mean()))} | scoring.details(played)
        return dataclasses.replace(tested, details=details)


def rl2_experiment(name: str, *, full: ScoredTrials, quick: ScoredTrials, **others: Any) -> Experiment:
    """An experiment of this method. The quick suite has shorter trials where 100 steps would take minutes."""
    return Experiment(method="rl2", name=name, start=functools.partial(RL2Run, {"full": full, "quick": quick}), **others)


def bandit_trials(arms: Callable[..., Environment], pulls: int, scoring: Scoring, updates: int, **others: Any) -> ScoredTrials:
    """A bandit of so many pulls. What is left to earn depends on how many pulls are left, so a clock is shown."""
    settings = {"clock": True, "discount": 1.0, "trace": 0.95, "entropy_cost": 0.001, "memory": 32} | others
    return ScoredTrials(RL2(environment=lambda: arms(pulls=pulls), steps=pulls, updates=updates, **settings), scoring)


def best_arm(task: BernoulliTask) -> Array:
    """What who knows the arms earns by a pull."""
    return jnp.max(task.means)


FIVE_ARMS = functools.partial(BernoulliBandit, arms=5)
TWO_ARMS = functools.partial(BernoulliBandit, arms=2)
TEN_PULLS = RL2(environment=lambda: BernoulliBandit(arms=5, pulls=10), steps=10, updates=60)
# Over 100 pulls a GRU learns sums and counts slowly, and what a trial earns is mostly the luck of its arms (docs/methods/rl2.md).
HUNDRED_PULLS = bandit_trials(
    FIVE_ARMS, 100, bandit(100), updates=400, core="associative", memory=64, rows=4, learning_rate=2e-3, par=best_arm
)
# What an action is worth in a random MDP shows at once or soon after; what follows later is mostly noise to learn from. A good
# agent keeps a mean for each of 50 pairs of state and action, finds those of the state it is in, and needs no plan at all
# (docs/methods/rl2.md). A memory that is addressed by the state does so from the start; a GRU has to learn it unit by unit.
MDP = RL2(
    environment=ten_steps,
    steps=20,
    updates=100,
    episodes=2,
    core="associative",
    clock=True,
    discount=0.9,
    trace=0.3,
    learning_rate=2e-3,
    entropy_cost=0.01,
)
TWO_STEP = RL2(environment=TwoStep, steps=20, updates=60, episodes=10, memory=32, clock=True)
INFORMATIVE = RL2(
    environment=lambda: InformativeArm(pulls=5),
    steps=5,
    updates=800,
    streams=1024,
    # An agent that never asks cannot learn what the answers mean: with little entropy, asking dies out before it pays.
    entropy_cost=0.3,
)

EXPERIMENTS = (
    rl2_experiment(
        "bandit-10x5",
        about="5 arms with probabilities U[0, 1], 10 pulls",
        metric="expected reward of a trial",
        goal=6.63,
        quick_goal=6.2,
        full=ScoredTrials(dataclasses.replace(TEN_PULLS, updates=600, streams=1024), bandit(10)),
        quick=ScoredTrials(TEN_PULLS, bandit(10)),
        published=Published(6.7, DUAN),
        minutes=4,
    ),
    rl2_experiment(
        "bandit-100x5",
        about="5 arms with probabilities U[0, 1], 100 pulls (quick: 20)",
        metric="expected reward of a trial",
        goal=78.3,
        quick_goal=12.0,
        full=HUNDRED_PULLS,
        quick=bandit_trials(FIVE_ARMS, 20, bandit(20), updates=60),
        published=Published(78.7, DUAN),
        minutes=5,
    ),
    rl2_experiment(
        "mdp-10",
        about="random MDPs of 10 states and 5 actions, 10 episodes of 10 steps (quick: 2)",
        metric="expected reward of a trial",
        goal=157.0,
        quick_goal=22.5,
        full=ScoredTrials(dataclasses.replace(MDP, steps=100, updates=500, streams=256, episodes=10), random_mdp(10)),
        quick=ScoredTrials(MDP, random_mdp(2, planned=200)),
        published=Published(156.2, "Duan et al. 2016, table 2"),
        minutes=6,
    ),
    rl2_experiment(
        "two-arms",
        about="2 independent arms, 100 pulls (quick: 20)",
        metric="regret of a trial",
        goal=2.2,
        quick_goal=1.8,
        full=bandit_trials(TWO_ARMS, 100, two_arms(100), updates=400, streams=1024),
        quick=bandit_trials(TWO_ARMS, 20, two_arms(20), updates=60),
        higher_is_better=False,
        minutes=6,
    ),
    rl2_experiment(
        "dependent-arms",
        about="2 arms that pay with p and 1 - p, p uniform, 100 pulls (quick: 20)",
        metric="regret of a trial",
        goal=2.2,
        quick_goal=1.5,
        full=bandit_trials(DependentArms, 100, dependent_arms(-1.0, 100), updates=300),
        quick=bandit_trials(DependentArms, 20, dependent_arms(-1.0, 20), updates=60),
        higher_is_better=False,
        minutes=4,
    ),
    rl2_experiment(
        "two-step",
        about="a choice that leads to one of two places; 100 choices (quick: 10)",
        metric="expected reward of a choice",
        goal=0.69,
        quick_goal=0.63,
        full=ScoredTrials(dataclasses.replace(TWO_STEP, steps=200, updates=150, streams=256, episodes=100), two_step(100)),
        quick=ScoredTrials(TWO_STEP, two_step(10)),
        minutes=4,
    ),
    rl2_experiment(
        "informative-arm",
        about="10 arms of which one pays, and an eleventh that tells which; 5 pulls",
        metric="reward of a trial",
        goal=20.5,
        quick_goal=15.0,
        full=ScoredTrials(INFORMATIVE, informative_arm()),
        quick=ScoredTrials(dataclasses.replace(INFORMATIVE, updates=200, streams=512), informative_arm()),
        minutes=3,
    ),
)
