"""Episodic control against value learning: what is earned in the first steps of a life (Blundell et al. 2016; Pritzel et al. 2017).

Learners with tables (MFEC, NEC) and with a network alone (DQN) live equally long in the same environments. What counts is not where
they end but how soon they get there, exploration included:

    curve_b = mean return of the episodes that ended in the b-th of B equal parts of the life
    area    = mean_b (curve_b - random) / (best - random)      0: as by uniformly random actions, 1: perfect from the first step
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment
from rulax.envs.registry import make
from rulax.envs.wrappers import streams
from rulax.learning.train import COMPILE_FAST, CompiledTrainer, TrainerConfig
from rulax.rules.base import Recipe
from rulax.rules.registry import make_rule
from rulax.types import Array, PyTree

PARTS = 20  # B, of a curve
LEAST_AREA = 0.01  # what an area is divided by at least: a ratio to nothing would say nothing


@dataclasses.dataclass(frozen=True)
class Arena:
    """An environment to live in."""

    environment: str
    best: float  # the return that counts as 1
    few_rows: bool = False  # whether the environment has so few states that small tables hold all of them


@dataclasses.dataclass(frozen=True)
class Learner:
    """A rule with settings that differ from what is recommended for it."""

    name: str
    rule: str
    options: tuple[tuple[str, Any], ...] = ()  # of the rule and its agent
    learning: tuple[tuple[str, Any], ...] = ()

    def recipe(self, arena: Arena) -> Recipe:
        """The rule as it learns in this arena."""
        few = {"rows": 64} if arena.few_rows and self.rule in ("mfec", "nec") else {}
        recipe = make_rule(self.rule, **dict(self.options), **few)
        return recipe._replace(learning=dataclasses.replace(recipe.learning, **dict(self.learning)))


@functools.cache  # so that further seeds compile nothing
def make_trainer(arena: Arena, learner: Learner, steps: int) -> CompiledTrainer:
    """A trainer of one agent, for so many steps."""
    environment = make(arena.environment)
    assert isinstance(environment, Environment)
    return CompiledTrainer(environment, learner.recipe(arena), TrainerConfig(1, steps))


def curve(returns: np.ndarray, episodes: np.ndarray, random: float, parts: int = PARTS) -> np.ndarray:
    """The mean return in each of so many parts of a life, [parts]; a part in which no episode ends is like the one before.

    Args:
        returns: the sum over the episodes that ended in each iteration, [I].
        episodes: how many these were, [I].
        random: what the return counts as before any episode has ended.
        parts: at most I.
    """
    part = np.arange(len(returns)) * parts // len(returns)
    totals, numbers = (np.bincount(part, weights=each, minlength=parts) for each in (returns, episodes))
    means, last = np.empty(parts), random
    for place, (total, number) in enumerate(zip(totals, numbers, strict=True)):
        means[place] = last = total / number if number else last
    return means


def area(means: np.ndarray, random: float, best: float) -> float:
    """The normalised area under a curve [parts]."""
    return float((means.mean() - random) / (best - random))


@functools.cache
def uniform_return(environment: str, seed: int = 0, number: int = 256, steps: int = 2000) -> float:
    """The mean return of uniformly random actions, over all episodes that end in so many steps of `number` streams."""
    made = make(environment)
    assert isinstance(made, Environment)
    many, task = streams(made, number), made.default_task()

    def step(state: PyTree, key: Array) -> tuple[PyTree, tuple[Array, Array]]:
        key_action, key_step = jax.random.split(key)
        action = jax.random.randint(key_action, (number,), 0, made.num_actions, jnp.int32)
        state, timestep = many.step(task, state, action, key_step)
        return state, (jnp.sum(timestep.episode.ended), jnp.sum(jnp.where(timestep.episode.ended, timestep.episode.total, 0)))

    @functools.partial(jax.jit, compiler_options=COMPILE_FAST)
    def play(key: Array) -> Array:
        key_start, key_steps = jax.random.split(key)
        state, _ = many.start(task, key_start)
        _, (ended, totals) = jax.lax.scan(step, state, jax.random.split(key_steps, steps))
        return jnp.sum(totals) / jnp.sum(ended)

    return float(play(jax.random.key(seed)))
