"""Reptile's experiments: sinusoids as in the authors' demonstration, and MAML's point robot."""

from __future__ import annotations

import functools

import numpy as np
import optax

from rulax.envs.point import Point
from rulax.envs.regression import Sinusoid
from rulax.learning.optimisers import make_optimiser
from rulax.learning.update import Learner
from rulax.methods.adaptation import environment_tasks, regression_tasks
from rulax.methods.base import WORST_MARGIN, Experiment, Published, Reference, SeedRun, Suite, Tested
from rulax.methods.experiments.adaptation import (
    TEST_UPDATES,
    AdaptationRun,
    AdaptationSetup,
    AdaptationTest,
    PolicySizes,
    Pretraining,
    RegressionSizes,
    Scores,
    baselines_of,
    gap_closed,
    init_gaussian,
    init_regressor,
    policy_cost,
    policy_learner,
    policy_optimiser,
)
from rulax.methods.experiments.maml import measure_point, report_point
from rulax.methods.maml import MAML
from rulax.methods.reptile import Reptile, meta_update
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.rules.regression import regression
from rulax.settings import Learning, Network
from rulax.types import PyTree

STEPS = 32  # updates on a test task, from ten points
ERROR = 0.35  # MAML's published error after ten updates on five points
OF_PRETRAINING = 1 / 6  # the published ratio of MAML to pretraining
POINTS = 50  # at which all waves are seen

# As in the authors' demonstration, except that a meta-update averages several tasks.
SINUSOID_FULL = RegressionSizes(
    total=30_000,
    tasks=5,
    examples=10,
    validated=POINTS,
    rate=0.02,
    meta_rate=0.5,
    updates=5,
    hidden=(64, 64),
    tested=20_000,
)
SINUSOID_SIZES = {"quick": SINUSOID_FULL._replace(total=4000, tested=500), "full": SINUSOID_FULL}
POINT_SIZES = {
    "quick": PolicySizes(total=20, tasks=10, trajectories=10, hidden=(32, 32), updates=4, tested=100, epochs=1),
    "full": PolicySizes(total=150, updates=4, epochs=1, meta_rate=5e-3, chunk=5),
}


def start_sinusoid(suite: Suite, seed: int) -> SeedRun:
    """Sine waves of any phase, seen at 50 fixed points."""
    sizes, rule = SINUSOID_SIZES[suite], regression()
    family = Sinusoid(largest_phase=2 * np.pi, points=POINTS)
    learner = Learner(rule, optax.sgd(sizes.rate))
    tasks = regression_tasks(family, sizes.examples, sizes.validated, fresh=True)
    epsilon = optax.sgd(optax.linear_schedule(sizes.meta_rate, 0.0, sizes.total))
    method = Reptile(tasks, learner, rule, epsilon, number=sizes.tasks, updates=sizes.updates)
    # Reptile's own step size would be far too large for the gradients of joint training.
    joint = MAML(tasks, learner, rule, make_optimiser(Learning(learning_rate=1e-3), 1), number=sizes.tasks)
    setup = AdaptationSetup(
        init_agent=init_regressor(family, Network(hidden=sizes.hidden, activation="tanh", torso="mlp")),
        meta_update=functools.partial(meta_update, method),
        optimiser=method.optimiser,
        total=sizes.total,
        cost=sizes.tasks * sizes.examples * sizes.updates,
        test=AdaptationTest(regression_tasks(family, sizes.examples, sizes.validated), learner, STEPS, sizes.tested),
        report=report_sinusoid,
        chunk=sizes.chunk,
        pretraining=Pretraining(joint, sizes.total),
    )
    return AdaptationRun(setup, seed)


def report_sinusoid(scores: Scores, tasks: PyTree) -> Tested:
    """The metric is the squared error after 32 updates."""
    learned, joint = scores["learned"].mean(0), scores["pretrained"].mean(0)
    details = {f"error_{n}": float(learned[n]) for n in (0, 1, 5, 10, STEPS)}
    details |= {f"pretrained_{n}": float(joint[n]) for n in (0, 10, STEPS)}
    details["of_pretraining"] = float(learned[STEPS] / joint[STEPS])
    details[WORST_MARGIN] = min(ERROR - float(learned[STEPS]), OF_PRETRAINING - details["of_pretraining"])
    random = float(scores["random"][:, 0].mean())
    reference = Reference("the function itself", 0.0, "exact")
    return Tested(scores["learned"][:, STEPS], random, reference, baselines_of(scores, STEPS), details)


def start_point(suite: Suite, seed: int) -> SeedRun:
    """Navigation, with four policy gradients per task; their displacement is a gradient for Adam."""
    sizes, environment = POINT_SIZES[suite], Point()
    learner = policy_learner(sizes)
    method = Reptile(
        tasks=environment_tasks(environment, environment.horizon, sizes.trajectories),
        learner=learner,
        outer=likelihood_ratio(),
        optimiser=policy_optimiser(sizes),
        number=sizes.tasks,
        updates=sizes.updates,
    )
    setup = AdaptationSetup(
        init_agent=init_gaussian(environment, sizes),
        meta_update=functools.partial(meta_update, method),
        optimiser=method.optimiser,
        total=sizes.total,
        cost=policy_cost(environment, sizes),
        test=AdaptationTest(
            environment_tasks(environment, environment.horizon, 2 * sizes.trajectories),
            learner,
            TEST_UPDATES,
            sizes.tested,
            measure_point,
        ),
        report=functools.partial(report_closed, environment),
        chunk=sizes.chunk,
    )
    return AdaptationRun(setup, seed)


def report_closed(environment: Point, scores: Scores, tasks: PyTree) -> Tested:
    """The metric is the share of the gap to a policy that sees the goal which three updates close."""
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
        about="a sine wave from ten points, in 32 steps of gradient descent",
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
        about="a point in the plane finds its goal",
        metric="share of the gap to a policy that sees the goal closed by 3 updates",
        goal=0.5,
        quick_goal=0.16,
        start=start_point,
        minutes=5.0,
    ),
)
