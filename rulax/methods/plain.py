"""Disco103 as a plain learner, without any meta-training here: one newborn agent per task, which learns by updates as it goes.

Each agent lives exactly as long as a trial of RL² in the same task. So few steps are no fair race for a rule that was found with
agents of millions of them; the row says what gradient steps alone can do where a memory needs none.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np

from rulax.envs.bandit import BernoulliBandit, DependentArms, InformativeArm
from rulax.envs.base import Environment
from rulax.envs.mdp import ten_steps
from rulax.envs.two_step import TwoStep
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.methods.base import Experiment, Progress, Study, Suite, Tested
from rulax.methods.rl2_references import Judge, bandit, dependent_arms, informative_arm, random_mdp, two_arms, two_step
from rulax.rules.base import Recipe
from rulax.rules.pretrained import NOT_INSTALLED, find_disco103
from rulax.rules.registry import make_rule
from rulax.settings import Network

TASKS = {"quick": 200, "full": 2000}
LEARNING_RATE = 1e-2  # as recommended here; the paper has 1e-4 to 5e-4, but there is time for 5 to 20 updates
NETWORK = Network(hidden=(64, 64), activate_last=False, action_model=64, action_hidden=(64,))


@dataclasses.dataclass(frozen=True)
class Setting:
    """One environment, how long an agent lives in it, and what its rewards mean."""

    environment: Callable[[], Environment]
    steps: int
    unroll: int  # steps per update
    judge: Judge

    def recipe(self) -> Recipe:
        """Disco103 on one stream: every step is fresh, and replayed once."""
        recipe = make_rule("disco103")
        learning = dataclasses.replace(recipe.learning, streams=1, unroll=self.unroll, batch=2, replay=0.5, capacity=64, warmup=0)
        return recipe._replace(learning=dataclasses.replace(learning, learning_rate=LEARNING_RATE), network=NETWORK)


class Newborns(Study):
    """One seed: as many agents as there are tasks."""

    def __init__(self, setting: Setting, suite: Suite, seed: int):
        self.setting = setting
        config = TrainerConfig(TASKS[suite], setting.steps, task="random")
        self.trainer = CompiledTrainer(setting.environment(), setting.recipe(), config)
        self.state = self.trainer.init(jax.random.key(seed))
        self.earned = np.zeros(TASKS[suite])

    def advance(self) -> Progress:
        self.state, metrics = self.trainer.advance(self.state)
        self.earned += metrics["episode_return"].astype(np.float64).sum(0)
        updates, total = int(self.state.iteration), self.trainer.total_iterations
        steps = self.trainer.steps(self.state) * len(self.earned)
        return Progress(updates / total, updates, steps, self.setting.judge.shown(float(self.earned.mean()) * total / updates))

    def done(self) -> bool:
        return self.trainer.done(self.state)

    def test(self) -> Tested:
        return self.setting.judge.judge(self.earned, jax.tree.map(np.asarray, self.state.life.actor.task))


def unavailable() -> str | None:
    """Why it cannot run, if it cannot."""
    return None if find_disco103() else NOT_INSTALLED


def experiment(name: str, about: str, metric: str, setting: Setting, higher_is_better: bool = True) -> Experiment:
    """A row without a goal."""
    start = functools.partial(Newborns, setting)
    return Experiment("plain", name, about, metric, None, None, start, higher_is_better=higher_is_better, unavailable=unavailable)


REWARD, REGRET = "reward of a life", "regret of a life"
EXPERIMENTS = (
    experiment("bandit-10x5", "5 arms, 10 pulls", REWARD, Setting(lambda: BernoulliBandit(arms=5), 10, 2, bandit(10))),
    experiment("bandit-100x5", "5 arms, 100 pulls", REWARD, Setting(lambda: BernoulliBandit(arms=5), 100, 5, bandit(100))),
    experiment("mdp-10", "random MDPs, 10 episodes of 10 steps", REWARD, Setting(ten_steps, 100, 10, random_mdp(10))),
    experiment(
        "two-arms", "2 independent arms, 100 pulls", REGRET, Setting(lambda: BernoulliBandit(arms=2), 100, 5, two_arms()), False
    ),
    experiment("dependent-arms", "p and 1 - p, 100 pulls", REGRET, Setting(DependentArms, 100, 5, dependent_arms(-1.0)), False),
    experiment("two-step", "100 choices", "reward of a choice", Setting(TwoStep, 200, 10, two_step(100))),
    experiment("informative-arm", "5 pulls", REWARD, Setting(InformativeArm, 5, 1, informative_arm())),
)
