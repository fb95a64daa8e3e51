"""The table of Packer et al. (2018): four environments, trained as they are (D) and randomised (R), tested inside and outside."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.base import Agent
from rulax.envs.classic.acrobot import Acrobot
from rulax.envs.classic.cartpole import CartPole
from rulax.envs.classic.mountain_car import MountainCar
from rulax.envs.classic.pendulum import continuous_pendulum
from rulax.learning.train import COMPILE_FAST, CompiledTrainer, TrainState
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Published, Reference, SeedRun, Suite, Tested
from rulax.methods.domain_randomisation import (
    LIMIT,
    TESTS,
    UPRIGHT,
    Domain,
    Version,
    arrived_within,
    held_up,
    make_trainer,
    stayed_upright,
    successes,
    summary,
)
from rulax.rules.base import Recipe
from rulax.rules.registry import make_rule
from rulax.settings import Network
from rulax.types import Array

TEST_SEED = 2018  # never a seed of training
TRAINED_IN: tuple[Version, ...] = ("D", "R")  # all that interpolation and extrapolation are computed from
NETWORK = Network(hidden=(64, 64), activation="tanh", action_distribution="gaussian")

CARTPOLE = Domain(
    CartPole(),
    {"force": (5, 15), "length": (0.25, 0.75), "mass": (0.05, 0.5)},
    {"force": [(1, 5), (15, 20)], "length": [(0.05, 0.25), (0.75, 1)], "mass": [(0.01, 0.05), (0.5, 1)]},
    held_up,
)
MOUNTAIN_CAR = Domain(
    MountainCar(),
    {"force": (0.0005, 0.005), "mass": (0.001, 0.005)},
    {"force": [(0.0001, 0.0005), (0.005, 0.01)], "mass": [(0.0005, 0.001), (0.005, 0.01)]},
    arrived_within(110),
)
AROUND_ONE, BEYOND = (0.75, 1.25), [(0.5, 0.75), (1.25, 1.5)]
ACROBOT = Domain(
    Acrobot(by_angles=True),
    dict.fromkeys(("length", "mass", "inertia"), AROUND_ONE),
    dict.fromkeys(("length", "mass", "inertia"), BEYOND),
    arrived_within(80),
)
PENDULUM = Domain(
    continuous_pendulum(),
    dict.fromkeys(("length", "mass"), AROUND_ONE),
    dict.fromkeys(("length", "mass"), BEYOND),
    stayed_upright,
    lambda state: jnp.abs(state[0]) <= UPRIGHT,
)


@dataclasses.dataclass(frozen=True)
class DomainSetup:
    """A domain, how long an agent trains in each version, and what is asked of the result."""

    domain: Domain
    steps: int
    goals: tuple[float, float]  # interpolation and extrapolation, in percent
    published: float  # extrapolation
    learning: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # of PPO
    episodes: int = 1000

    def recipe(self) -> Recipe:
        """PPO with the paper's network."""
        recipe = make_rule("ppo", **self.options)
        learning = dataclasses.replace(recipe.learning, schedule_steps=0, **self.learning)
        return recipe._replace(learning=learning, network=NETWORK)


class DomainRun(SeedRun):
    """One seed: an agent trained in D, then one in R, both tested in all versions."""

    def __init__(self, suites: dict[Suite, DomainSetup], suite: Suite, seed: int):
        self.setup, self.seed = suites[suite], seed
        self.agents: dict[Version, Agent] = {}  # those that are done
        self.trainer: CompiledTrainer
        self.state: TrainState
        self._begin(TRAINED_IN[0])

    def _begin(self, version: Version) -> None:
        self.version = version
        self.trainer = make_trainer(self.setup.domain, version, self.setup.recipe(), self.setup.steps)
        self.state = self.trainer.init(jax.random.key(self.seed))

    def advance(self) -> Progress:
        self.state, metrics = self.trainer.advance(self.state)
        made = int(self.state.iteration) / self.trainer.total_iterations
        episodes = max(metrics["episodes"].sum(), 1)
        fraction = (len(self.agents) + made) / len(TRAINED_IN)
        updates = len(self.agents) * self.trainer.total_iterations + int(self.state.iteration)
        if self.trainer.done(self.state):
            self.agents[self.version] = self.trainer.agent(self.state)
            if not self.done():
                self._begin(TRAINED_IN[len(self.agents)])
        steps = updates * self.trainer.steps_per_iteration
        # Of training episodes and as the environment pays it: successes are counted in tests only.
        return Progress(fraction, updates, steps, float(metrics["episode_return"].sum() / episodes))

    def done(self) -> bool:
        return len(self.agents) == len(TRAINED_IN)

    def test(self) -> Tested:
        # If time ran out, the agent as it is; and where a version was never begun, the last one that was.
        agents = {version: self.agents.get(version, self.trainer.agent(self.state)) for version in TRAINED_IN}
        play = {version: player(self.setup, version) for version in ("D", "R", "E")}
        rates = {way: success_rates(play, agents, way == "greedy") for way in ("greedy", "sampled")}
        untrained = dict.fromkeys(TRAINED_IN, self.trainer.agent(self.trainer.init(jax.random.key(self.seed + 1))))
        return report(self.setup, rates, summary(success_rates(play, untrained, False)))


