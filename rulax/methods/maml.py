"""MAML (Finn et al. 2017): meta-parameters from which one gradient step on a new task helps most. First-order MAML drops how the
step's gradient depends on where it starts; it differs by the name of the estimator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from rulax.agents import make_agent
from rulax.agents.distributions import gaussian
from rulax.agents.gaussian import make_gaussian_agent
from rulax.envs import point, velocity
from rulax.envs.regression import Sinusoid
from rulax.learning.optimisers import make_optimiser
from rulax.learning.update import Learner
from rulax.methods.adaptation import in_world, recorded, with_examples
from rulax.methods.base import WORST_MARGIN, Experiment, Published, Reference, Study, Suite, Tested
from rulax.methods.initialisation import Initialisation, Phase, Plan
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.rules.regression import regression
from rulax.settings import Learning, Network
from rulax.types import Array, PyTree

POINT = {1: -11.68, 2: -3.33, 3: -3.23}  # published returns after so many updates
POINT_ORACLE = -2.29
SINUSOID = {1: 0.67, 5: 0.38, 10: 0.35}  # published squared errors
CHEETAH = {1: 0.68, 3: 0.92}  # share of the gap to the oracle that the published curves close


class Walk(NamedTuple):
    """Sizes of an experiment in an environment."""

    total: int  # meta-updates
    tasks: int = 20  # per meta-update
    trajectories: int = 20
    hidden: tuple[int, ...] = (100, 100)
    rate: float = 0.5  # of the first update; later ones have half of it
    updates: int = 3  # per task: after each the agent is judged
    meta_rate: float = 2e-3
    epochs: int = 2
    clip: float = 0.3
    tested: int = 400
    chunk: int = 2
    pretraining: int = 0


def walking_plan(environment: Any, sizes: Walk, estimator: str) -> Plan:
    """Policy gradients in an environment with continuous actions."""
    halved = optax.piecewise_constant_schedule(sizes.rate, {1: 0.5})
    learner = Learner(likelihood_ratio(distribution=gaussian), optax.sgd(halved))
    problem = recorded(learner, likelihood_ratio(clip=sizes.clip, distribution=gaussian), "mixed")
    steps = Learning(learning_rate=sizes.meta_rate, schedule="linear", clip_gradient=0.5, adam_eps=1e-5)
    network = Network(hidden=sizes.hidden)

    def init_params(key: Array) -> PyTree:
        return make_gaussian_agent(key, environment.observation, environment.num_actions, network)

    return Plan(
        init_params=init_params,
        train=Phase(in_world(environment, sizes.trajectories), learner, sizes.updates, sizes.tasks),
        test=Phase(in_world(environment, 2 * sizes.trajectories), learner, 3, sizes.tested),
        problem=problem,
        estimator=estimator,
        optimiser=make_optimiser(steps, sizes.total * sizes.epochs),
        total=sizes.total,
        cost=(sizes.updates + 1) * sizes.tasks * sizes.trajectories * environment.horizon,
        epochs=sizes.epochs,
        pretraining=sizes.pretraining,
    )


POINT_SIZES = {"quick": Walk(20, 10, 10, (32, 32), tested=100), "full": Walk(150, pretraining=30)}
VELOCITY_SIZES = {"quick": Walk(10, 10, 10, (32, 32), tested=100), "full": Walk(150, pretraining=30)}


def start_point(estimator: str, suite: Suite, seed: int) -> Study:
    """Navigation to goals that have to be found."""
    sizes, world = POINT_SIZES[suite], point.Point()
    return Initialisation(walking_plan(world, sizes, estimator), seed, functools.partial(report_point, world), chunk=sizes.chunk)


def report_point(world: point.Point, scores: dict[str, np.ndarray], tasks: PyTree) -> Tested:
    """The metric is the return after three updates; the worst margin over the published figures is among the details."""
    learned = scores["learned"].mean(0)
    best = float(jax.vmap(functools.partial(point.best_return, world))(tasks).mean())
    details = {f"return_{n}": float(value) for n, value in enumerate(learned)}
    details[WORST_MARGIN] = min(float(learned[n]) - value for n, value in POINT.items())
    details["gap_closed_1"], details["gap_closed_3"] = (gap_closed(scores["learned"], best, n).mean() for n in (1, 3))
    reference = Reference("oracle, published", POINT_ORACLE, "oracle")
    random = float(scores["random"][:, 0].mean())
    return Tested(scores["learned"][:, 3], random, reference, others(scores, 3) | {"sees the goal": best}, details)


def gap_closed(scores: np.ndarray, best: float, updates: int) -> np.ndarray:
    """(R_k - R_0) / (R_oracle - R_0), per task over the mean gap: a task with no gap must not divide by zero."""
    return (scores[:, updates] - scores[:, 0]) / (best - scores[:, 0].mean())


def others(scores: dict[str, np.ndarray], updates: int) -> dict[str, float]:
    """The baselines after as many updates."""
    return {name: float(values[:, updates].mean()) for name, values in scores.items() if name != "learned"}


def start_velocity(suite: Suite, seed: int) -> Study:
    """Speeds that have to be found."""
    sizes, world = VELOCITY_SIZES[suite], velocity.Velocity()
    plan = walking_plan(world, sizes, "backprop")
    return Initialisation(plan, seed, functools.partial(report_velocity, world), chunk=sizes.chunk)


def report_velocity(world: velocity.Velocity, scores: dict[str, np.ndarray], tasks: PyTree) -> Tested:
    """The metric is the share of the gap to the oracle that three updates close."""
    grid = np.linspace(0.0, world.fastest, 21)
    speeds = np.asarray(tasks.speed)
    best = float(np.interp(speeds, grid, [velocity.best_return(world, speed) for speed in grid]).mean())
    learned = scores["learned"]
    closed = {n: gap_closed(learned, best, n) for n in (1, 2, 3)}
    details = {f"return_{n}": float(value) for n, value in enumerate(learned.mean(0))}
    details |= {f"gap_closed_{n}": float(value.mean()) for n, value in closed.items()} | {"oracle_return": best}
    details[WORST_MARGIN] = min(float(closed[n].mean()) - value for n, value in CHEETAH.items())
    baselines = {name: float(gap_closed(values, best, 3).mean()) for name, values in scores.items() if name != "learned"}
    return Tested(closed[3], baselines["random"], Reference("knows the speed", 1.0, "exact"), baselines, details)


class Shots(NamedTuple):
    """Sizes of the sinusoid."""

    total: int
    tasks: int = 25
    shots: int = 5
    rate: float = 0.01
    meta_rate: float = 1e-3
    updates: int = 1
    hidden: tuple[int, ...] = (40, 40)
    tested: int = 2000  # of 20,000 gradient descent diverged on at least one, and their mean said nothing
    chunk: int = 500


SINUSOID_SIZES = {"quick": Shots(4000), "full": Shots(70_000)}


def start_sinusoid(estimator: str, suite: Suite, seed: int) -> Study:
    """Waves from five points."""
    sizes, family, rule = SINUSOID_SIZES[suite], Sinusoid(), regression()
    learner = Learner(rule, optax.sgd(sizes.rate))
    steps = Learning(learning_rate=sizes.meta_rate, schedule="cosine", clip_gradient=10.0)
    plan = Plan(
        init_params=init_regressor(family, Network(hidden=sizes.hidden, torso="mlp")),
        train=Phase(with_examples(family, sizes.shots, 10), learner, sizes.updates, sizes.tasks),
        test=Phase(with_examples(family, sizes.shots, 100), learner, 10, sizes.tested),
        problem=recorded(learner, rule),
        estimator=estimator,
        optimiser=make_optimiser(steps, sizes.total),
        total=sizes.total,
        cost=sizes.tasks * (sizes.shots + 10),
        pretraining=sizes.total,
    )
    return Initialisation(plan, seed, report_sinusoid, chunk=sizes.chunk)


def init_regressor(family: Any, network: Network) -> Callable[[Array], PyTree]:
    """Networks that predict one number."""
    inputs = jax.ShapeDtypeStruct((family.inputs,), np.float32)
    return lambda key: make_agent(key, inputs, 1, regression().heads(1), network)


def report_sinusoid(scores: dict[str, np.ndarray], tasks: PyTree) -> Tested:
    """The metric is the squared error after ten updates."""
    learned = scores["learned"].mean(0)
    details = {f"error_{n}": float(learned[n]) for n in (0, *SINUSOID)}
    details[WORST_MARGIN] = min(value - float(learned[n]) for n, value in SINUSOID.items())
    for name in set(scores) - {"learned"}:
        details |= {f"{name}_{n}": float(scores[name][:, n].mean()) for n in SINUSOID}
    random = float(scores["random"][:, 0].mean())
    return Tested(scores["learned"][:, 10], random, Reference("the function itself", 0.0, "exact"), others(scores, 10), details)


def _point(name: str, estimator: str, about: str) -> Experiment:
    return Experiment(
        method="maml",
        name=name,
        about=about,
        metric="return after 3 updates (details: after 1 and 2)",
        goal=POINT[3],
        quick_goal=-37.5,
        start=functools.partial(start_point, estimator),
        published=Published(POINT[3], "Finn et al. 2017, the authors' result files"),
        minutes=5.0,
    )


def _sinusoid(name: str, estimator: str, about: str) -> Experiment:
    return Experiment(
        method="maml",
        name=name,
        about=about,
        metric="squared error after 10 updates on 5 points (details: after 1 and 5)",
        goal=SINUSOID[10],
        quick_goal=1.3,
        start=functools.partial(start_sinusoid, estimator),
        published=Published(SINUSOID[10], "Finn et al. 2017, sinusoids, as later papers tabulate them"),
        higher_is_better=False,
        minutes=2.0,
    )


EXPERIMENTS = (
    _point("point", "backprop", "a point in the plane finds its goal in one to three policy gradients"),
    _point("point-first-order", "first_order", "the same without the second derivative"),
    _sinusoid("sinusoid", "backprop", "a wave from five points"),
    _sinusoid("sinusoid-first-order", "first_order", "the same without the second derivative"),
    Experiment(
        method="maml",
        name="velocity",
        about="a mass finds the speed that is asked for, in place of the half-cheetah",
        metric="share of the gap to the oracle closed by 3 updates (details: by 1)",
        goal=CHEETAH[3],
        quick_goal=0.4,
        start=start_velocity,
        published=Published(0.916, "Finn et al. 2017, half-cheetah with goal velocities, the authors' result files"),
        minutes=5.0,
    ),
)
