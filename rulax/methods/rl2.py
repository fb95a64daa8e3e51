"""RL²: an agent with a memory, trained by ordinary reinforcement learning on whole trials, learns within them by remembering.

    x_t = (observation, action before, its reward, whether it ended an episode);  h_t = GRU(h_{t-1}, x_t);  policy = softmax(W h_t)

The memory survives the end of an episode and is cleared at the end of a trial. The reward of the whole trial is what PPO
maximises, so to explore early is worth what it brings later (Duan et al. 2016; Wang et al. 2016). All of it is a composition: a
`trial` around an environment, a recurrent core, PPO, the trainer.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rulax.envs.bandit import BernoulliBandit, DependentArms, InformativeArm
from rulax.envs.base import Environment
from rulax.envs.mdp import ten_steps
from rulax.envs.tasks import Trial, trial, with_reward
from rulax.envs.two_step import TwoStep
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.rollout import act, begin
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.methods.base import Experiment, Progress, Published, Study, Suite, Tested
from rulax.methods.rl2_references import Judge, bandit, dependent_arms, informative_arm, random_mdp, two_arms, two_step
from rulax.rules.base import Recipe
from rulax.rules.ppo import ppo
from rulax.settings import Learning, Network
from rulax.types import Experience, PyTree
from rulax.values.two_hot import Bins

TEST_TASKS = {"quick": 4_000, "full": 20_000}
BLIND_TASKS = 1_000  # of the ablation that shows no reward
TEST_SEED = 2016  # never a seed of training
BINS = Bins(41, 20.0)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One environment as trials, and how its learner is trained."""

    environment: Callable[[], Environment]
    steps: int  # of a trial
    judge: Judge  # what a value is, and what it is held against
    updates: int
    streams: int = 512  # trials per update
    episodes: int = 1
    clock: bool = False  # whether the agent is told how much of the trial is over
    memory: int = 64
    discount: float = 0.99
    trace: float = 0.9
    learning_rate: float = 5e-3
    entropy_cost: float = 0.003
    epochs: int = 4
    minibatches: int = 8

    def trials(self) -> Trial:
        """The environment to learn in."""
        return trial(self.environment(), self.episodes, clock=self.steps if self.clock else 0)

    def recipe(self) -> Recipe:
        """Recurrent PPO: one trajectory is one trial."""
        rule = ppo(self.discount, self.trace, entropy_cost=self.entropy_cost, bins=BINS)
        passes = {"epochs": self.epochs, "minibatches": self.minibatches}
        learning = Learning(streams=self.streams, unroll=self.steps, learning_rate=self.learning_rate, schedule="linear", **passes)
        network = Network(hidden=(self.memory,), core="gru", core_size=self.memory, memory_level="trial")
        return Recipe(rule, dataclasses.replace(learning, clip_gradient=0.5, adam_eps=1e-5), network)


class Memory(Study):
    """One seed: a recurrent agent and the trials it is trained on."""

    def __init__(self, settings: dict[Suite, Setting], suite: Suite, seed: int):
        self.setting, self.suite = settings[suite], suite
        config = TrainerConfig(1, self.setting.updates * self.setting.streams * self.setting.steps)
        self.trainer = CompiledTrainer(by_expectation(self.setting.trials()), self.setting.recipe(), config)
        self.state = self.trainer.init(jax.random.key(seed))

    def advance(self) -> Progress:
        self.state, metrics = self.trainer.advance(self.state)
        updates, total = int(self.state.iteration), self.trainer.total_iterations
        value = float(metrics["episode_return"].sum() / max(metrics["episodes"].sum(), 1))
        return Progress(updates / total, updates, self.trainer.steps(self.state), self.setting.judge.shown(value))

    def done(self) -> bool:
        return self.trainer.done(self.state)

    def test(self) -> Tested:
        environment, agent, judge = self.setting.trials(), self.trainer.agent(self.state), self.setting.judge
        played, tasks = play(environment, self.setting.steps, agent, TEST_TASKS[self.suite])
        blind, _ = play(dataclasses.replace(environment, withheld=True), self.setting.steps, agent, BLIND_TASKS)
        tested = judge.judge(np.asarray(played.reward.sum(0)), jax.tree.map(np.asarray, tasks))
        details = {"reward withheld": judge.shown(float(blind.reward.sum(0).mean()))} | judge.details(played)
        return dataclasses.replace(tested, details=details)


def by_expectation(environment: Trial) -> Environment:
    """The same trials, in which an agent sees the rewards that were drawn and earns what its actions pay on average.

    The mean of what it earns is the same, and so is the gradient's; the luck of single rewards is gone from both.
    """
    return with_reward(environment, lambda task, state, action, transition: environment.expected_reward(task, state, action))


