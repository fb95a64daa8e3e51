"""MAESN's experiment: a point looks for its goal on a half circle, and is paid nothing until it is there; MAML beside it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.latent import make_latent_agent
from rulax.envs.lasting import with_noise
from rulax.envs.point import HalfCircle, best_sparse_return
from rulax.envs.tasks import finite_set
from rulax.learning.update import Learner
from rulax.methods import maesn, maml
from rulax.methods.adaptation import Adaptation, MetaState, Tasks, environment_tasks
from rulax.methods.base import WORST_MARGIN, Experiment, Reference, SeedRun, Suite, Tested
from rulax.methods.experiments.adaptation import (
    AdaptationRun,
    AdaptationSetup,
    AdaptationTest,
    PolicySizes,
    Scores,
    init_gaussian,
    policy_cost,
    policy_learner,
    policy_optimiser,
    sampled_tasks,
)
from rulax.methods.maesn import MAESN, latent_learner, rule_with_credit, rule_without_noise, start_from_prior, training_tasks
from rulax.methods.maml import MAML
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.settings import Network
from rulax.types import Array, Experience, Metrics, PyTree, now, strong

SIZES = {
    "quick": PolicySizes(total=300, updates=1, hidden=(32, 32), deviation=0.5, meta_rate=5e-3, tested=100, chunk=20),
    "full": PolicySizes(total=600, tasks=40, updates=1, hidden=(64, 64), deviation=0.5, meta_rate=5e-3, chunk=20),
}
ENVIRONMENT = HalfCircle()
TRAINING_TASKS = 100
LATENT = 2  # numbers of the latent variable
# A latent variable is drawn once per episode, but losses are means over its 20 steps: so its step size is 20 times what it would
# be for a loss per episode, and the weight of its divergence, 0.1 per episode, a 20th.
LATENT_RATE = 20 * 5.0
# A tenth for its deviation: the gradient widens it wherever a latent variable far from 0 did well, which is of no use.
SPREAD_RATE = LATENT_RATE / 10
RATE = 0.01  # of all other parameters
KL_WEIGHT = 0.1 / 20
EXPLORATION = 5.0  # about what one paid episode of 20 is worth where advantages are standardised
SHARE, HITS, COVERAGE = 0.6, 0.7, 3.0  # goals: of the oracle's return, of episodes that meet the goal, of MAML's coverage
SECTORS = 36  # of the half circle, 5 degrees each
OUT = 0.8  # as far from the start as the nearest place where a goal is met


def start(suite: Suite, seed: int) -> SeedRun:
    """Goals on a half circle."""
    sizes = SIZES[suite]
    return HalfCircleRun(latent_setup(sizes), maml_setup(sizes) if suite == "full" else None, seed)


def latent_setup(sizes: PolicySizes) -> AdaptationSetup:
    """MAESN, trained with dense and sparse rewards, tested with sparse ones."""
    learner, shown = latent_learner(rule_with_credit(likelihood_ratio())), with_noise(ENVIRONMENT, LATENT)
    dense = finite_set(with_noise(HalfCircle(dense=True), LATENT), TRAINING_TASKS)
    tasks = updated_sparsely(training_tasks(dense, ENVIRONMENT.horizon, sizes.trajectories))
    outer = rule_without_noise(likelihood_ratio(clip=sizes.clip))
    method = MAESN(policy_maml(tasks, learner, sizes)._replace(outer=outer), KL_WEIGHT, EXPLORATION)

    def init_params(key: Array) -> maesn.MAESNParams:
        agent = make_latent_agent(key, shown.observation, shown.num_actions, Network(hidden=sizes.hidden), sizes.deviation)
        return maesn.init_params(agent, TRAINING_TASKS, LATENT_RATE, SPREAD_RATE, RATE)

    unseen = environment_tasks(shown, ENVIRONMENT.horizon, sizes.trajectories)._replace(init=start_from_prior)
    return half_circle_setup(init_params, functools.partial(maesn.meta_update, method), unseen, learner, sizes)


def maml_setup(sizes: PolicySizes) -> AdaptationSetup:
    """MAML with the same sizes, rewards and test tasks. It has no latent variable, and no finite set of tasks to have one for."""
    learner = policy_learner(sizes)
    tasks = updated_sparsely(environment_tasks(HalfCircle(dense=True), ENVIRONMENT.horizon, sizes.trajectories))
    update = functools.partial(maml.meta_update, policy_maml(tasks, learner, sizes))
    unseen = environment_tasks(ENVIRONMENT, ENVIRONMENT.horizon, sizes.trajectories)
    return half_circle_setup(init_gaussian(ENVIRONMENT, sizes), update, unseen, learner, sizes)


def policy_maml(tasks: Tasks, learner: Learner, sizes: PolicySizes) -> MAML:
    """The meta-update that both share."""
    outer, optimiser = likelihood_ratio(clip=sizes.clip), policy_optimiser(sizes)
    return MAML(tasks, learner, outer, optimiser, sizes.tasks, sizes.updates, sizes.epochs, memory="mixed")


def half_circle_setup(
    init: Callable[[Array], PyTree],
    update: Callable[[MetaState, Array], tuple[MetaState, Metrics]],
    unseen: Tasks,
    learner: Learner,
    sizes: PolicySizes,
) -> AdaptationSetup:
    """What is trained by `update` from `init`, and tested after one update on sparse tasks that are not in training."""
    return AdaptationSetup(
        init_agent=lambda key: strong(init(key)),  # with weak types the second chunk would compile again
        meta_update=update,
        optimiser=policy_optimiser(sizes),
        total=sizes.total,
        cost=policy_cost(ENVIRONMENT, sizes),
        test=AdaptationTest(unseen, learner, updates=1, number=sizes.tested, measure=measure),
        report=report,
        chunk=sizes.chunk,
    )


def updated_sparsely(tasks: Tasks) -> Tasks:
    """Of tasks with a dense reward those whose updates see only the sparse one; the outer loss, and the score, keep the dense one.

    With a dense reward an update can tell the direction of the goal from episodes that go nowhere: so nothing explores, and where
    the reward is sparse nothing is found.
    """

    def collect(task: PyTree, agent: PyTree, key: Array) -> tuple[Experience, Experience]:
        experience, validation = tasks.collect(task, agent, key)
        return experience._replace(reward=ENVIRONMENT.pay(-experience.reward)), validation

    return tasks._replace(collect=collect)


class HalfCircleRun(AdaptationRun):
    """One seed of MAESN; MAML is trained for as many meta-updates before the test."""

    def __init__(self, setup: AdaptationSetup, beside: AdaptationSetup | None, seed: int):
        super().__init__(setup, seed)
        self.beside = beside and AdaptationRun(beside, seed)

    def test(self) -> Tested:
        scores = {"learned": self.scores(self.state.meta_params), "random": self.scores(self.initial)}
        if self.beside:
            while self.beside.made < self.made:
                self.beside.advance()
            scores["MAML"] = self.beside.scores(self.beside.state.meta_params)
        return self.setup.report(scores, sampled_tasks(self.setup.test))


# -- what is measured -------------------------------------------------------------------------------------------------------------


def measure(adaptation: Adaptation) -> Array:
    """[5]: the return before and after the update, the share of episodes that meet the goal before and after it, and coverage."""
    met = jnp.mean(jnp.any(adaptation.validation.reward > 0, 1), -1)  # [2]
    seen = now(jax.tree.map(lambda part: part[0], adaptation.validation.observation))
    position = seen["observation"] if isinstance(seen, dict) else seen
    return jnp.concatenate([adaptation.scores, met, coverage(position)[None]])


def coverage(position: Array) -> Array:
    """The share [] of the half circle's sectors in which an episode of positions [T, B, 2] first gets as far as a goal."""
    out = jnp.linalg.norm(position, axis=-1) >= OUT  # [T, B]
    first = jnp.argmax(out, 0)
    x, y = jnp.moveaxis(jnp.take_along_axis(position, first[None, :, None], 0)[0], -1, 0)
    sector = jnp.floor(jnp.arctan2(y, x) / jnp.pi * SECTORS).astype(jnp.int32)
    counts = jnp.any(out, 0) & (y > 0)
    # An index beyond the last is dropped.
    return jnp.mean(jnp.zeros(SECTORS).at[jnp.where(counts, sector, SECTORS)].set(1.0, mode="drop"))


