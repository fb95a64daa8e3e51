"""POET on Gymnasium's walker, which steps on the host: small and slow, to show that nothing but the environment is another one."""

from __future__ import annotations

import dataclasses
import importlib.util

import jax
import numpy as np

from rulax.methods.base import Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.poet import Poet, Trailblazer, stacked
from rulax.methods.poet_agents import Evolving
from rulax.methods.poet_host import HostEvolvedAgents
from rulax.methods.poet_story import PoetStory, story_of

TEST_SEED, TEST_TIMES = 2019, 5
# The first 200 of an episode's 1600 steps: 300 for the whole way are 37 for these.
HORIZON = 200


@dataclasses.dataclass(frozen=True)
class WalkerSetup:
    """How long."""

    poet: Poet
    evolving: Evolving
    iterations: int


class WalkerRun(SeedRun):
    """One seed."""

    def __init__(self, suite: Suite, seed: int):
        from rulax.envs.bipedal import Walkers  # not above: it refuses to be imported without Box2D

        self.setup = SETUPS[suite]
        self.agents = HostEvolvedAgents(Walkers(), self.setup.evolving, HORIZON)
        self.trail = Trailblazer(self.agents, self.setup.poet, jax.random.key(seed))
        self.first = self.trail.fresh

    def story(self) -> PoetStory:
        """What the page shows."""
        return story_of(self.agents.environment, self.setup.poet, {"POET": self.trail}, {}, 0.0)

    def advance(self) -> Progress:
        self.trail.advance()
        made = self.trail.iteration
        value = float(self.trail.scores[self.trail.active].mean())
        return Progress(made / self.setup.iterations, made, self.agents.steps, value)

    def done(self) -> bool:
        return self.trail.iteration >= self.setup.iterations

    def test(self) -> Tested:
        worlds = [world for world in self.trail.worlds if world.agent is not None]
        tasks = stacked([world.task for world in worlds])
        # The same episodes before and after.
        keys = jax.random.split(jax.random.key(TEST_SEED), (TEST_TIMES, len(worlds)))
        before, after = (
            np.mean([self.agents.score(stacked(members), tasks, each) for each in keys], 0)
            for members in ([self.first] * len(worlds), [world.agent for world in worlds])
        )
        accepted = [each.accepted for each in self.trail.transfers]
        details = {"environments": float(len(self.trail.worlds)), "on flat ground": float(after[0])}
        details |= {"share of transfers accepted": float(np.mean(accepted))} if accepted else {}
        reference = Reference("solved (230), for as many steps", self.setup.poet.solved, "baseline")
        return Tested(after.astype(np.float64), float(before.mean()), reference, {}, details)


SLOW = Poet(capacity=3, transfer_every=10, reproduce_every=10, lowest=-30, highest=25, parents_from=-10, solved=230 / 8, children=3)
SETUPS: dict[Suite, WalkerSetup] = {
    "quick": WalkerSetup(
        dataclasses.replace(SLOW, capacity=2, transfer_every=2, reproduce_every=2), Evolving(pairs=2, rollouts=1), 6
    ),
    "full": WalkerSetup(SLOW, Evolving(pairs=8, rollouts=2), 30),
}
WALKER = Experiment(
    method="poet",
    name="walker",
    about="POET on Gymnasium's BipedalWalker, with the terrain of hurdles: a small run on the host",
    metric="return of the best agents in 200 steps, in their own environments",
    goal=None,
    quick_goal=None,
    start=WalkerRun,
    minutes=11,
    unavailable=lambda: None if importlib.util.find_spec("Box2D") else "it needs Box2D: pip install 'rulax[box2d]'",
)
