"""Evaluation of a rule: fresh agents are trained with it, and their final return is compared with two baselines.

    score = (return - untrained) / (actor_critic - untrained)

A score of 0 means that nothing was learned, 1 that the agents learned as much as with a hand-designed rule in as many environment
steps. Every evaluation uses the same initial agents, tasks and random keys, so scores of one run differ by the rule alone.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.adapters.restart import MOST_RESTARTS
from rulax.envs.base import Environment, HostEnvironment
from rulax.learning.train import COMPILE_FAST, CompiledTrainer, Trainer, TrainerConfig, make_trainer
from rulax.rules.base import Recipe
from rulax.types import Array, Batch, Experience, Metrics, Predictions, PyTree

LATE = 0.2  # the part of an evaluation, at its end, whose episodes count
WORST, BEST = -1.0, 2.0  # scores beyond count as these, so that no family decides alone
EVALUATION_SEED = 2025  # never a run's own seed: scores of runs with different seeds are about the same agents


class Baselines(NamedTuple):
    """Final returns in one family that a score is relative to."""

    untrained: float
    actor_critic: float

    @property
    def scale(self) -> float:
        """The gain in return that is a score of 1; one unit of return where the hand-designed rule gains nothing."""
        gain = self.actor_critic - self.untrained
        return gain if gain > 1e-3 * max(1.0, abs(self.untrained)) else 1.0

    def score(self, final_return: float) -> float:
        """The score of a final return; where no episode ended (NaN), the lowest score."""
        if not np.isfinite(final_return):
            return WORST
        return float(np.clip((final_return - self.untrained) / self.scale, WORST, BEST))


class FamilyEvaluation:
    """Fresh agents in one family. One compiled program serves every rule of the same sizes."""

    def __init__(
        self,
        name: str,
        environment: Environment | HostEnvironment,
        recipe: Recipe,
        seeds: int,
        steps: int,
        once: bool = False,
        most_restarts: int = MOST_RESTARTS,
    ):
        """Compiles nothing yet.

        Args:
            name: of the family.
            environment: where the agents are trained, by the same trainers as ever.
            recipe: of the agents; its rule's parameters are given to `run`.
            seeds: agents.
            steps: environment steps of each.
            once: whether the program will run only once, so that time to compile matters more than speed.
            most_restarts: how often an environment on the host may fail.
        """
        self.name, self.environment, self.recipe, self.once = name, environment, recipe, once
        self.config = TrainerConfig(seeds, steps, task="random", most_restarts=most_restarts)
        self.restarts = 0  # of environments on the host, in all runs so far
        self._initial_state: Any = None

    @functools.cached_property
    def trainer(self) -> Trainer:
        """What trains the agents; made when it is first wanted, since on the host it opens environments."""
        trainer = make_trainer(self.environment, self.recipe, self.config)
        if self.once and isinstance(trainer, CompiledTrainer):
            trainer.compile_options = COMPILE_FAST
        return trainer

    def prepare(self) -> None:
        """Initialise the agents and compile their training, which `run` would otherwise do first."""
        if self._initial_state is None:
            key = jax.random.key(EVALUATION_SEED)
            # Not `hash`, which differs from process to process for strings.
            self._initial_state = self.trainer.init(jax.random.fold_in(key, zlib.crc32(self.name.encode())))
            self.trainer.compile(self._initial_state)
            self.trainer.release()

    def run(self, rule_params: PyTree, stopped: Callable[[], bool] = lambda: False) -> float | None:
        """Train the agents with a rule.

        Args:
            rule_params: the rule's parameters.
            stopped: whether the user has asked to stop.

        Returns:
            Their mean final return; NaN if no episode ended, None if stopped.
        """
        self.prepare()
        trainer = self.trainer
        trainer.rule_params = rule_params
        try:
            # Training consumes its state. On the host, the environments start again as they did the first time.
            state, chunks = trainer.resume(jax.tree.map(jnp.copy, self._initial_state)), []
            while not trainer.done(state):
                if stopped():
                    return None
                state, metrics = trainer.advance(state)
                self.restarts += int(np.sum(metrics.get("restarts", 0)))
                chunks.append((metrics["episode_return"], metrics["episodes"]))
        finally:
            trainer.release()  # long before the next run: hours of meta-steps lie between two evaluations
        returns, episodes = (np.concatenate(part).astype(np.float64).sum(1) for part in zip(*chunks, strict=True))
        return late_mean(returns, episodes)

    def close(self) -> None:
        """Close environments on the host; to close twice does no harm."""
        if "trainer" in vars(self):  # else there is none yet, and none need be made
            self.trainer.close()


def late_mean(returns: np.ndarray, episodes: np.ndarray) -> float:
    """Mean return of the episodes that ended in the last part of training; if there were none, of the last that ended.

    Args:
        returns: [I], the sum of the returns of the episodes that ended in each iteration.
        episodes: [I], how many ended.
    """
    ended = np.flatnonzero(episodes)
    if not len(ended):
        return float("nan")
    first = min(len(episodes) - int(np.ceil(LATE * len(episodes))), ended[-1])
    return float(returns[first:].sum() / episodes[first:].sum())


def evaluation_steps(recipe: Recipe, updates: int) -> int:
    """Environment steps of one evaluation, the same for the rule and for the baselines."""
    return updates * recipe.learning.streams * recipe.learning.unroll


def measure_baselines(
    name: str,
    environment: Environment | HostEnvironment,
    recipe: Recipe,
    hand_designed: Recipe,
    seeds: int,
    steps: int,
    most_restarts: int = MOST_RESTARTS,
) -> tuple[Baselines, int]:
    """Both baselines of one family: the agents of an evaluation without updates, and a rule in its own recommended settings.

    Args:
        name: of the family.
        environment: where the agents are trained.
        recipe: of the agents of an evaluation.
        hand_designed: of the rule that a score of 1 stands for.
        seeds: agents.
        steps: environment steps of each.
        most_restarts: how often an environment on the host may fail.

    Returns:
        The final returns, and how many environments had to be restarted.
    """
    found, restarts = [], 0
    for each in (frozen(recipe), hand_designed):
        evaluation = FamilyEvaluation(name, environment, each, seeds, steps, once=True, most_restarts=most_restarts)
        try:
            found.append(evaluation.run(evaluation.trainer.rule_params))
        finally:
            evaluation.close()
        restarts += evaluation.restarts
    return Baselines(*found), restarts  # type: ignore[arg-type]


def frozen(recipe: Recipe) -> Recipe:
    """The recipe of agents that never change. Its loss is zero, rather than its learning rate, to avoid compiling the rule."""

    def targets(rule_params: PyTree, state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        del rule_params, batch
        return {}, state, {}

    def loss(rule_params: PyTree, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        del rule_params, targets
        numbers, *_ = jax.tree.leaves(taken["policy"])  # [T, B, A], or [T, B, D, A] or [T, B, D] where an action has dimensions
        return 0.0 * numbers.sum(range(2, numbers.ndim)) + jnp.zeros_like(experience.reward), {}

    rule = recipe.rule._replace(init=lambda key: {}, targets=targets, loss=loss)
    # Decay would move the weights even where the gradient is zero.
    return recipe._replace(rule=rule, learning=recipe.learning.__class__(**{**vars(recipe.learning), "weight_decay": 0.0}))
