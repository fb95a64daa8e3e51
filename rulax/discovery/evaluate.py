"""How good a rule is: fresh agents that live by it from birth, and what they earn at the end, between two yardsticks.

    score = (return - untrained) / (actor_critic - untrained)

0 is an agent that learns nothing, 1 one that learns by a rule written by people in as many environment steps. The agents, their
tasks and their luck are the same at every evaluation, so that scores of one run differ by the rule alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment
from rulax.learning.train import COMPILE_FAST, CompiledTrainer, TrainerConfig
from rulax.rules.base import Recipe
from rulax.types import Array, Batch, Experience, Metrics, Predictions, PyTree

LATE = 0.2  # the part of an evaluation, at its end, whose episodes count
WORST, BEST = -1.0, 2.0  # scores beyond count as these, so that no family decides alone
EVALUATION_SEED = 2025  # never a run's own seed: scores of runs with different seeds are about the same agents


class Baselines(NamedTuple):
    """Final returns that a score is measured by, in one family."""

    untrained: float
    actor_critic: float

    @property
    def scale(self) -> float:
        """What a score of 1 is worth; where the hand-designed rule gains nothing, one unit of return."""
        gain = self.actor_critic - self.untrained
        return gain if gain > 1e-3 * max(1.0, abs(self.untrained)) else 1.0

    def score(self, final_return: float) -> float:
        """Where a return stands between them; agents of which no episode ends are the worst."""
        if not np.isfinite(final_return):
            return WORST
        return float(np.clip((final_return - self.untrained) / self.scale, WORST, BEST))


class OnceTrainer(CompiledTrainer):
    """Trains as every trainer does; its program runs once, so that the quickest to compile is the best."""

    compile_options = COMPILE_FAST


class Evaluation:
    """Fresh agents in one family. One compiled program serves every rule of the same sizes."""

    def __init__(
        self,
        name: str,
        environment: Environment,
        recipe: Recipe,
        seeds: int,
        steps: int,
        kind: type[CompiledTrainer] = CompiledTrainer,
    ):
        self.name = name
        self.trainer = kind(environment, recipe, TrainerConfig(seeds, steps, task="random"))
        self._initial_state: Any = None

    def prepare(self) -> None:
        """Make the newborn agents and compile their life; `run` would do it otherwise."""
        if self._initial_state is None:
            key = jax.random.key(EVALUATION_SEED)
            self._initial_state = self.trainer.init(jax.random.fold_in(key, zlib.crc32(self.name.encode())))
            self.trainer.compile(self._initial_state)

    def run(self, rule_params: PyTree, stopped: Callable[[], bool] = lambda: False) -> float | None:
        """The agents' final return with this rule; None if somebody asked to stop. NaN if no episode ever ended."""
        self.prepare()
        trainer = self.trainer
        trainer.rule_params = rule_params
        state, chunks = jax.tree.map(jnp.copy, self._initial_state), []  # training consumes its state
        while not trainer.done(state):
            if stopped():
                return None
            state, metrics = trainer.advance(state)
            chunks.append((metrics["episode_return"], metrics["episodes"]))
        returns, episodes = (np.concatenate(part).astype(np.float64).sum(1) for part in zip(*chunks, strict=True))
        return late_mean(returns, episodes)


def late_mean(returns: np.ndarray, episodes: np.ndarray) -> float:
    """Mean return of the episodes in the last part, from sums per iteration [I]; if none ended there, of the last that did."""
    ended = np.flatnonzero(episodes)
    if not len(ended):
        return float("nan")
    first = min(len(episodes) - int(np.ceil(LATE * len(episodes))), ended[-1])
    return float(returns[first:].sum() / episodes[first:].sum())


def evaluation_steps(recipe: Recipe, updates: int) -> int:
    """Environment steps of one evaluation, the same for the rule and for its yardsticks."""
    return updates * recipe.learning.streams * recipe.learning.unroll


def measure_baselines(
    name: str, environment: Environment, recipe: Recipe, hand_designed: Recipe, seeds: int, steps: int
) -> Baselines:
    """Both yardsticks of one family: the same agents as in an exam, never updated; and a rule in its own recommended settings."""
    found = []
    for each in (frozen(recipe), hand_designed):
        evaluation = Evaluation(name, environment, each, seeds, steps, OnceTrainer)
        found.append(evaluation.run(evaluation.trainer.rule_params))
    return Baselines(*found)  # type: ignore[arg-type]


def frozen(recipe: Recipe) -> Recipe:
    """The same agents, which never change: a loss of zero instead of a learning rate of zero spares compiling the rule."""

    def targets(rule_params: PyTree, state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        del rule_params, batch
        return {}, state, {}

    def loss(rule_params: PyTree, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        del rule_params, targets
        (logits,) = jax.tree.leaves(taken["policy"])  # [T, B, A], or [T, B, D, A] where an action has several dimensions
        return 0.0 * logits.sum(range(2, logits.ndim)) + jnp.zeros_like(experience.reward), {}

    rule = recipe.rule._replace(init=lambda key: {}, targets=targets, loss=loss)
    return recipe._replace(rule=rule, learning=recipe.learning.__class__(**{**vars(recipe.learning), "weight_decay": 0.0}))
