"""Shared by the experiments of MAML and Reptile: sizes, initial agents, the run of one seed, and tests of how fast agents adapt."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.agents import Agent, make_agent
from rulax.agents.gaussian import make_gaussian_agent
from rulax.discovery.estimators import backprop
from rulax.envs.base import Environment
from rulax.envs.point import Point
from rulax.envs.regression import Regression
from rulax.envs.velocity import Velocity
from rulax.learning.optimisers import make_optimiser
from rulax.learning.update import Learner
from rulax.methods import maml
from rulax.methods.adaptation import Adaptation, MetaState, Tasks, adapt, init_meta_state
from rulax.methods.base import Progress, SeedRun, Tested
from rulax.methods.maml import MAML
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.rules.regression import regression
from rulax.settings import Learning, Network
from rulax.types import Array, Metrics, PyTree

TEST_SEED = 1703_03400  # of the test tasks, which are the same for every method and seed; never a seed of training
TEST_UPDATES = 3  # on test tasks of environments

Scores = dict[str, np.ndarray]  # by name of the initialisation ("learned", "random", "pretrained"): [tasks, updates + 1]


class PolicySizes(NamedTuple):
    """Sizes of an experiment in an environment with continuous actions."""

    total: int  # meta-updates
    tasks: int = 20  # per meta-update
    trajectories: int = 20  # per task and update
    hidden: tuple[int, ...] = (100, 100)
    deviation: float = 1.0  # of actions, before any meta-update
    rate: float = 0.5  # of the first inner update; later ones have half of it
    updates: int = 3  # per task
    meta_rate: float = 2e-3
    deviation_rate: float = 1.0  # of the log-deviation of actions, in units of `meta_rate`
    epochs: int = 2
    clip: float = 0.3
    tested: int = 400  # test tasks
    chunk: int = 2  # meta-updates per call of `advance`
    pretraining: int = 0  # meta-updates of the pretrained baseline; 0 leaves it out


class RegressionSizes(NamedTuple):
    """Sizes of an experiment with supervised tasks."""

    total: int  # meta-updates
    tasks: int  # per meta-update
    examples: int  # per update
    validated: int  # other examples of the same task, for the outer loss
    rate: float
    meta_rate: float
    updates: int  # per task
    hidden: tuple[int, ...]
    tested: int  # test tasks
    chunk: int = 500  # meta-updates per call of `advance`


class AdaptationTest(NamedTuple):
    """How an initialisation is tested: adapt to tasks that training never sees."""

    tasks: Tasks
    learner: Learner
    updates: int  # per task
    number: int  # of tasks
    # What of an adaptation is reported, [M]: the scores after 0, 1, ... updates, or other numbers that `report` knows.
    measure: Callable[[Adaptation], Array] = lambda adaptation: adaptation.scores


class Pretraining(NamedTuple):
    """The baseline that never adapts during training: MAML with no inner updates, that is, joint training on all tasks."""

    maml: MAML
    total: int  # meta-updates


class AdaptationSetup(NamedTuple):
    """One experiment that learns an initialisation, with all its numbers."""

    init_agent: Callable[[Array], Agent]  # key -> an agent with random parameters
    meta_update: Callable[[MetaState, Array], tuple[MetaState, Metrics]]  # MAML's or Reptile's
    optimiser: optax.GradientTransformation  # of the meta-parameters
    total: int  # meta-updates
    cost: int  # environment steps, or examples, of one meta-update
    test: AdaptationTest
    report: Callable[[Scores, PyTree], Tested]  # (scores, test tasks) -> test result
    chunk: int = 1  # meta-updates per call of `advance`
    pretraining: Pretraining | None = None


class AdaptationRun(SeedRun):
    """One seed of an experiment that learns an initialisation."""

    kept = ("state", "made")

    def __init__(self, setup: AdaptationSetup, seed: int):
        self.setup, self.made, self.chunk = setup, 0, setup.chunk
        # The baseline has a key of its own, so that leaving it out does not change the run.
        key_agent, self.key, self.key_pretraining = jax.random.split(jax.random.key(seed), 3)
        self.state = init_meta_state(setup.optimiser, setup.init_agent(key_agent))
        self.initial = self.state.meta_params
        self._several = jax.jit(self._repeat)
        self._scores = jax.jit(functools.partial(adaptation_scores, setup.test))

    def _repeat(self, state: MetaState, key: Array, made: Array) -> tuple[MetaState, Metrics]:
        """`chunk` meta-updates. Each has a key made from its number, so the size of a chunk does not change the results."""
        numbers = made + jnp.arange(self.chunk)
        return jax.lax.scan(lambda state, n: self.setup.meta_update(state, jax.random.fold_in(key, n)), state, numbers)

    def advance(self) -> Progress:
        self.state, metrics = self._several(self.state, self.key, jnp.int32(self.made))
        self.made += self.chunk
        value = float(jnp.mean(metrics["score"]))
        return Progress(self.made / self.setup.total, self.made, self.made * self.setup.cost, value)

    def done(self) -> bool:
        return self.made >= self.setup.total

    def scores(self, meta_params: PyTree) -> np.ndarray:
        """What `adaptation_scores` says of them."""
        return np.asarray(self._scores(meta_params))

    def test(self) -> Tested:
        agents = {"learned": self.state.meta_params, "random": self.initial}
        if self.setup.pretraining:
            agents["pretrained"] = pretrained(self.setup.pretraining, self.setup.init_agent, self.key_pretraining)
        scores = {name: self.scores(agent) for name, agent in agents.items()}
        return self.setup.report(scores, sampled_tasks(self.setup.test))


def adaptation_scores(test: AdaptationTest, meta_params: Agent, batch: int = 20) -> Array:
    """Scores [tasks, updates + 1], or whatever else `test.measure` returns, of agents that start from `meta_params`.

    They are those on the test tasks, `batch` tasks at a time.
    """
    keys = jax.random.split(jax.random.key(TEST_SEED), test.number)
    return jax.lax.map(
        lambda key: test.measure(adapt(test.tasks, test.learner, meta_params, key, test.updates)), keys, batch_size=batch
    )


def sampled_tasks(test: AdaptationTest) -> PyTree:
    """The tasks of `adaptation_scores` in the same order, [tasks, ...]."""
    keys = jax.random.split(jax.random.key(TEST_SEED), test.number)
    return jax.vmap(lambda key: test.tasks.sample(jax.random.split(key, 4)[0]))(keys)  # as `adapt` splits its key


def pretrained(pretraining: Pretraining, init_agent: Callable[[Array], Agent], key: Array) -> Agent:
    """The agent that joint training on all tasks leads to."""
    joint = pretraining.maml._replace(updates=0, estimate=backprop)
    key_agent, key_run = jax.random.split(key)
    keys = jax.random.split(key_run, pretraining.total)
    run = jax.jit(lambda state: jax.lax.scan(functools.partial(maml.meta_update, joint), state, keys)[0])
    return run(init_meta_state(joint.optimiser, init_agent(key_agent))).meta_params


# -- agents, learners and optimisers ----------------------------------------------------------------------------------------------


def init_gaussian(environment: Environment, sizes: PolicySizes) -> Callable[[Array], Agent]:
    """Agents with a Gaussian policy: key -> agent."""
    network = Network(hidden=sizes.hidden)
    return lambda key: make_gaussian_agent(key, environment.observation, environment.num_actions, network, sizes.deviation)


def init_regressor(family: Regression, network: Network) -> Callable[[Array], Agent]:
    """Networks that predict one number: key -> agent."""
    inputs = jax.ShapeDtypeStruct((family.inputs,), np.float32)
    return lambda key: make_agent(key, inputs, 1, regression().heads(1), network)


def policy_learner(sizes: PolicySizes) -> Learner:
    """Policy gradients by plain gradient descent, whose rate is halved after the first update, as in the published code."""
    halved = optax.piecewise_constant_schedule(sizes.rate, {1: 0.5})
    return Learner(likelihood_ratio(), optax.sgd(halved))


def policy_optimiser(sizes: PolicySizes) -> optax.GradientTransformation:
    """Adam on the meta-parameters, with a linearly falling rate; that of a Gaussian policy's deviation may be another.

    Adam moves no parameter further than the sum of its rates, however steady the gradient: with 300 steps of 0.002 falling to 0, a
    deviation of 1 ends above 0.74, and all that is left of the return is its noise.
    """
    steps = Learning(learning_rate=sizes.meta_rate, schedule="linear", clip_gradient=0.5, adam_eps=1e-5)
    optimiser = make_optimiser(steps, sizes.total * sizes.epochs)
    if sizes.deviation_rate == 1:
        return optimiser

    def faster(agent: PyTree) -> PyTree:
        return eqx.tree_at(lambda agent: agent.log_deviation, agent, replace_fn=lambda change: sizes.deviation_rate * change)

    return optax.chain(optimiser, optax.stateless(lambda changes, params: faster(changes)))


def policy_cost(environment: Point | Velocity, sizes: PolicySizes) -> int:
    """Environment steps of one meta-update."""
    return (sizes.updates + 1) * sizes.tasks * sizes.trajectories * environment.horizon


# -- what scores say --------------------------------------------------------------------------------------------------------------


def gap_closed(scores: np.ndarray, best: float, updates: int) -> np.ndarray:
    """The share of the gap between no update and the best return that a number of updates closes, [tasks].

    (R_k - R_0) / (R_best - mean R_0): the denominator is the mean over tasks, since a single task may have no gap at all.
    """
    return (scores[:, updates] - scores[:, 0]) / (best - scores[:, 0].mean())


def baselines_of(scores: Scores, updates: int) -> dict[str, float]:
    """Mean scores of the other initialisations after as many updates."""
    return {name: float(values[:, updates].mean()) for name, values in scores.items() if name != "learned"}
