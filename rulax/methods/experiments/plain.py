"""Disco103 in the environments of RL², for lifetimes as long as RL²'s trials. These rows have no goals."""

from __future__ import annotations

import functools

import jax
import numpy as np

from rulax.envs.bandit import BernoulliBandit, DependentArms, InformativeArm
from rulax.envs.mdp import ten_steps
from rulax.envs.two_step import TwoStep
from rulax.methods.base import Experiment, Progress, SeedRun, Suite, Tested
from rulax.methods.experiments.trial_scoring import (
    Scoring,
    bandit,
    dependent_arms,
    informative_arm,
    random_mdp,
    two_arms,
    two_step,
)
from rulax.methods.plain import PlainDisco, make_trainer
from rulax.rules.pretrained import NOT_INSTALLED, find_disco103

TASKS = {"quick": 200, "full": 2000}
REWARD, REGRET = "reward of a lifetime", "regret of a lifetime"


class PlainRun(SeedRun):
    """One seed: as many agents as there are tasks. Their training is also their test."""

    kept = ("state", "earned")

    def __init__(self, plain: PlainDisco, scoring: Scoring, suite: Suite, seed: int):
        self.scoring = scoring
        self.trainer = make_trainer(plain, TASKS[suite])
        self.state = self.trainer.init(jax.random.key(seed))
        self.earned = np.zeros(TASKS[suite])  # total reward of each agent so far

    def advance(self) -> Progress:
        self.state, metrics = self.trainer.advance(self.state)
        self.earned += metrics["episode_return"].astype(np.float64).sum(0)
        updates, total = int(self.state.iteration), self.trainer.total_iterations
        steps = self.trainer.steps(self.state) * len(self.earned)
        expected = float(self.earned.mean()) * total / updates  # extrapolated to the end of the lifetime
        return Progress(updates / total, updates, steps, self.scoring.metric(expected))

    def done(self) -> bool:
        return self.trainer.done(self.state)

    def test(self) -> Tested:
        return self.scoring.score(self.earned, jax.tree.map(np.asarray, self.state.life.actor.task))


def unavailable() -> str | None:
    """The reason why these experiments cannot run here, if there is one."""
    return None if find_disco103() else NOT_INSTALLED


def plain_experiment(
    name: str, about: str, metric: str, plain: PlainDisco, scoring: Scoring, higher_is_better: bool = True
) -> Experiment:
    """A row without a goal."""
    return Experiment(
        method="plain",
        name=name,
        about=about,
        metric=metric,
        goal=None,
        quick_goal=None,
        start=functools.partial(PlainRun, plain, scoring),
        higher_is_better=higher_is_better,
        unavailable=unavailable,
    )


FIVE_ARMS = functools.partial(BernoulliBandit, arms=5)
TWO_ARMS = functools.partial(BernoulliBandit, arms=2)

EXPERIMENTS = (
    plain_experiment("bandit-10x5", "5 arms, 10 pulls", REWARD, PlainDisco(FIVE_ARMS, steps=10, unroll=2), bandit(10)),
    plain_experiment("bandit-100x5", "5 arms, 100 pulls", REWARD, PlainDisco(FIVE_ARMS, steps=100, unroll=5), bandit(100)),
    plain_experiment(
        "mdp-10",
        "random MDPs, 10 episodes of 10 steps",
        REWARD,
        PlainDisco(ten_steps, steps=100, unroll=10),
        random_mdp(10),
    ),
    plain_experiment(
        "two-arms",
        "2 independent arms, 100 pulls",
        REGRET,
        PlainDisco(TWO_ARMS, steps=100, unroll=5),
        two_arms(),
        higher_is_better=False,
    ),
    plain_experiment(
        "dependent-arms",
        "p and 1 - p, 100 pulls",
        REGRET,
        PlainDisco(DependentArms, steps=100, unroll=5),
        dependent_arms(-1.0),
        higher_is_better=False,
    ),
    plain_experiment("two-step", "100 choices", "reward of a choice", PlainDisco(TwoStep, steps=200, unroll=10), two_step(100)),
    plain_experiment("informative-arm", "5 pulls", REWARD, PlainDisco(InformativeArm, steps=5, unroll=1), informative_arm()),
)
