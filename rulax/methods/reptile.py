"""Reptile (Nichol et al. 2018): move what agents are born with towards where ordinary learning on a task takes them.

phi <- phi + eps mean_i (W_i - phi),    W_i = k updates on task i from phi,    eps -> 0
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import optax

from rulax.agents.distributions import gaussian
from rulax.envs.point import Point
from rulax.envs.regression import Sinusoid
from rulax.learning.optimisers import make_optimiser
from rulax.learning.update import Learner
from rulax.methods.adaptation import lived, recorded, with_examples
from rulax.methods.base import WORST_MARGIN, Experiment, Published, Reference, Study, Suite, Tested
from rulax.methods.initialisation import Initialisation, Phase, Plan
from rulax.methods.maml import Walk, gap_closed, init_regressor, others, report_point, walking_plan
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.rules.regression import regression
from rulax.settings import Learning, Network
from rulax.types import PyTree

STEPS = 32  # at test, on ten points
ERROR = 0.35  # MAML's published error after ten updates on five points
OF_PRETRAINING = 1 / 6  # the published ratio of MAML to pretraining


class Shots(NamedTuple):
    """Sizes of the sinusoid, as in the authors' demonstration, but for several tasks per meta-update."""

    total: int
    tasks: int = 5
    shots: int = 10
    points: int = 50
    rate: float = 0.02
    meta_rate: float = 0.5
    updates: int = 5
    hidden: tuple[int, ...] = (64, 64)
    tested: int = 1000
    chunk: int = 500


SINUSOID_SIZES = {"quick": Shots(4000, tested=500), "full": Shots(30_000, tested=20_000)}


def start_sinusoid(suite: Suite, seed: int) -> Study:
    """Waves of any phase on 50 fixed points."""
    sizes, rule = SINUSOID_SIZES[suite], regression()
    family = Sinusoid(largest_phase=2 * np.pi, points=sizes.points)
    learner = Learner(rule, optax.sgd(sizes.rate))
    plan = Plan(
        init_params=init_regressor(family, Network(hidden=sizes.hidden, activation="tanh", torso="mlp")),
        train=Phase(with_examples(family, sizes.shots, sizes.points, fresh=True), learner, sizes.updates, sizes.tasks),
        test=Phase(with_examples(family, sizes.shots, sizes.points), learner, STEPS, sizes.tested),
        problem=lived(learner, rule),
        estimator="displacement",
        optimiser=optax.sgd(optax.linear_schedule(sizes.meta_rate, 0.0, sizes.total)),
        total=sizes.total,
        cost=sizes.tasks * sizes.shots * sizes.updates,
        pretraining=sizes.total,
        baseline=(recorded(learner, rule), make_optimiser(Learning(learning_rate=1e-3), 1)),
    )
    return Initialisation(plan, seed, report_sinusoid, chunk=sizes.chunk)


def report_sinusoid(scores: dict[str, np.ndarray], tasks: PyTree) -> Tested:
    """The metric is the squared error after 32 updates."""
    learned, joint = scores["learned"].mean(0), scores["pretrained"].mean(0)
    details = {f"error_{n}": float(learned[n]) for n in (0, 1, 5, 10, STEPS)}
    details |= {f"pretrained_{n}": float(joint[n]) for n in (0, 10, STEPS)}
    details["of_pretraining"] = float(learned[STEPS] / joint[STEPS])
    details[WORST_MARGIN] = min(ERROR - float(learned[STEPS]), OF_PRETRAINING - details["of_pretraining"])
    random = float(scores["random"][:, 0].mean())
    reference = Reference("the function itself", 0.0, "exact")
    return Tested(scores["learned"][:, STEPS], random, reference, others(scores, STEPS), details)


POINT_SIZES = {
    "quick": Walk(20, 10, 10, (32, 32), updates=4, tested=100, epochs=1),
    "full": Walk(150, updates=4, epochs=1, meta_rate=5e-3, chunk=5),
}


def start_point(suite: Suite, seed: int) -> Study:
    """Navigation, with four policy gradients per task; their displacement is a gradient for Adam."""
    sizes, environment = POINT_SIZES[suite], Point()
    plan = walking_plan(environment, sizes, "displacement")
    plan = plan._replace(problem=lived(plan.train.learner, likelihood_ratio(distribution=gaussian)))
    return Initialisation(plan, seed, functools.partial(report_closed, environment), chunk=sizes.chunk)


def report_closed(environment: Point, scores: dict[str, np.ndarray], tasks: PyTree) -> Tested:
    """The metric is the share of the gap to whoever sees the goal that three updates close."""
    tested = report_point(environment, scores, tasks)
    best = tested.baselines["sees the goal"]
    closed = {name: gap_closed(scores[name], best, 3) for name in ("learned", "random")}
    details = {name: value for name, value in tested.details.items() if name != WORST_MARGIN}  # that is against MAML's figures
    reference = Reference("sees the goal", 1.0, "exact")
    untrained = float(closed["random"].mean())
    return Tested(closed["learned"], untrained, reference, {"random": untrained}, details)


EXPERIMENTS = (
    Experiment(
        method="reptile",
        name="sinusoid",
        about="a wave from ten points, in 32 steps of gradient descent",
        metric="squared error after 32 updates on 10 points (details: its ratio to pretraining)",
        goal=ERROR,
        quick_goal=2.8,
        start=start_sinusoid,
        published=Published(ERROR, "MAML's error after 10 updates on 5 points; Reptile's own are curves"),
        higher_is_better=False,
        minutes=2.0,
    ),
    Experiment(
        method="reptile",
        name="point",
        about="a point in the plane finds its goal; the paper reports that reinforcement learning did not work",
        metric="share of the gap to whoever sees the goal closed by 3 updates",
        goal=0.5,
        quick_goal=0.16,
        start=start_point,
        minutes=5.0,
    ),
)