def report(scores: Scores, tasks: PyTree) -> Tested:
    """The metric is the sparse return after one update; the details hold the worst margin over all goals, as shares of them."""
    best = float(jax.vmap(functools.partial(best_sparse_return, ENVIRONMENT))(tasks).mean())
    names = ("return_0", "return_1", "hits_0", "hits_1", "coverage")
    details = dict(zip(names, (float(value) for value in scores["learned"].mean(0)), strict=True))
    margins = [details["return_1"] / (SHARE * best) - 1, details["hits_1"] / HITS - 1]
    if "MAML" in scores:
        details |= {f"MAML_{name}": float(value) for name, value in zip(names, scores["MAML"].mean(0), strict=True)}
        details["coverage_ratio"] = details["coverage"] / max(details["MAML_coverage"], 1e-6)
        margins.append(details["coverage_ratio"] / COVERAGE - 1)
    details[WORST_MARGIN] = min(margins)
    baselines = {name: float(values[:, 1].mean()) for name, values in scores.items() if name != "learned"}
    return Tested(
        np.asarray(scores["learned"][:, 1]),
        float(scores["random"][:, 0].mean()),
        Reference("sees the goal", best, "exact"),
        baselines,
        details,
    )


EXPERIMENTS = (
    Experiment(
        method="maesn",
        name="half-circle",
        about="a point finds a goal that pays nothing from afar, by episodes that each go somewhere",
        metric="return after one update from 20 episodes (details: hits, coverage)",
        goal=SHARE * 13.38,
        quick_goal=1.5,
        start=start,
        minutes=5.0,
    ),
)