def play(environment: Trial, steps: int, agent: PyTree, number: int, seed: int = TEST_SEED) -> tuple[Experience, PyTree]:
    """One trial in each of `number` tasks: what happened [steps, tasks], and the tasks.

    The agent sees the rewards that were drawn; it is scored by what its actions pay on average.
    """
    scored = by_expectation(environment)
    streams = make_streams(scored, number)

    @jax.jit
    def run(agent: PyTree, key: jax.Array) -> tuple[Experience, PyTree]:
        key_env, key_act = jax.random.split(key)
        actor = begin(streams, scored.default_task(), agent.initial_memory(number), key_env)
        _, experience, _ = act(streams, agent, actor, steps, key_act)
        return experience, actor.env_state.stream.env_state.task

    return run(agent, jax.random.key(seed))


def experiment(
    name: str, about: str, metric: str, goals: tuple[float, float], full: Setting, quick: Setting, **others: Any
) -> Experiment:
    """An experiment of this method; `goals` of the full and of the quick suite, which has shorter trials where 100 take minutes."""
    return Experiment("rl2", name, about, metric, *goals, functools.partial(Memory, {"full": full, "quick": quick}), **others)


def pulls(environment: Callable[..., Environment], number: int, judge: Judge, updates: int, **others: Any) -> Setting:
    """A bandit. What is left to earn depends on how many pulls are left, so the agent is told."""
    setting = {"clock": True, "discount": 1.0, "trace": 0.95, "entropy_cost": 0.001, "memory": 32} | others
    return Setting(lambda: environment(pulls=number), number, judge, updates, **setting)


FIVE, TWO = (functools.partial(BernoulliBandit, arms=arms) for arms in (5, 2))
# What an action is worth in a random MDP shows at once or soon after; what follows later is mostly noise to learn from. With a
# discount of 0.99 and a trace of 0.9 an agent was still at chance after 32 updates, with these at 110 (one scratch run each).
IN_MDPS: dict[str, Any] = {"clock": True, "discount": 0.9, "trace": 0.3}
DUAN = "Duan et al. 2016, table 1"
INFORMATIVE = Setting(
    lambda: InformativeArm(pulls=5),
    5,
    informative_arm(),
    updates=800,
    streams=1024,
    # Who never asks never learns what the answers mean: without much entropy asking dies out before it pays.
    entropy_cost=0.3,
)

EXPERIMENTS = (
    experiment(
        "bandit-10x5",
        "5 arms with probabilities U[0, 1], 10 pulls",
        "expected reward of a trial",
        (6.63, 6.2),
        Setting(lambda: BernoulliBandit(arms=5, pulls=10), 10, bandit(10), 600, 1024),
        Setting(lambda: BernoulliBandit(arms=5, pulls=10), 10, bandit(10), 60),
        published=Published(6.7, DUAN),
        minutes=4,
    ),
    experiment(
        "bandit-100x5",
        "5 arms with probabilities U[0, 1], 100 pulls (quick: 20)",
        "expected reward of a trial",
        (78.3, 12.0),
        pulls(FIVE, 100, bandit(100), 600, memory=64),
        pulls(FIVE, 20, bandit(20), 60),
        published=Published(78.7, DUAN),
        minutes=15,
    ),
    experiment(
        "mdp-10",
        "random MDPs of 10 states and 5 actions, 10 episodes of 10 steps (quick: 2)",
        "expected reward of a trial",
        (157.0, 20.6),
        Setting(ten_steps, 100, random_mdp(10), 300, episodes=10, memory=128, **IN_MDPS),
        Setting(ten_steps, 20, random_mdp(2, 200), 100, episodes=2, **IN_MDPS),
        published=Published(156.2, "Duan et al. 2016, table 2"),
        minutes=25,
    ),
    experiment(
        "two-arms",
        "2 independent arms, 100 pulls (quick: 20)",
        "regret of a trial",
        (2.2, 1.8),
        pulls(TWO, 100, two_arms(100), 400, streams=1024),
        pulls(TWO, 20, two_arms(20), 60),
        higher_is_better=False,
        minutes=6,
    ),
    experiment(
        "dependent-arms",
        "2 arms that pay with p and 1 - p, p uniform, 100 pulls (quick: 20)",
        "regret of a trial",
        (2.2, 1.5),
        pulls(DependentArms, 100, dependent_arms(-1.0, 100), 300),
        pulls(DependentArms, 20, dependent_arms(-1.0, 20), 60),
        higher_is_better=False,
        minutes=4,
    ),
    experiment(
        "two-step",
        "a choice that leads to one of two places; 100 choices (quick: 10)",
        "expected reward of a choice",
        (0.69, 0.63),
        Setting(TwoStep, 200, two_step(100), 150, 256, episodes=100, memory=32, clock=True),
        Setting(TwoStep, 20, two_step(10), 60, episodes=10, memory=32, clock=True),
        minutes=4,
    ),
    experiment(
        "informative-arm",
        "10 arms of which one pays, and an eleventh that tells which; 5 pulls",
        "reward of a trial",
        (20.5, 15.0),
        INFORMATIVE,
        dataclasses.replace(INFORMATIVE, updates=200, streams=512),
        minutes=3,
    ),
)
