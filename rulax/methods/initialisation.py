"""A study that learns what agents are born with, and asks on tasks of its own how fast they learn: for MAML and Reptile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.discovery.estimators import ESTIMATORS, Problem
from rulax.learning.update import Learner
from rulax.methods.adaptation import Tasks, attempt
from rulax.methods.base import Progress, Study, Tested
from rulax.types import Array, Metrics, PyTree

EXAM_KEY = 1703_03400  # of the tasks that nobody trains on, the same for every method and seed


class Phase(NamedTuple):
    """How an agent meets tasks: in training, or when it is tested."""

    tasks: Tasks
    learner: Learner
    updates: int  # per task
    number: int  # of tasks: per meta-update, or tested


class Plan(NamedTuple):
    """One experiment of the family, with all its numbers."""

    init_params: Callable[[Array], PyTree]  # key -> an agent at random
    train: Phase
    test: Phase
    problem: Problem
    estimator: str
    optimiser: optax.GradientTransformation  # of the meta-parameters
    total: int  # meta-updates
    cost: int  # environment steps or examples of one meta-update
    epochs: int = 1  # meta-gradients per set of trials
    pretraining: int = 0  # updates of the baseline that is trained on all tasks at once; 0 leaves it out
    baseline: tuple[Problem, optax.GradientTransformation] | None = None  # its problem and optimiser, if they are others


class State(NamedTuple):
    """What a meta-update changes."""

    meta_params: PyTree
    optimiser_state: PyTree


def meta_update(plan: Plan, state: State, key: Array) -> tuple[State, Metrics]:
    """Live trials on new tasks, estimate the meta-gradient of each, and follow their mean."""
    phase, estimate = plan.train, ESTIMATORS[plan.estimator]

    def trial(key: Array) -> Any:
        return attempt(phase.tasks, phase.learner, state.meta_params, key, phase.updates)

    trials = jax.vmap(trial)(jax.random.split(key, phase.number))

    def epoch(state: State, _: None) -> tuple[State, Metrics]:
        # One task after the other: its arrays stay in the cache, which is twice as fast as all at once.
        grads, metrics = jax.lax.map(lambda trial: estimate(plan.problem, state.meta_params, trial)[::2], trials)
        mean = jax.tree.map(lambda g: jnp.mean(g, 0), grads)
        change, optimiser_state = plan.optimiser.update(mean, state.optimiser_state, state.meta_params)
        metrics = {"outer_loss": jnp.mean(metrics["outer_loss"]), "meta_gradient_norm": optax.global_norm(mean)}
        return State(optax.apply_updates(state.meta_params, change), optimiser_state), metrics

    state, metrics = jax.lax.scan(epoch, state, None, plan.epochs)
    return state, {name: values[0] for name, values in metrics.items()} | {"score": jnp.mean(trials.scores[:, -1])}


def start(plan: Plan, key: Array) -> State:
    """Before the first meta-update."""
    meta_params = plan.init_params(key)
    return State(meta_params, plan.optimiser.init(meta_params))


def exam_scores(phase: Phase, meta_params: PyTree, batch: int = 20) -> Array:
    """Scores [tasks, updates + 1] on the test tasks."""
    keys = jax.random.split(jax.random.key(EXAM_KEY), phase.number)
    return jax.lax.map(
        lambda key: attempt(phase.tasks, phase.learner, meta_params, key, phase.updates).scores, keys, batch_size=batch
    )


def exam_tasks(phase: Phase) -> PyTree:
    """The tasks of `exam_scores`, in order."""
    keys = jax.random.split(jax.random.key(EXAM_KEY), phase.number)
    return jax.vmap(lambda key: phase.tasks.sample(jax.random.split(key, 3)[0]))(keys)


def pretrained(plan: Plan, key: Array) -> PyTree:
    """The baseline that never adapts while it is trained: the same outer loss with no inner update."""
    problem, optimiser = plan.baseline or (plan.problem, plan.optimiser)
    phase = plan.train._replace(updates=0)
    joint = plan._replace(train=phase, problem=problem, optimiser=optimiser, estimator="backprop", total=plan.pretraining)
    key_start, key_run = jax.random.split(key)
    keys = jax.random.split(key_run, joint.total)
    run = jax.jit(lambda state: jax.lax.scan(lambda state, key: meta_update(joint, state, key), state, keys)[0])
    return run(start(joint, key_start)).meta_params


@dataclasses.dataclass
class Initialisation(Study):
    """One seed."""

    plan: Plan
    seed: int
    report: Callable[[dict[str, np.ndarray], PyTree], Tested]  # scores by name [tasks, updates + 1], tasks -> verdict
    made: int = 0  # meta-updates
    chunk: int = 1

    def __post_init__(self) -> None:
        key_agent, self.key, self.key_baseline = jax.random.split(jax.random.key(self.seed), 3)
        self.state = start(self.plan, key_agent)
        self.first = self.state.meta_params

        def several(state: State, key: Array, made: Array) -> tuple[State, Metrics]:
            """`chunk` meta-updates; the key of each is its number's, so that chunks of any size make the same run."""
            numbers = made + jnp.arange(self.chunk)
            return jax.lax.scan(lambda s, n: meta_update(self.plan, s, jax.random.fold_in(key, n)), state, numbers)

        self.several = jax.jit(several)
        self.scores = jax.jit(lambda meta_params: exam_scores(self.plan.test, meta_params))

    def advance(self) -> Progress:
        """The next `chunk` meta-updates."""
        self.state, metrics = self.several(self.state, self.key, jnp.int32(self.made))
        self.made += self.chunk
        value = float(jnp.mean(metrics["score"]))
        return Progress(self.made / self.plan.total, self.made, self.made * self.plan.cost, value)

    def done(self) -> bool:
        """Whether all are made."""
        return self.made >= self.plan.total

    def test(self) -> Tested:
        """The learned agent, one born at random and, where the plan says so, one trained on all tasks at once."""
        agents = {"learned": self.state.meta_params, "random": self.first}
        if self.plan.pretraining:
            agents["pretrained"] = pretrained(self.plan, self.key_baseline)
        scores = {name: np.asarray(self.scores(agent)) for name, agent in agents.items()}
        return self.report(scores, exam_tasks(self.plan.test))
