"""Unsupervised meta-RL (Gupta et al. 2018): tasks that an environment makes of itself, for any method that learns over tasks.

    z ~ uniform over n tasks,   r_z(s) = max(log D(z | s), log(1/n) - slack)

D says how likely each z is in a state s. It may be a network with random weights, or the discriminator of skills that DIAYN found
(`agents/diayn.py`): then each task is to be where one skill goes. Nobody has to think of tasks or rewards; what is learned over
such tasks is meant for hand-made ones that come later. A task is z, a number, so MAML draws tasks from `with_discriminator` as from
any other environment (`adaptation.environment_tasks`), and RL² makes trials of it (`envs/tasks.py: trial`).

What log D pays has other units than what people pay. MAML's inner rule standardises its advantages, so units do not matter to it;
a memory that reads rewards, as RL² has, needs `in_units_of_chance`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from rulax.agents.base import Agent
from rulax.agents.diayn import skilled
from rulax.agents.layers import MLP
from rulax.envs.base import Environment, HostEnvironment, Transition
from rulax.envs.lasting import with_skill
from rulax.envs.tasks import WithReward, with_reward
from rulax.envs.wrappers import TimeLimit, Wrapped, as_vector, streams, vector_size
from rulax.errors import UserError
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.rules.diayn import diayn
from rulax.types import Array, PyTree

# One observation of the environment -> log D(z | s) for each z, [n].
LogDiscriminator = Callable[[PyTree], Array]
SLACK = 10.0  # nats below the prior at which a reward is cut off: a softmax has no lower bound, and one such reward outweighs all


@dataclasses.dataclass(frozen=True)
class SelfMadeTasks(Wrapped):
    """The same environment, which pays for being where `log_discriminator` expects z; z, int32 [], is the task."""

    log_discriminator: LogDiscriminator
    number: int  # of tasks
    slack: float = SLACK

    @property
    def one_task(self) -> bool:  # type: ignore[override]
        return False

    def default_task(self) -> Array:
        return jnp.int32(0)

    def sample_task(self, key: Array) -> Array:
        return jax.random.randint(key, (), 0, self.number)

    def reset(self, task: Array, key: Array) -> tuple[PyTree, PyTree]:
        return self.environment.reset(self._inner(), key)

    def next_episode(self, task: Array, state: PyTree, key: Array) -> tuple[PyTree, PyTree]:
        return self.environment.next_episode(self._inner(), state, key)

    def next_level(self, task: Array, state: PyTree) -> Array | int:
        return self.environment.next_level(self._inner(), state)

    def step(self, task: Array, state: PyTree, action: Array, key: Array) -> tuple[PyTree, Transition]:
        state, transition = self.environment.step(self._inner(), state, action, key)
        return state, transition._replace(reward=self.reward(task, transition.observation))

    def reward(self, task: Array, observation: PyTree) -> Array:
        """max(log D(z | s), log(1/n) - slack), [] float32, of arriving at an observation."""
        found = self.log_discriminator(observation)[task]
        return jnp.maximum(found, -math.log(self.number) - self.slack).astype(jnp.float32)

    def _inner(self) -> PyTree:
        # Never a drawn one: how an episode of the environment's own tasks ends, for example at a goal, would give these away.
        return self.environment.default_task()


def with_discriminator(
    environment: Any, log_discriminator: LogDiscriminator, number: int = 0, slack: float = SLACK
) -> SelfMadeTasks:
    """An environment whose tasks come from a discriminator instead of its own.

    Args:
        environment: where to act; its own reward and its own tasks are never looked at.
        log_discriminator: observation -> log D(z | s), [n]; any function that JAX can trace.
        number: how many of the n tasks are used; 0 means all.
        slack: how many nats below the prior log(1/number) rewards are cut off.
    """
    if isinstance(environment, HostEnvironment):
        raise UserError("tasks are made of compiled environments only: one that runs on the host cannot be traced with its reward")
    if slack <= 0:
        raise UserError(f"slack must be greater than 0 nats, not {slack:g}: nothing below the prior would be told apart")
    found = jax.eval_shape(log_discriminator, environment.observation)
    if len(found.shape) != 1:
        raise UserError(
            f"a discriminator must return one vector of log-probabilities per observation, not an array of shape {found.shape}"
        )
    told = found.shape[0]
    number = number or told
    if not 2 <= number <= told:
        raise UserError(f"the discriminator tells {told} tasks apart, so there can be 2 to {told} of them, not {number}")
    return SelfMadeTasks(environment, log_discriminator, number, slack)


# -- discriminators ---------------------------------------------------------------------------------------------------------------


class RandomDiscriminator(eqx.Module):
    """A network whose weights stay as they were drawn."""

    network: MLP

    def __call__(self, observation: PyTree) -> Array:
        """Log-probabilities [n] of one observation."""
        return jax.nn.log_softmax(self.network(as_vector(observation)))


def random_discriminator(
    key: Array, observation: PyTree, number: int, fineness: float = 4.0, contrast: float = 4.0, width: int = 64
) -> RandomDiscriminator:
    """A discriminator of `number` tasks that nobody trained.

    Args:
        key: its weights.
        observation: shapes and dtypes of one observation.
        number: n, how many tasks it tells apart.
        fineness: deviation of the first layer's weights and biases. Observations of size 1/fineness are where tanh bends: much
            smaller, and log D is almost linear; much larger, and tanh saturates, log D has steps and is constant between them.
        contrast: deviation of the logits. Below 1 all z are about equally likely everywhere, and nothing is worth going to.
        width: of its hidden layer.
    """
    if number < 2:
        raise UserError(f"a discriminator tells at least 2 tasks apart, not {number}")
    key_network, key_first, key_bias, key_last = jax.random.split(key, 4)
    network = MLP(key_network, (vector_size(observation), width, number), "tanh")
    first, last = network.layers
    drawn = (
        fineness * jax.random.normal(key_first, first.weight.shape),
        fineness / 2 * jax.random.normal(key_bias, first.bias.shape),
        contrast * width**-0.5 * jax.random.normal(key_last, last.weight.shape),
    )
    where = lambda net: (net.layers[0].weight, net.layers[0].bias, net.layers[1].weight)  # noqa: E731
    return RandomDiscriminator(eqx.tree_at(where, network, drawn))


def skill_trainer(environment: Environment, number: int, steps: int, limit: int, **options: Any) -> CompiledTrainer:
    """DIAYN: `number` skills, for so many environment steps in episodes of `limit` steps; `options` as of the rule `diayn`."""
    return CompiledTrainer(with_skill(TimeLimit(environment, limit), number), diayn(number, **options), TrainerConfig(1, steps))


def discriminator_of(agent: Agent) -> LogDiscriminator:
    """The discriminator that a DIAYN agent has learned, as it is now."""
    knows = skilled(agent)
    if knows is None:
        raise UserError("only an agent with skills has a discriminator: train it with the rule 'diayn'")
    discriminator = knows.discriminator

    def log_probabilities(observation: PyTree) -> Array:
        # As `with_skill` shows observations, without the skill.
        states = observation if isinstance(observation, Mapping) else {"observation": observation}
        return discriminator(states)

    return log_probabilities


# -- units ------------------------------------------------------------------------------------------------------------------------


def in_units_of_chance(environment: Environment, steps: int, key: Array, episodes: int = 512) -> WithReward:
    """The same environment with (reward - mean) / deviation as its reward, both of what random actions earn in random tasks.

    An agent that observes rewards can then be tested in other tasks than it was trained in, whatever their rewards are counted in.
    """
    mean, deviation = earned_by_chance(environment, steps, key, episodes)
    return with_reward(environment, lambda task, state, action, transition: (transition.reward - mean) / deviation)


def earned_by_chance(environment: Environment, steps: int, key: Array, episodes: int = 512) -> tuple[Array, Array]:
    """Mean and deviation [] of the rewards of uniformly random actions, in `episodes` tasks of `steps` steps each."""
    stream = streams(TimeLimit(environment, steps), 1).stream

    def action_of(key: Array) -> Array:
        if environment.real_dimensions:
            return jax.random.uniform(key, (environment.real_dimensions,), minval=-1.0, maxval=1.0)
        shape = (environment.action_dimensions,) if environment.action_dimensions else ()
        return jax.random.randint(key, shape, 0, environment.num_actions)

    def one(key: Array) -> Array:
        key_task, key_start, key_steps = jax.random.split(key, 3)
        task = environment.sample_task(key_task)

        def step(state: PyTree, key: Array) -> tuple[PyTree, Array]:
            key_action, key_env = jax.random.split(key)
            state, timestep = stream.step(task, state, action_of(key_action), key_env)
            return state, timestep.reward

        return jax.lax.scan(step, stream.start(task, key_start)[0], jax.random.split(key_steps, steps))[1]

    rewards = jax.jit(jax.vmap(one))(jax.random.split(key, episodes))
    return rewards.mean(), jnp.maximum(rewards.std(), 1e-6)
