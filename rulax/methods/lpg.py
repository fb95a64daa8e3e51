"""A learned policy gradient, found from random weights (Oh et al. 2020), and how fresh agents fare by it in held-out environments.

The rule is `rules/lpg.py`, and finding it is `discovery`, by back-propagation through windows of ten updates. Random weights teach,
too: the sign of one number decides whether what pays is reinforced, and some draws have it right. So a rule that is to show that it
was *found* begins with weights of which it is known that they do not teach.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from rulax.discovery.discover import Discoverer
from rulax.discovery.evaluate import Baselines, FamilyEvaluation, evaluation_steps, measure_baselines
from rulax.discovery.meta_step import DiscoveryState
from rulax.discovery.population import Family
from rulax.discovery.settings import Discovery
from rulax.envs.registry import make
from rulax.rules.base import Recipe
from rulax.rules.registry import make_rule
from rulax.types import PyTree

# Those of the suite `grids` of `rulax discover`, which methods cannot read: it belongs to the command.
DISCOVERY = Discovery(
    agents=4,
    window=10,
    lifetimes=(50, 100, 200),
    meta_learning_rate=3e-3,
    meta_schedule="linear",
    policy_entropy_cost=2e-2,
    memory="plain",
    critic_hidden=(64, 64),
)
MOST_DRAWS = 20


@dataclasses.dataclass(frozen=True)
class Search:
    """Where a rule is found, for how long, and where it is judged."""

    training: tuple[str, ...]
    validation: tuple[str, ...]  # no agent of discovery lives here
    steps: int  # of discovery
    hidden: int = 64  # width of the rule's LSTM; the paper's is 256
    discovery: Discovery = DISCOVERY
    seeds: int = 4  # fresh agents per validation environment
    updates: int = 100  # of each of them
    compile_fast: bool = False  # where programs run for seconds only

    def recipe(self) -> Recipe:
        """The rule and its agents."""
        recipe = make_rule("lpg", hidden=self.hidden)
        # In discovery a schedule ends with the lifetime of each agent.
        return recipe._replace(learning=dataclasses.replace(recipe.learning, schedule_steps=0))


class Judge:
    """Scores of a rule in the validation environments: 0 is an agent that never learns, 1 what actor-critic reaches."""

    def __init__(self, search: Search, recipe: Recipe):
        self.steps = evaluation_steps(recipe, search.updates)
        made = {name: make(name) for name in search.validation}
        plain = make_rule("actor_critic")
        learning = dataclasses.replace(plain.learning, streams=recipe.learning.streams, schedule_steps=0)
        plain = plain._replace(learning=learning)
        sizes = search.seeds, self.steps
        self.baselines: dict[str, Baselines] = {
            name: measure_baselines(name, environment, recipe, plain, *sizes)[0] for name, environment in made.items()
        }
        self.evaluations = [
            FamilyEvaluation(name, environment, recipe, *sizes, once=search.compile_fast) for name, environment in made.items()
        ]

    def scores(self, rule_params: PyTree) -> np.ndarray:
        """By validation environment, of fresh agents that learn by the rule."""
        returns = [(each.name, each.run(rule_params)) for each in self.evaluations]
        return np.array([self.baselines[name].score(float("nan") if found is None else found) for name, found in returns])


class Start(NamedTuple):
    """Where discovery begins."""

    state: DiscoveryState
    scores: np.ndarray  # of the rule as it begins
    draws: int  # of random weights, of which this was the last


def make_discoverer(search: Search, recipe: Recipe) -> Discoverer:
    """Discovery of the rule in the environments of training."""
    families = [Family(name, make(name), recipe, search.discovery) for name in search.training]
    return Discoverer(families, search.steps)


def begin(discoverer: Discoverer, recipe: Recipe, judge: Judge, harmless: float, key: Any) -> Start:
    """Random weights that do not teach: the first draw whose mean score is below `harmless`."""
    for draw in range(MOST_DRAWS):
        key_draw = jax.random.fold_in(key, draw)
        rule_params = recipe.rule.init(key_draw)
        scores = judge.scores(rule_params)
        if scores.mean() < harmless:
            break
    return Start(discoverer.init(key_draw, rule_params), scores, draw + 1)
