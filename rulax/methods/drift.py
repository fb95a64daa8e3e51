"""Proximal rules beside PPO (Lu et al. 2022): the same agents, steps and keys, so that only the drift function differs.

DPO is PPO with another drift (`rules/dpo.py`); a drift of one's own is evolved by `discovery`, over whole lives of agents in small
environments, from a rule that starts exactly as PPO (`rules/lpo.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from typing import Any

import jax
import numpy as np

from rulax.discovery.discover import Discoverer
from rulax.discovery.evaluate import frozen, late_mean
from rulax.discovery.population import Family
from rulax.discovery.settings import Discovery
from rulax.envs.registry import make
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.rules.base import Recipe
from rulax.rules.registry import make_rule
from rulax.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class Evolving:
    """Where and how a drift is evolved."""

    environments: tuple[str, ...] = ("catch:rows=8,columns=5", "grid/step-cost", "point")
    generations: int = 150
    updates: int = 32  # of a life
    pairs: int = 8  # of perturbed drifts, in each environment
    noise: float = 0.1
    rate: float = 2e-2  # of the drift's Adam

    def recipe(self) -> Recipe:
        """The rule and its agents: smaller batches than recommended, because lives are short."""
        recipe = make_rule("lpo")
        learning = dataclasses.replace(recipe.learning, streams=16, epochs=4, minibatches=4, learning_rate=3e-3, schedule_steps=0)
        return recipe._replace(learning=learning, network=dataclasses.replace(recipe.network, hidden=(32, 32)))

    def steps_each(self) -> int:
        """Environment steps of a generation: whole lives of the drift and of its perturbations."""
        learning = self.recipe().learning
        return len(self.environments) * (2 * self.pairs + 1) * self.updates * learning.streams * learning.unroll

    def discoverer(self) -> Discoverer:
        """Discovery over whole lives; fitness is ranked within each environment."""
        settings = Discovery(
            agents=1,
            lifetimes=(self.updates,),
            estimator="evolution",
            fitness="lifetime",
            pairs=self.pairs,
            noise=self.noise,
            meta_learning_rate=self.rate,
            meta_schedule="linear",
            meta_optimiser="mean",
        )
        recipe = self.recipe()
        return Discoverer([Family(name, make(name), recipe, settings) for name in self.environments], self.generations)


class Race:
    """Agents of one rule in one environment, trained as PPO recommends; their returns are those of the last fifth of training."""

    def __init__(self, environment: str, rule: str, agents: int, steps: int, key: Array, rule_params: PyTree = None):
        """
        Args:
            environment: by name.
            rule: by name, or "untrained" for PPO's agents without updates.
            agents: K, trained side by side.
            steps: environment steps of each.
            key: of the run; agents of all rules begin alike.
            rule_params: of a rule that has some.
        """
        made: Any = make(environment)
        self.trainer = CompiledTrainer(made, recipe_of(rule), TrainerConfig(agents, steps))
        if rule_params is not None:
            self.trainer.rule_params = rule_params
        self.begin = functools.partial(self.trainer.init, jax.random.fold_in(key, zlib.crc32(environment.encode())))
        self.state: Any = None
        self.chunks: list[tuple[np.ndarray, np.ndarray]] = []

    def done(self) -> bool:
        """Whether the agents have had all of their steps."""
        return self.state is not None and self.trainer.done(self.state)

    def steps(self) -> int:
        """Environment steps of all agents so far."""
        return 0 if self.state is None else self.trainer.steps(self.state) * self.trainer.config.seeds

    def advance(self) -> None:
        """About a second of training."""
        self.state = self.begin() if self.state is None else self.state
        self.state, metrics = self.trainer.advance(self.state)
        self.chunks.append((metrics["episode_return"], metrics["episodes"]))

    def returns(self) -> np.ndarray:
        """The final returns [K]; NaN where no episode has ended."""
        if not self.chunks:
            return np.full(self.trainer.config.seeds, np.nan)
        returns, episodes = (np.concatenate(part).astype(np.float64) for part in zip(*self.chunks, strict=True))
        return np.array([late_mean(returns[:, agent], episodes[:, agent]) for agent in range(returns.shape[1])])


def recipe_of(rule: str) -> Recipe:
    """A rule with the settings that PPO recommends."""
    ppo = make_rule("ppo")
    return frozen(ppo) if rule == "untrained" else ppo._replace(rule=make_rule(rule).rule)
