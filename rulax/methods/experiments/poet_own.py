"""POET in an environment of the user's own, or in ours, with agents that are evolved or that learn by a rule."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from rulax.envs.registry import make
from rulax.errors import UserError
from rulax.methods.base import Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.poet import Poet, Trailblazer, stacked
from rulax.methods.poet_agents import EvolvedAgents, Evolving, TrainedAgents
from rulax.methods.poet_story import PoetStory, story_of
from rulax.rules.registry import make_rule

TEST_SEED, TEST_TIMES = 2019, 8
EVOLVED = "es"
ITERATIONS: dict[Suite, int] = {"quick": 100, "full": 400}
# The numbers of `Poet` that depend on what an environment pays.
LEVELS = ("lowest", "highest", "parents_from", "solved")
OPTIONS: dict[str, Any] = {"env": "hurdles", "agents": "ppo", "iterations": 0, "capacity": 4} | {
    name: getattr(Poet(), name) for name in LEVELS
}


def make_agents(env: str, agents: str) -> EvolvedAgents | TrainedAgents:
    """Agents by evolution, or by a rule of this name."""
    environment: Any = make(env)
    return EvolvedAgents(environment, Evolving()) if agents == EVOLVED else TrainedAgents(environment, make_rule(agents))


def make_poet(suite: Suite = "full", iterations: int = 0, capacity: int = 4, **levels: float) -> tuple[Poet, int]:
    """The settings, and the number of iterations, as the suite says unless one is given."""
    poet = Poet(capacity=capacity, **levels)  # type: ignore[arg-type]
    total = iterations or ITERATIONS[suite]
    if total < poet.transfer_every:
        raise UserError(f"iterations must be at least {poet.transfer_every}, after which agents first move, not {iterations}")
    return poet, total


def check(env: str = "hurdles", agents: str = "ppo", **sizes: Any) -> None:
    """Refuse what cannot be, before anything begins."""
    make_poet(**sizes)
    make_agents(env, agents)


class OwnRun(SeedRun):
    """One seed of POET alone."""

    def __init__(self, suite: Suite, seed: int, env: str = "hurdles", agents: str = "ppo", **sizes: Any):
        self.poet, self.iterations = make_poet(suite, **sizes)
        self.agents = make_agents(env, agents)
        self.trail = Trailblazer(self.agents, self.poet, jax.random.key(seed))

    def advance(self) -> Progress:
        self.trail.advance()
        made, solved = self.trail.iteration, sum(world.solved is not None for world in self.trail.worlds)
        return Progress(min(1.0, made / self.iterations), made, self.trail.learned * self.agents.steps_each, float(solved))

    def done(self) -> bool:
        return self.trail.iteration >= self.iterations

    def test(self) -> Tested:
        worlds = [world for world in self.trail.worlds if world.agent is not None]
        learned = self.solved([world.agent for world in worlds], worlds)
        untrained = self.solved([self.trail.fresh] * len(worlds), worlds)
        details = {"environments": float(len(self.trail.worlds)), "ANNECS": float(self.trail.annecs)}
        reference = Reference("all environments that there were", float(len(self.trail.worlds)), "baseline")
        return Tested(np.array([float(learned)]), float(untrained), reference, {}, details, tasks=max(1, len(worlds)))

    def solved(self, members: list[Any], worlds: list[Any]) -> int:
        """How many worlds are solved by members, one each, in episodes that nobody has seen."""
        if not worlds:
            return 0
        keys = jax.random.split(jax.random.key(TEST_SEED), (TEST_TIMES, len(worlds)))
        tasks = stacked([world.task for world in worlds])
        scores = np.mean([self.agents.score(stacked(members), tasks, each) for each in keys], 0)
        return int(np.sum(scores >= self.poet.solved))

    def story(self) -> PoetStory:
        """What the page shows."""
        return story_of(self.agents.environment, self.poet, {"POET": self.trail}, {}, 0.0)


OWN = Experiment(
    method="poet",
    name="own",
    about="POET in an environment of yours (--options env=NAME) with agents that learn by a rule or are evolved (agents=ppo|es)",
    metric="environments that it solves",
    goal=None,
    quick_goal=None,
    start=OwnRun,
    minutes=10,
    options=OPTIONS,
    check=check,
)
