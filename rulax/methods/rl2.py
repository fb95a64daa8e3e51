"""RL²: a recurrent policy, trained by ordinary reinforcement learning on whole trials, learns within a trial by remembering.

    x_t = (observation, previous action, its reward, whether it ended an episode)
    h_t = core(h_{t-1}, x_t), a GRU or another of agents/cores.py,   policy = softmax(W h_t)

A trial is several episodes of one task. The memory survives the end of an episode and is cleared at the end of a trial; PPO
maximises the reward of the whole trial, so exploring early pays if it brings more reward later (Duan et al. 2016; Wang et al.
2016). Everything here is composition: a `trial` around an environment, a recurrent core, PPO, the trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from rulax.agents import Agent
from rulax.envs.base import Environment, Transition
from rulax.envs.tasks import Trial, trial, with_reward
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.rollout import act, begin
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.rules.base import Recipe
from rulax.rules.ppo import ppo
from rulax.settings import Learning, Network
from rulax.types import Array, Experience, PyTree
from rulax.values.two_hot import Bins

BINS = Bins(41, 20.0)


@dataclasses.dataclass(frozen=True)
class RL2:
    """The trials that an agent is trained on, and the settings of the recurrent PPO that trains it."""

    environment: Callable[[], Environment]
    steps: int  # of a trial
    updates: int
    streams: int = 512  # trials per update
    episodes: int = 1  # per trial
    clock: bool = False  # whether the observation includes how much of the trial is over
    core: Literal["gru", "lstm", "associative"] = "gru"  # the kind of memory, see `agents/cores.py`
    memory: int = 64  # its width
    rows: int = 16  # width of the addresses of the core "associative"
    discount: float = 0.99
    trace: float = 0.9
    learning_rate: float = 5e-3
    entropy_cost: float = 0.003
    epochs: int = 4
    minibatches: int = 8
    par: Callable[[PyTree], Array] | None = None  # task -> a number taken off every reward to learn from; see `make_trainer`

    def trials(self) -> Trial:
        """The environment to learn in: a new task in every trial, and what happened before as part of the observation."""
        return trial(self.environment(), self.episodes, clock=self.steps if self.clock else 0)

    def recipe(self) -> Recipe:
        """Recurrent PPO. A trajectory is exactly one trial, so memory starts empty and returns need no bootstrap value."""
        rule = ppo(self.discount, self.trace, entropy_cost=self.entropy_cost, bins=BINS)
        learning = Learning(
            streams=self.streams,
            unroll=self.steps,
            learning_rate=self.learning_rate,
            schedule="linear",
            epochs=self.epochs,
            minibatches=self.minibatches,
            clip_gradient=0.5,
            adam_eps=1e-5,
        )
        # Cleared between trials only: what one episode found out has to serve the next.
        network = Network(hidden=(self.memory,), core=self.core, core_size=self.memory, core_rows=self.rows, memory_level="trial")
        return Recipe(rule, learning, network)


def make_trainer(rl2: RL2) -> CompiledTrainer:
    """Meta-training: PPO on trials of ever new tasks, rewarded by what actions pay on average, less the task's `par`.

    What a trial earns is mostly the luck of its task, which no memory of what happened can tell from good choices until late, so
    neither can a value. A par, such as the best arm's mean, takes that luck away. No action changes the sum of pars in a trial of
    fixed length, so the gradient is the same on average: it is a baseline that knows the task, in training only.
    """
    config = TrainerConfig(seeds=1, total_steps=rl2.updates * rl2.streams * rl2.steps)
    return CompiledTrainer(with_expected_rewards(rl2.trials(), rl2.par), rl2.recipe(), config)


def with_expected_rewards(environment: Any, par: Callable[[PyTree], Array] | None = None) -> Environment:
    """The same environment, in which an agent observes the rewards that were drawn but receives their expectation, less a par.

    The environment has to know it (`expected_reward`). The mean return and the expected gradient are the same; the variance of
    single rewards is gone from both. A par needs the states of a `Trial`, which hold the task.
    """

    def reward(task: PyTree, state: PyTree, action: Array, transition: Transition) -> Array:
        expected = environment.expected_reward(task, state, action)
        return expected if par is None else expected - par(state.task)

    return with_reward(environment, reward)


def mean_par(rl2: RL2, number: int = 10_000) -> float:
    """What training takes off the reward of a whole trial, on average over tasks."""
    if rl2.par is None:
        return 0.0
    tasks = jax.vmap(rl2.environment().sample_task)(jax.random.split(jax.random.key(0), number))
    return rl2.steps * float(jnp.mean(jax.vmap(rl2.par)(tasks)))


def play_trials(environment: Trial, steps: int, agent: Agent, number: int, seed: int) -> tuple[Experience, PyTree]:
    """Play one trial in each of `number` tasks with an agent whose weights stay fixed.

    Args:
        environment: the trials to play.
        steps: the length of a trial.
        agent: the recurrent agent.
        number: how many tasks are drawn.
        seed: of the tasks and of the actions.

    Returns:
        What happened, [steps, number, ...], with the expected rewards of the actions; and the tasks, [number, ...].
    """
    experience, state = play(environment, steps, agent, number, seed)
    return experience, state.task


def play(environment: Any, steps: int, agent: Agent, number: int, seed: int) -> tuple[Experience, PyTree]:
    """Play `number` streams of an environment with an agent whose weights stay fixed.

    Args:
        environment: any with an `expected_reward`.
        steps: how many steps of each stream.
        agent: the recurrent agent.
        number: how many streams.
        seed: of tasks and of actions.

    Returns:
        What happened, [steps, number, ...], with the expected rewards of the actions; and the environment's states before it.
    """
    scored = with_expected_rewards(environment)
    streams = make_streams(scored, number)

    @jax.jit
    def run(agent: Agent, key: Array) -> tuple[Experience, PyTree]:
        key_env, key_act = jax.random.split(key)
        actor = begin(streams, scored.default_task(), agent.initial_memory(number), key_env)
        _, experience, _ = act(streams, agent, actor, steps, key_act)
        # The states before acting: after a trial `AutoReset` has drawn another task.
        return experience, actor.env_state.stream.env_state

    return run(agent, jax.random.key(seed))
