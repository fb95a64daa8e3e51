"""Evolved policy gradients (Houthooft et al. 2018), and what happens when the rule and the way to learn it change places.

A rule is found in lives that are much shorter than usual: a fresh agent meets a random task, makes a few dozen updates, and what it
earns at the end is the fitness. All roads are `discovery`: the kind of rule (`epg` or `disco`) and the estimator (`evolution` over
whole lives, or `backprop` through windows of them) are settings.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from rulax.agents.base import Agent
from rulax.discovery.discover import Discoverer
from rulax.discovery.population import Family
from rulax.discovery.settings import Discovery
from rulax.envs.base import Environment
from rulax.envs.wrappers import streams as make_streams
from rulax.learning.rollout import act, begin
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.rules.base import Recipe
from rulax.types import Array, PyTree

Road = Literal["evolution", "backprop"]


@dataclasses.dataclass(frozen=True)
class Evolved:
    """How a rule is found."""

    updates: int = 32  # of a life
    generations: int = 300
    agents: int = 8  # tasks per generation
    pairs: int = 4  # perturbed rules per task, and their mirror images
    noise: float = 0.05
    rate: float = 1e-2  # of the rule's Adam
    handover: float = 1 / 8  # of the generations, over which PPO's share falls
    window: int = 8  # backprop: updates that one meta-gradient passes through

    def lives(self, road: Road) -> int:
        """Lives, or pieces of them, of one meta-step."""
        return self.agents * (2 * self.pairs + 1) if road == "evolution" else self.agents

    def meta_steps(self, road: Road, learning: Any, validation: int) -> int:
        """As many as make the same number of environment steps on every road.

        Args:
            road: how the meta-gradient is estimated.
            learning: of the agents.
            validation: steps per stream by which a window is judged.
        """
        if road == "evolution":
            return self.generations
        total = self.generations * self.lives("evolution") * self.updates * learning.unroll
        return max(1, total // (self.lives(road) * (self.window * learning.unroll + validation)))


def make_discoverer(evolved: Evolved, environment: Environment, recipe: Recipe, road: Road) -> Discoverer:
    """Discovery of the recipe's rule in one environment with random tasks."""
    common: dict[str, Any] = {
        "agents": evolved.agents,
        "lifetimes": (evolved.updates,),
        "meta_learning_rate": evolved.rate,
        "meta_schedule": "linear",
    }
    if road == "evolution":
        chosen: dict[str, Any] = {
            "estimator": road,
            "fitness": "end",
            "pairs": evolved.pairs,
            "noise": evolved.noise,
            "meta_optimiser": "mean",
        }
        settings = Discovery(**common, **chosen)
    else:
        settings = Discovery(**common, estimator=road, window=evolved.window, memory="plain", critic_hidden=(32,))
    steps = evolved.meta_steps(road, recipe.learning, settings.validation_unroll)
    state = jax.eval_shape(recipe.rule.start, jax.random.key(0))
    if isinstance(state, dict) and "ppo_share" in state:
        settings = dataclasses.replace(settings, handover=int(evolved.handover * steps))
    return Discoverer([Family("tasks", environment, recipe, settings)], steps)


def learn(
    environment: Environment, horizon: int, recipe: Recipe, rule_params: PyTree, tasks: PyTree, marks: tuple[int, ...], key: Array
) -> dict[int, Array]:
    """What fresh agents earn, one per task, after so many updates.

    Args:
        environment: whose episodes end by time only.
        horizon: their length.
        recipe: of the agents.
        rule_params: of its rule.
        tasks: leaves [K, ...].
        marks: numbers of updates, ascending.
        key: for agents and tests.

    Returns:
        By mark, the mean return [K] of a few episodes that nothing is learned from; actions are drawn as in training.
    """
    number, per_update = len(jax.tree.leaves(tasks)[0]), recipe.learning.streams * recipe.learning.unroll
    trainer = CompiledTrainer(environment, recipe, TrainerConfig(number, max(1, marks[-1]) * per_update), tasks=tasks)
    trainer.rule_params = rule_params
    key_agents, key_tests = jax.random.split(key)
    state, play, found = trainer.init(key_agents), make_player(environment, horizon), {}
    for mark in marks:
        while int(state.iteration) < mark:
            state, _ = trainer.advance(state, mark - int(state.iteration))
        found[mark] = play(state.life.learner_state.params, tasks, jax.random.split(key_tests, number))
    return found


@functools.lru_cache(maxsize=8)
def make_player(environment: Environment, horizon: int, episodes: int = 8) -> Callable[[Agent, PyTree, Array], Array]:
    """(agents, tasks, keys), leaves [K, ...] -> the mean return [K] of whole episodes."""
    streams = make_streams(environment, episodes)

    def one(agent: Agent, task: PyTree, key: Array) -> Array:
        key_start, key_act = jax.random.split(key)
        actor = begin(streams, task, agent.initial_memory(episodes), key_start)
        _, experience, _ = act(streams, agent, actor, horizon, key_act)
        return jnp.sum(experience.reward) / episodes

    return jax.jit(jax.vmap(one))
