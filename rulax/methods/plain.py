"""Disco103 as a plain learner, without any meta-training here: one new agent per task, which learns by its updates alone.

Each agent lives exactly as long as a trial of RL² in the same task. That is far too short for a fair race: the rule was discovered
with agents that live for millions of steps. The comparison shows what gradient steps alone achieve where a memory needs none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rulax.envs.base import Environment
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.rules.base import Recipe
from rulax.rules.registry import make_rule
from rulax.settings import Network

LEARNING_RATE = 1e-2  # as recommended here; the paper has 1e-4 to 5e-4, but there is time for only 5 to 20 updates
NETWORK = Network(hidden=(64, 64), activate_last=False, action_model=64, action_hidden=(64,))


@dataclasses.dataclass(frozen=True)
class PlainDisco:
    """An environment, and how long each agent lives in it."""

    environment: Callable[[], Environment]
    steps: int  # of a lifetime
    unroll: int  # steps per update

    def recipe(self) -> Recipe:
        """Disco103 on one stream: every step is learned from when it is fresh, and once more from replay."""
        recipe = make_rule("disco103")
        learning = dataclasses.replace(recipe.learning, streams=1, unroll=self.unroll, batch=2, replay=0.5, capacity=64, warmup=0)
        return recipe._replace(learning=dataclasses.replace(learning, learning_rate=LEARNING_RATE), network=NETWORK)


def make_trainer(plain: PlainDisco, tasks: int) -> CompiledTrainer:
    """A trainer of `tasks` independent agents, each with a task of its own."""
    return CompiledTrainer(plain.environment(), plain.recipe(), TrainerConfig(tasks, plain.steps, task="random"))
