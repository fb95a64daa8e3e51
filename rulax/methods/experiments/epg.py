"""Evolved losses in short lives: points with a hidden direction and random pendulums, beside PPO; and both rules on both roads."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.envs.base import Environment
from rulax.envs.point import Directed
from rulax.envs.registry import make
from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.epg import Evolved, Road, learn, make_discoverer
from rulax.rules.base import Recipe
from rulax.rules.registry import make_rule
from rulax.settings import Network
from rulax.types import Array, PyTree

TEST_SEED = 2018  # never a seed of training
TASKS = 64  # of a test
GAUSSIAN = Network(hidden=(32, 32), activation="tanh", action_distribution="gaussian")
BINNED = dataclasses.replace(GAUSSIAN, action_distribution="bins", action_model=16, action_hidden=(16,))


@dataclasses.dataclass(frozen=True)
class EvolvedSetup:
    """Where a rule is found, for which agents, and beside what it is judged."""

    env: str
    horizon: int  # of an episode
    evolved: Evolved
    learning: dict[str, Any]  # of the agents, whatever their rule
    tuned: dict[str, Any] = dataclasses.field(default_factory=dict)  # what PPO does better with
    rule: str = "epg"
    road: Road = "evolution"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the rule
    network: Network = GAUSSIAN
    unseen: Callable[[Array], PyTree] | None = None  # draws tasks that are never trained in

    def recipe(self, rule: str = "", **options: Any) -> Recipe:
        """The agents of this setup, by its own rule or by another one."""
        recipe = make_rule(rule or self.rule, **(options if rule else self.options))
        plain: dict[str, Any] = {"schedule": "constant", "schedule_steps": 0, "replay": 0.0, "warmup": 0, "batch": 0}
        learning = dataclasses.replace(recipe.learning, **plain | self.learning | (self.tuned if rule == "ppo" else {}))
        return recipe._replace(learning=learning, network=self.network)

    def marks(self) -> tuple[int, ...]:
        """Updates after which agents are tested: none, an eighth, a half and all."""
        updates = self.evolved.updates
        return 0, updates // 8, updates // 2, updates


class EvolvedRun(SeedRun):
    """One seed: discovery, then fresh agents by what it found and by PPO, in the same tasks."""

    kept = ("state",)

    def __init__(self, suites: dict[Suite, EvolvedSetup], suite: Suite, seed: int):
        self.setup = suites[suite]
        environment = make(self.setup.env)
        assert isinstance(environment, Environment)
        self.environment, self.recipe = environment, self.setup.recipe()
        self.discoverer = make_discoverer(self.setup.evolved, self.environment, self.recipe, self.setup.road)
        self.state = self.discoverer.init(jax.random.key(seed))
        self.start = jax.tree.map(jnp.copy, self.state.meta_params)  # copied, because a meta-step consumes its state
        self.steps_each = self._environment_steps()

    def _environment_steps(self) -> int:
        """Of one meta-step."""
        setup, learning, settings = self.setup, self.recipe.learning, self.discoverer.settings
        lives = setup.evolved.lives(setup.road)
        if setup.road == "evolution":
            return lives * setup.evolved.updates * learning.streams * learning.unroll
        return lives * learning.streams * (settings.window * learning.unroll + settings.validation_unroll)

    def advance(self) -> Progress:
        self.state, metrics = self.discoverer.advance(self.state)
        made, found = int(self.state.steps), metrics["tasks"]
        value = found["episode_return"].sum() / max(found["episodes"].sum(), 1)
        return Progress(made / self.discoverer.total_steps, made, made * self.steps_each, float(value))

    def done(self) -> bool:
        return self.discoverer.done(self.state)

    def test(self) -> Tested:
        setup = self.setup
        draws = {"": self.environment.sample_task} | ({"unseen: ": setup.unseen} if setup.unseen else {})
        details: dict[str, float] = {}
        gains: dict[str, dict[str, np.ndarray]] = {}  # by kind of tasks and rule
        for kind, draw in draws.items():
            tasks = jax.vmap(draw)(jax.random.split(jax.random.key(TEST_SEED), TASKS))
            found = self._returns(self.recipe, self.state.meta_params, tasks)
            by_ppo = self._returns(setup.recipe("ppo"), {}, tasks)
            at_start = self._returns(self.recipe, self.start, tasks)
            marks = setup.marks()
            for mark in marks:
                steps = mark * self.recipe.learning.streams * self.recipe.learning.unroll
                details |= {f"{kind}return after {steps}": found[mark].mean(), f"{kind}PPO after {steps}": by_ppo[mark].mean()}
            gains[kind] = {"rule": found[marks[-1]] - found[0], "ppo": by_ppo[marks[-1]] - by_ppo[0]}
            gains[kind] |= {"start": at_start[marks[-1]] - at_start[0]}
            gains[kind] |= {"rule, half": found[marks[2]] - found[0], "ppo, half": by_ppo[marks[2]] - by_ppo[0]}
        base = gains[""]["ppo"].mean()
        # Where PPO learns nothing, a ratio to what it gains says nothing: one unit of return then stands for it.
        unit = base if base > 0 else 1.0
        half = gains[""]["rule, half"].mean(), gains[""]["ppo, half"].mean()
        margins = [float((half[0] - 1.2 * max(half[1], 0)) / unit)]
        if setup.unseen:
            kept = gains["unseen: "]["rule"].mean() / gains[""]["rule"].mean()
            details["kept in unseen tasks"] = float(kept)
            margins.append(float(kept - 0.7))
        details["gain over that of PPO, at half"] = float(half[0] / half[1])
        details[WORST_MARGIN] = min(margins)
        reference = Reference("PPO with the same agents and steps", base / unit, "baseline")
        # What the same agents gain by the rule as it was drawn, so that luck in drawing it cannot pass for discovery.
        start = float(gains[""]["start"].mean() / unit)
        details = {name: float(each) for name, each in details.items()}
        return Tested(gains[""]["rule"] / unit, start, reference, {"the rule before discovery": start}, details)

    def _returns(self, recipe: Recipe, rule_params: PyTree, tasks: PyTree) -> dict[int, np.ndarray]:
        key = jax.random.key(TEST_SEED + 1)
        found = learn(self.environment, self.setup.horizon, recipe, rule_params, tasks, self.setup.marks(), key)
        return {mark: np.asarray(each) for mark, each in found.items()}


# Of a grid of learning rates and passes, what serves PPO best after 2,048 steps in tasks of training (docs/methods/epg.md).
POINT_LEARNING = {"streams": 4, "unroll": 16, "epochs": 1, "minibatches": 2, "learning_rate": 1e-2}
PENDULUM_LEARNING = POINT_LEARNING | {"learning_rate": 3e-3, "reward_scale": 0.1}
POINT = EvolvedSetup("point/directed", 20, Evolved(generations=150), POINT_LEARNING, unseen=Directed().sample_unseen)
PENDULUM = EvolvedSetup(
    "pendulum/continuous", 200, Evolved(generations=300, noise=0.2, rate=3e-2), PENDULUM_LEARNING, {"learning_rate": 1e-3}
)
QUICK = Evolved(generations=40, handover=0.0)
# The sizes of the suite `grids`: with the 601 bins of the paper most of the time goes into values that these returns never reach.
SMALL_DISCO = {
    "prediction_size": 16,
    "bins": 31,
    "largest_value": 15.0,
    "hidden": 32,
    "lifetime_hidden": 16,
    "action_channels": (16, 8),
    "policy_channels": (32,),
}


def crossed(rule: str, road: Road, options: dict[str, Any]) -> EvolvedSetup:
    """One of the four combinations: the same agents, which choose among bins because a Disco rule needs choices."""
    return dataclasses.replace(POINT, rule=rule, road=road, options=options, network=BINNED)


def experiment(
    name: str, about: str, setup: EvolvedSetup, goal: float | None = None, quick_goal: float | None = None, minutes: float = 1
) -> Experiment:
    """One row of the catalogue."""
    suites: dict[Suite, EvolvedSetup] = {"full": setup, "quick": dataclasses.replace(setup, evolved=QUICK)}
    return Experiment(
        method="epg",
        name=name,
        about=about,
        metric="gain of fresh agents in 2,048 steps, over that of PPO",
        goal=goal,
        quick_goal=quick_goal,
        start=functools.partial(EvolvedRun, suites),
        minutes=minutes,
    )


EXPERIMENTS = (
    experiment("directed-point", "a loss evolved for points that are to go in a hidden direction", POINT, 1.0, 0.9),
    experiment("pendulum", "a loss evolved for pendulums of random mass, length and gravity", PENDULUM, 1.0, minutes=4),
    experiment(
        "loss-evolution", "the loss network for agents with choices, by evolution", crossed("epg", "evolution", {}), None, None, 1
    ),
    experiment("loss-backprop", "the loss network, by backprop", crossed("epg", "backprop", {}), minutes=4),
    experiment("disco-evolution", "a small Disco rule, by evolution", crossed("disco", "evolution", SMALL_DISCO), minutes=20),
    experiment("disco-backprop", "a small Disco rule, by backprop", crossed("disco", "backprop", SMALL_DISCO), minutes=30),
)
