"""Population based training of actor-critic agents beside random search with as many agents and steps, and beside its own parts."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from rulax.envs.registry import make
from rulax.evaluation.episodes import make_evaluator
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.experiments.pbt_toy import TOY
from rulax.methods.pbt import Pbt, Space
from rulax.methods.population import PopulationState, PopulationTrainer, scores_of
from rulax.rules.actor_critic import LEARNING, NETWORK, actor_critic
from rulax.rules.adjustable import adjustable
from rulax.rules.base import Recipe

TEST_SEED = 2017  # never a seed of training
# From a tenth of what the rule recommends to ten times of it, as on the command line; of the discount, its odds.
SPACES = {
    "learning_rate": Space(3e-4, 3e-2, "log"),
    "entropy_cost": Space(1e-3, 1e-1, "log"),
    "discount": Space(99 / 109, 990 / 991, "odds"),
}
POPULATION, RANDOM = "population", "random search"
WAYS = {
    POPULATION: Pbt(SPACES),
    RANDOM: Pbt(SPACES, selection="none", explorers="none"),
    "only hyper-parameters copied": Pbt(SPACES, copies="hyperparameters"),
    "only weights copied": Pbt(SPACES, copies="weights", explorers="none"),
}


@dataclasses.dataclass(frozen=True)
class PopulationSetup:
    """How many agents learn for how long, and how they are tested."""

    env: str = "cartpole"
    members: int = 16
    steps: int = 150_000  # of each, rounded down to whole stretches: a score of a piece of one would be that of few episodes
    turns: int = 24
    test_episodes: int = 32  # of each member

    def make_trainer(self, environment: Any) -> CompiledTrainer:
        """One program for all ways: they differ in what a turn does, and that happens between its calls."""
        rule = adjustable(lambda constants: actor_critic(**constants), {"discount": 0.99, "entropy_cost": 0.01})  # type: ignore[arg-type]
        recipe = Recipe(rule, dataclasses.replace(LEARNING, schedule="constant"), NETWORK)
        stretch = self.turns * LEARNING.streams * LEARNING.unroll
        steps = max(1, self.steps // stretch) * stretch
        rates = {"learning_rate": np.ones(self.members)}  # replaced by what is drawn
        return CompiledTrainer(environment, recipe, TrainerConfig(self.members, steps), rates)


class PopulationRun(SeedRun):
    """One seed: every way in turn, from the same agents with the same hyper-parameters."""

    def __init__(self, suites: dict[Suite, PopulationSetup], suite: Suite, seed: int):
        self.setup, self.key = suites[suite], jax.random.key(seed)
        self.environment = make(self.setup.env)
        self.inner = self.setup.make_trainer(self.environment)
        self.evaluate = make_evaluator(self.environment, self.setup.test_episodes)
        self.ends: dict[str, PopulationState] = {}  # of the ways that are done
        self._begin()

    def _begin(self) -> None:
        """The next way."""
        every = self.inner.total_iterations // self.setup.turns
        self.trainer = PopulationTrainer(self.inner, list(WAYS.values())[len(self.ends)], every)
        self.state = self.trainer.init(self.key)
        if not self.ends:
            self.untrained = self._returns(self.state)[0].mean()

    def _returns(self, state: PopulationState, number: int = 0) -> np.ndarray:
        """Test returns of the first agents (0: of all), [K, episodes], with actions drawn as in training."""
        keys = jax.random.split(jax.random.key(TEST_SEED), self.setup.members)
        agents = [self.trainer.agent(state, member) for member in range(number or self.setup.members)]
        return np.stack([self.evaluate(agent, key, False, None).returns for agent, key in zip(agents, keys, strict=False)])

    def advance(self) -> Progress:
        self.state, metrics = self.trainer.advance(self.state)
        value = float(metrics["episode_return"].sum() / max(metrics["episodes"].sum(), 1))
        if self.trainer.done(self.state):
            self.ends[list(WAYS)[len(self.ends)]] = self.state
            if not self.done():
                self._begin()
        total = self.inner.total_iterations * len(WAYS)
        made = self.inner.total_iterations * len(self.ends) + (0 if self.done() else int(self.state.training.iteration))
        return Progress(made / total, made, made * self.inner.steps_per_iteration * self.setup.members, value)

    def done(self) -> bool:
        return len(self.ends) == len(WAYS)

    def test(self) -> Tested:
        ends = self.ends or {POPULATION: self.state}  # a run whose time was up
        returns = {way: self._returns(state).mean(-1) for way, state in ends.items()}
        # Which agent is the best is known from training; how good it is, from the test.
        best = {way: float(returns[way][int(np.nanargmax(scores_of(state)))]) for way, state in ends.items()}
        base, most = float(returns.get(RANDOM, returns[POPULATION]).mean()), best.get(RANDOM, best[POPULATION])
        details = {f"{way}, mean return": float(each.mean()) for way, each in returns.items()}
        details |= {f"{way}, return of its best": each for way, each in best.items()}
        details |= {WORST_MARGIN: best[POPULATION] / most - 1}
        baselines = {way: float(each.mean()) / base for way, each in returns.items() if way != POPULATION}
        reference = Reference("the best agent of random search", most / base, "baseline")
        return Tested(returns[POPULATION] / base, float(self.untrained) / base, reference, baselines, details)


SETUPS: dict[Suite, PopulationSetup] = {
    "quick": PopulationSetup(env="catch", members=8, steps=20_000, turns=16, test_episodes=16),
    "full": PopulationSetup(),
}
EXPERIMENTS = (
    TOY,
    Experiment(
        method="pbt",
        name="cartpole",
        about="16 actor-critic agents on CartPole (quick: 8 on Catch): learning rate, entropy cost and discount",
        metric="mean return of the members, over that of random search",
        goal=1.13,
        quick_goal=None,
        start=functools.partial(PopulationRun, SETUPS),
        minutes=1,
    ),
)
