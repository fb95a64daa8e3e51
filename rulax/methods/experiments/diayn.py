"""Experiments with skills: a grid, where everything is exact, and the box of the paper, where everything is learned."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import numpy as np

from rulax.envs.lasting import with_skill
from rulax.envs.point import box
from rulax.envs.wrappers import TimeLimit
from rulax.evaluation.skills import Skills, judge_skills
from rulax.learning.train import CompiledTrainer, TrainerConfig
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.diayn import SkillState, SkillWorld, improve, information, init_skills, occupancy_of
from rulax.methods.loop import Loop
from rulax.rules.diayn import diayn
from rulax.types import Array, Metrics

TEST_SEED = 2018  # never a seed of training
SHARE = {"grid": 0.95, "box": 0.9}  # of log n, the information of n skills that are never mistaken for each other
LEAST_RECOGNISED = 0.9  # the second goal in the box: of every skill's states
LIMIT = 50  # steps of an episode, as in `point/box`
METRIC = "I(S; Z) in nats"


class GridRun(SeedRun):
    """One seed of exact policy iteration; the seed decides how the first policies differ."""

    kept = ("state", "loop.made")

    def __init__(self, world: SkillWorld, iterations: dict[Suite, int], suite: Suite, seed: int):
        self.world, self.loop = world, Loop(functools.partial(measured, world), iterations[suite])
        self.state = init_skills(world, jax.random.key(seed))
        self.untrained = float(information(self.state.occupancy))

    def advance(self) -> Progress:
        self.state, metrics = self.loop.advance(self.state)
        return Progress(self.loop.made / self.loop.total, self.loop.made, 0, metrics["information"])

    def done(self) -> bool:
        return self.loop.done()

    def test(self) -> Tested:
        occupancy, skills = occupancy_of(self.world, self.state.policy), self.world.skills
        found = np.asarray(occupancy)
        own = (found.argmax(0)[None] == np.arange(skills)[:, None]) * found  # in cells where a skill is the likeliest
        details = {f"skill {each} recognised": float(share) for each, share in enumerate(own.sum(-1))}
        reference = Reference("skills that never meet", math.log(skills), "exact")
        return Tested(np.array([float(information(occupancy))]), self.untrained, reference, details=details)


def measured(world: SkillWorld, state: SkillState) -> tuple[SkillState, Metrics]:
    """One iteration, and the information of what the discriminator saw."""
    state = improve(world, state)
    return state, {"information": information(state.occupancy)}


@dataclasses.dataclass(frozen=True)
class BoxSetup:
    """How many skills, and for how long they learn."""

    skills: int
    steps: int


class BoxRun(SeedRun):
    """One seed of the rule `diayn` with its recommended settings."""

    kept = ("state",)

    def __init__(self, suites: dict[Suite, BoxSetup], suite: Suite, seed: int):
        self.setup, recipe = suites[suite], diayn(suites[suite].skills)
        self.environment = with_skill(TimeLimit(box(), LIMIT), self.setup.skills)
        self.trainer = CompiledTrainer(self.environment, recipe, TrainerConfig(1, self.setup.steps))
        self.state = self.trainer.init(jax.random.key(seed))
        self.untrained = self._judged(jax.random.key(TEST_SEED)).information

    def _judged(self, key: Array) -> Skills:
        judged = judge_skills(self.trainer.agent(self.state), self.environment, key)
        assert judged is not None
        return judged

    def advance(self) -> Progress:
        self.state, metrics = self.trainer.advance(self.state)
        updates, total = int(self.state.iteration), self.trainer.total_iterations
        return Progress(updates / total, updates, self.trainer.steps(self.state), float(metrics["skill_reward"].mean()))

    def done(self) -> bool:
        return self.trainer.done(self.state)

    def test(self) -> Tested:
        judged = self._judged(jax.random.key(TEST_SEED))
        details = {f"skill {each} recognised": float(share) for each, share in enumerate(judged.accuracy)}
        details |= {"effective skills": judged.effective, "return on 25 goals": goals_return(judged)}
        details |= {WORST_MARGIN: float(np.nanmin(judged.accuracy)) - LEAST_RECOGNISED}
        reference = Reference("skills that are never mistaken", math.log(self.setup.skills), "exact")
        return Tested(judged.rewards, self.untrained, reference, details=details)


def goals_return(skills: Skills) -> float:
    """The paper's test of what skills are good for: the return -sum |s - g|² with the best skill, mean over 25 goals g.

    The best skill is known here; an agent above them would have to find it.
    """
    line = np.linspace(-0.4, 0.4, 5)
    goals = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    away = np.nansum(np.square(skills.paths.places[:, :, None] - goals), -1)  # [T, N, goals]
    returns = -away.sum(0)
    mean = [returns[skills.paths.skill == each].mean(0) for each in range(skills.number) if (skills.paths.skill == each).any()]
    return float(np.max(mean, 0).mean())


def grid(skills: int) -> Experiment:
    """So many skills on a grid."""
    return Experiment(
        method="diayn",
        name=f"grid-{skills}",
        about=f"{skills} skills on 7 x 7 cells, exact discriminator and soft policy iteration",
        metric=METRIC,
        goal=SHARE["grid"] * math.log(skills),
        quick_goal=SHARE["grid"] * math.log(skills),
        start=functools.partial(GridRun, SkillWorld(skills=skills), {"quick": 25, "full": 100}),
        minutes=0.1,
    )


def in_the_box(skills: int, quick: int, full: int, quick_goal: float) -> Experiment:
    """So many skills in the box."""
    return Experiment(
        method="diayn",
        name=f"box-{skills}",
        about=f"{skills} skills in the unit box, rule and discriminator learned; every skill recognised in 90 % of its states",
        metric=f"{METRIC}, as its discriminator sees it",
        goal=SHARE["box"] * math.log(skills),
        quick_goal=quick_goal,
        start=functools.partial(BoxRun, {"quick": BoxSetup(skills, quick), "full": BoxSetup(skills, full)}),
        minutes=1,
    )


EXPERIMENTS = (grid(2), grid(4), in_the_box(6, 100_000, 300_000, 1.2))