def player(setup: DomainSetup, version: Version) -> Callable[[Agent, bool], Array]:
    """`successes` in one version, compiled once for all agents and both ways of acting."""

    @functools.partial(jax.jit, compiler_options=COMPILE_FAST)
    def play(agent: Agent, greedy: Array) -> Array:
        return successes(setup.domain, version, agent, jax.random.key(TEST_SEED), setup.episodes, greedy)

    return play


def success_rates(play: dict[str, Callable[[Agent, bool], Array]], agents: dict[Version, Agent], greedy: bool) -> dict[str, float]:
    """Percentages of successful episodes by test, such as "RE"."""
    return {trained + tested: 100 * float(np.mean(play[tested](agents[trained], greedy))) for trained, tested in TESTS}


def report(setup: DomainSetup, rates: dict[str, dict[str, float]], untrained: tuple[float, float]) -> Tested:
    """The metric is extrapolation with the most likely actions; interpolation and all tests are details."""
    interpolation, extrapolation = summary(rates["greedy"])
    inside, outside = setup.goals
    details = {"interpolation": interpolation, WORST_MARGIN: min(interpolation - inside, extrapolation - outside)}
    details |= dict(zip(("interpolation, sampled", "extrapolation, sampled"), summary(rates["sampled"]), strict=True))
    details |= rates["greedy"]
    reference = Reference("published, the best of its rows", setup.published, "baseline")
    return Tested(np.array([extrapolation]), untrained[1], reference, {}, details, setup.episodes * len(TESTS))


def experiment(
    name: str, about: str, suites: dict[Suite, DomainSetup], row: str, quick_goal: float | None, minutes: float
) -> Experiment:
    """One environment of the table."""
    full = suites["full"]
    return Experiment(
        method="domain_randomisation",
        name=name,
        about=about,
        metric="extrapolation, % success",
        goal=full.goals[1],
        quick_goal=quick_goal,
        start=functools.partial(DomainRun, suites),
        published=Published(full.published, f"Packer et al. 2018, {row}"),
        minutes=minutes,
    )


def tiny_and_full(full: DomainSetup) -> dict[Suite, DomainSetup]:
    """Where a minute is too short to learn anything the quick suite only shows that all of it runs."""
    return {"quick": dataclasses.replace(full, steps=4096, episodes=64), "full": full}


STEPS = 15_000 * LIMIT  # as many as the paper's 15,000 episodes have at most
CARTPOLE_SETUP = DomainSetup(CARTPOLE, STEPS, (100.0, 94.0), 93.63)
EXPERIMENTS = (
    experiment(
        "cartpole",
        "force, length and mass of the pole; at least 195 of 200 steps",
        {"quick": dataclasses.replace(CARTPOLE_SETUP, steps=100_000, episodes=500), "full": CARTPOLE_SETUP},
        "A2C",
        quick_goal=50.0,
        minutes=3,
    ),
    experiment(
        "mountain-car",
        "force and mass; at the goal within 110 steps",
        tiny_and_full(DomainSetup(MOUNTAIN_CAR, STEPS, (85.0, 90.3), 90.21)),
        "PPO",
        quick_goal=None,
        minutes=3,
    ),
    experiment(
        "acrobot",
        "length, mass and inertia of the links; at the goal within 80 steps",
        tiny_and_full(DomainSetup(ACROBOT, STEPS, (73.5, 68.0), 67.94)),
        "A2C with a recurrent policy",
        quick_goal=None,
        minutes=4,
    ),
    experiment(
        "pendulum",
        "length and mass; the last 100 of 200 steps within 60 degrees of upright",
        tiny_and_full(DomainSetup(PENDULUM, STEPS, (99.9, 90.3), 90.27)),
        "A2C",
        quick_goal=None,
        minutes=4,
    ),
)
