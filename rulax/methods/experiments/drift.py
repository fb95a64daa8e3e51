"""DPO, and a drift that is evolved here, beside PPO on the classic suite."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np

from rulax.discovery.evaluate import Baselines
from rulax.evaluation.statistics import interquartile_mean
from rulax.methods.base import Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.drift import Evolving, Race

UNTRAINED, PPO = "untrained", "ppo"
# "Not worse" needs a size: a tenth of what PPO learns.
MARGIN = -0.1


@dataclasses.dataclass(frozen=True)
class DriftSetup:
    """Which rules meet where, for how long."""

    rules: tuple[str, ...]  # beside PPO; the first is judged
    against: str = PPO  # what it is to be no worse than
    # Without the mountain car: in 100,000 steps no proximal rule reaches its goal, so that it says nothing about them.
    environments: tuple[str, ...] = ("cartpole", "acrobot", "pendulum")
    agents: int = 10
    steps: int = 100_000
    evolving: Evolving | None = None  # of the rule lpo


class DriftRun(SeedRun):
    """One seed: a drift is evolved if one is wanted, then all rules are trained in all environments."""

    def __init__(self, setups: dict[Suite, DriftSetup], suite: Suite, seed: int):
        self.setup, self.key = setups[suite], jax.random.key(seed)
        self.discoverer = self.setup.evolving.discoverer() if self.setup.evolving else None
        self.found = self.discoverer.init(self.key) if self.discoverer else None
        self.races: dict[tuple[str, str], Race] = {}
        # What the others are measured by comes first.
        self.order = [(rule, env) for rule in (UNTRAINED, PPO, *self.setup.rules) for env in self.setup.environments]

    def race(self, rule: str, environment: str) -> Race:
        """Made when it is first wanted: an evolved drift must have been found by then."""
        if (rule, environment) not in self.races:
            params = self.found.meta_params if rule == "lpo" and self.found is not None else None
            sizes = self.setup.agents, self.setup.steps
            self.races[rule, environment] = Race(environment, rule, *sizes, self.key, params)
        return self.races[rule, environment]

    def advance(self) -> Progress:
        if self.discoverer is not None and self.found is not None and not self.discoverer.done(self.found):
            self.found, _ = self.discoverer.advance(self.found)
        else:
            next(race for race in (self.race(*each) for each in self.order) if not race.done()).advance()
        return self.progress()

    def progress(self) -> Progress:
        """Generations count as a half, where there are some."""
        steps, made = sum(race.steps() for race in self.races.values()), 0
        fraction = steps / (len(self.order) * self.setup.agents * self.setup.steps)
        if self.setup.evolving and self.discoverer is not None and self.found is not None:
            made = int(self.found.steps)
            steps += made * self.setup.evolving.steps_each()
            fraction = (made / self.discoverer.total_steps + min(fraction, 1.0)) / 2
        return Progress(min(fraction, 1.0), made, steps, float("nan"))

    def done(self) -> bool:
        return all(each in self.races and self.races[each].done() for each in self.order)

    def test(self) -> Tested:
        for environment in self.setup.environments:  # a budget may have ended before there was anything to be measured by
            for rule in (UNTRAINED, PPO):
                while not (race := self.race(rule, environment)).done():
                    race.advance()
        scores = {rule: self.scores(rule) for rule in (PPO, *self.setup.rules)}
        means = {rule: float(interquartile_mean(each)) for rule, each in scores.items()}
        first, against = self.setup.rules[0], self.setup.against
        details = {f"{rule}: interquartile mean": mean for rule, mean in means.items()}
        for rule in (UNTRAINED, PPO, *self.setup.rules):
            details |= {f"{env}: {rule}": float(np.nanmean(self.returns(rule, env))) for env in self.setup.environments}
        reference = Reference(f"as good as {against}", 0.0, "baseline")
        return Tested(np.array([means[first] - means[against]]), -means[against], reference, {}, details, tasks=scores[first].size)

    def returns(self, rule: str, environment: str) -> np.ndarray:
        """Final returns [K]; those of untrained agents where no episode has ended."""
        found = self.race(rule, environment).returns()
        return np.where(np.isnan(found), np.nanmean(self.race(UNTRAINED, environment).returns()), found)

    def scores(self, rule: str) -> np.ndarray:
        """Scores [K, E]: 0 is the mean return of untrained agents, 1 that of PPO's."""
        columns = []
        for environment in self.setup.environments:
            ends = Baselines(*(float(self.returns(each, environment).mean()) for each in (UNTRAINED, PPO)))
            columns.append((self.returns(rule, environment) - ends.untrained) / ends.scale)
        return np.stack(columns, -1)


DPO: dict[Suite, DriftSetup] = {
    "full": DriftSetup(("dpo",)),
    "quick": DriftSetup(("dpo",), environments=("catch",), agents=4, steps=60_000),
}
EVOLVED: dict[Suite, DriftSetup] = {
    "full": DriftSetup(("lpo", "dpo"), "dpo", evolving=Evolving()),
    "quick": DriftSetup(("lpo", "dpo"), "dpo", ("catch",), 4, 60_000, Evolving(("point",), generations=4, updates=8, pairs=4)),
}
METRIC = "interquartile mean of scores (0 untrained, 1 PPO) less that of"
EXPERIMENTS = (
    Experiment(
        method="drift",
        name="dpo",
        about="DPO beside PPO on the classic suite: ten agents of each, 100,000 steps",
        metric=f"{METRIC} PPO",
        goal=MARGIN,
        quick_goal=MARGIN,
        start=functools.partial(DriftRun, DPO),
        minutes=2,
    ),
    Experiment(
        method="drift",
        name="evolved",
        about="a drift evolved in three small environments, beside DPO and PPO on the classic suite",
        metric=f"{METRIC} DPO",
        goal=MARGIN,
        quick_goal=None,
        start=functools.partial(DriftRun, EVOLVED),
        minutes=9,
    ),
)
