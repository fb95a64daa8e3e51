"""Domain randomisation: one policy for a range of dynamics, because every training episode draws its own (Packer et al. 2018).

Three versions of an environment: D is as it is by default; R draws some constants from ranges around that; E from both sides of
these ranges, where training never goes. An agent is trained in one of them by an ordinary rule, and tested in any. What is counted
is success, not return: an episode either meets a criterion or does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from rulax.agents.base import Agent
from rulax.envs.base import Environment
from rulax.envs.tasks import EachEpisode, Randomised, randomised
from rulax.envs.wrappers import TimeLimit
from rulax.evaluation.episodes import choose
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.rules.base import Recipe
from rulax.types import Array, Level, PyTree

Version = Literal["D", "R", "E"]
Criterion = Callable[[Array, Array, Array], Array]  # see `Domain`
LIMIT = 200  # steps of an episode, in all four environments
UPRIGHT = jnp.pi / 3  # how far from vertical a pendulum may be
# What each test is called: trained in the first, tested in the second.
TESTS: tuple[tuple[Version, Version], ...] = (("D", "D"), ("D", "R"), ("D", "E"), ("R", "R"), ("R", "E"))


@dataclasses.dataclass(frozen=True)
class Domain:
    """An environment, the ranges of its constants, and what counts as success.

    `succeeded(lengths, arrived, upright)` gets int32 [N] steps of each episode, bool [N] whether it terminated, and int32 [N] for
    how many steps up to its end `upright` has held without a break.
    """

    environment: Environment
    ranges: Mapping[str, Any]  # R
    beyond: Mapping[str, Any]  # E
    succeeded: Criterion
    upright: Callable[[PyTree], Array] = lambda state: jnp.bool_(False)  # of a state

    def version(self, version: Version) -> Environment:
        """The environment of one version, in which `sample_task` draws the constants of an episode."""
        ranges = {"D": {}, "R": self.ranges, "E": self.beyond}[version]
        return randomised(self.environment, **ranges) if ranges else self.environment


def held_up(lengths: Array, arrived: Array, upright: Array) -> Array:
    """CartPole: at least 195 of 200 steps."""
    return lengths >= 195


def arrived_within(steps: int) -> Criterion:
    """MountainCar and Acrobot: at the goal after at most so many steps."""
    return lambda lengths, arrived, upright: arrived & (lengths <= steps)


def stayed_upright(lengths: Array, arrived: Array, upright: Array) -> Array:
    """Pendulum: near the vertical for the last 100 steps."""
    return upright >= 100


def make_trainer(domain: Domain, version: Version, recipe: Recipe, steps: int) -> CompiledTrainer:
    """An ordinary trainer of one agent; constants are drawn anew for every episode of every stream."""
    environment = domain.version(version)
    each = EachEpisode(environment) if isinstance(environment, Randomised) else environment
    return CompiledTrainer(TimeLimit(each, LIMIT), recipe, TrainerConfig(1, steps))


def successes(domain: Domain, version: Version, agent: Agent, key: Array, episodes: int, greedy: bool | Array) -> Array:
    """Whether each of N test episodes, each with constants of its own, was a success: bool [N]. The agent learns nothing."""
    environment, (key_tasks, key_play) = domain.version(version), jax.random.split(key)
    draw = environment.sample_task if version != "D" else lambda key: environment.default_task()
    return play(domain, jax.vmap(draw)(jax.random.split(key_tasks, episodes)), agent, key_play, greedy)


def play(domain: Domain, tasks: PyTree, agent: Agent, key: Array, greedy: bool | Array) -> Array:
    """Whether an episode with each of N given constants was a success: bool [N].

    Args:
        domain: the environment and what counts as success.
        tasks: the constants, leaves [N].
        agent: acts in all of them side by side.
        key: randomness of starts and actions.
        greedy: whether it takes the most likely actions.
    """
    environment, episodes = domain.environment, len(jax.tree.leaves(tasks)[0])
    key_begin, key_steps = jax.random.split(key)
    state, observation = jax.vmap(environment.reset)(tasks, jax.random.split(key_begin, episodes))

    def step(carry: Any, number: Array) -> tuple[Any, None]:
        state, observation, memory, over, lengths, upright = carry
        key_action, key_env = jax.random.split(jax.random.fold_in(key_steps, number))
        first = jnp.full(episodes, jnp.where(number == 0, Level.LIFE, Level.NOTHING), jnp.int8)
        policy, memory = agent.act(observation, first, memory)
        action = choose(agent, key_action, policy, greedy)
        state, transition = jax.vmap(environment.step)(tasks, state, action, jax.random.split(key_env, episodes))
        # What happens after the end of an episode is computed, and not counted.
        counted = jnp.where(jax.vmap(domain.upright)(state), upright + 1, 0)
        upright = jnp.where(over, upright, counted)
        return (state, transition.observation, memory, over | transition.terminated, lengths + ~over, upright), None

    zeros = jnp.zeros(episodes, jnp.int32)
    start = (state, observation, agent.initial_memory(episodes), zeros > 0, zeros, zeros)
    (_, _, _, over, lengths, upright), _ = jax.lax.scan(step, start, jnp.arange(LIMIT))
    return domain.succeeded(lengths, over, upright)


def summary(rates: Mapping[str, float]) -> tuple[float, float]:
    """Interpolation and extrapolation, from the shares of successes by test: RR, and the geometric mean of DR, DE and RE."""
    return rates["RR"], float((rates["DR"] * rates["DE"] * rates["RE"]) ** (1 / 3))
