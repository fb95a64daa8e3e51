"""MAML (Finn et al. 2017): an initialisation from which a few gradient steps on a new task help most.

    theta_i = theta - alpha grad L_i(theta; D_i)                 inner updates: D_i is collected with theta in task i
    theta   <- Adam on  mean_i grad_theta L'_i(theta_i; D'_i)    outer update:  D'_i is collected with theta_i

The outer gradient passes through the inner updates. First-order MAML ignores how an inner gradient depends on where it is taken;
it differs only in `estimate`. Tasks and inner updates, which Reptile has as well, are in `adaptation.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.agents.base import Agent, join, split
from rulax.discovery.estimators import Estimator, Problem, backprop
from rulax.discovery.memory import Updates, make_updates
from rulax.learning.update import Learner, LearnerState, mean_loss, read
from rulax.methods.adaptation import Adaptation, Init, MetaState, Tasks, adapt_to_tasks, follow_mean, from_meta_params
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Metrics, PyTree, later


class MAML(NamedTuple):
    """The parts of a meta-update."""

    tasks: Tasks
    learner: Learner  # the inner rule, and the optimiser that turns its gradient into updates
    outer: UpdateRule  # its loss, L', is what the meta-parameters minimise
    optimiser: optax.GradientTransformation  # of the meta-parameters
    number: int  # tasks per meta-update
    updates: int = 1  # inner updates per task; 0 trains one agent on all tasks at once
    epochs: int = 1  # outer gradients per set of tasks
    estimate: Estimator = backprop  # or `first_order`
    memory: str = "plain"  # how reverse mode stores the inner updates: see discovery/memory.py


def meta_update(maml: MAML, state: MetaState, key: Array) -> tuple[MetaState, Metrics]:
    """One meta-update: sample tasks, adapt to each, follow the mean of the outer gradients."""
    return outer_step(
        maml, lambda carried: outer_problem(maml.learner, maml.outer, maml.memory, maml.tasks.init, carried), state, key
    )


def outer_step(
    maml: MAML, make_problem: Callable[[PyTree], Problem[Adaptation, AdaptedAgents]], state: MetaState, key: Array
) -> tuple[MetaState, Metrics]:
    """A meta-update whose outer loss is that of the problem that `make_problem` makes of what the meta-parameters carry."""
    adapted = adapt_to_tasks(maml.tasks, maml.learner, state.meta_params, key, maml.updates, maml.number)
    # What is carried never changes here, so all epochs share it.
    problem = make_problem(split(state.meta_params)[1])

    def epoch(state: MetaState, _: None) -> tuple[MetaState, Metrics]:
        trained = split(state.meta_params)[0]

        def outer_gradient(adaptation: Adaptation) -> tuple[PyTree, Array]:
            gradient, _, metrics = maml.estimate(problem, trained, adaptation)
            return gradient, metrics["outer_loss"]

        # One task after the other: its arrays stay in the cache, which is twice as fast as all tasks at once.
        gradients, losses = jax.lax.map(outer_gradient, adapted)
        state, mean = follow_mean(maml.optimiser, state, gradients)
        return state, {"outer_loss": jnp.mean(losses), "meta_gradient_norm": optax.global_norm(mean)}

    state, metrics = jax.lax.scan(epoch, state, None, maml.epochs)
    # Of the first epoch: later ones are measured after steps on the very same tasks.
    return state, {name: values[0] for name, values in metrics.items()} | {"score": jnp.mean(adapted.scores[:, -1])}


class AdaptedAgents(NamedTuple):
    """The agents whose outer loss is taken, and the validation experience that belongs to each."""

    agents: Agent  # [M, ...]
    validation: Experience  # [M, ...]


def outer_problem(
    learner: Learner, outer: UpdateRule, memory: str = "plain", init: Init = from_meta_params, carried: PyTree = None
) -> Problem[Adaptation, AdaptedAgents]:
    """The outer loss of an adaptation, as a function of the parameters it started from, as `init` reads them (`Tasks.init`).

    Only their trained part is meta-learned (agents/base.py); `carried` is the rest, if there is any.

    The updates are made again from their record. The loss is the mean over the agents after each of them (Antoniou et al. 2019;
    with one update this is MAML), or that of the initial agent where there are none. Experience is data, as in discovery, so
    one adaptation can serve several epochs.
    """

    def enter(meta_params: PyTree, adaptation: Adaptation) -> tuple[PyTree, Adaptation]:
        # The recorded agent is replaced by one made from `meta_params`, so that the gradient reaches them.
        whole = meta_params if carried is None else join(meta_params, carried)
        initial = init(learner, whole, adaptation.task, adaptation.life.key)
        life = adaptation.life._replace(learner_state=initial)
        return {}, adaptation._replace(life=life, record=adaptation.record._replace(learner_state=initial))

    def live(updates: Updates, rule_params: PyTree, adaptation: Adaptation) -> tuple[Adaptation, AdaptedAgents, Metrics]:
        initial, experience, keys, _ = adaptation.record
        if not len(keys):
            return adaptation, AdaptedAgents(jax.tree.map(lambda x: x[None], initial.params), adaptation.validation), {}

        def one(state: LearnerState, inputs: tuple[Experience, Array]) -> tuple[LearnerState, Agent]:
            state = updates.one(rule_params, state, *inputs).state
            return state, state.params

        # Not `memory.repeat`: it saves the derivative with respect to the first agent, which is the one that is wanted here.
        after, agents = jax.lax.scan(one, initial, (experience, keys))
        adaptation = adaptation._replace(life=adaptation.life._replace(learner_state=after))
        # The first validation belongs to the agent before any update.
        return adaptation, AdaptedAgents(agents, later(adaptation.validation)), {}

    def outer_loss(adapted: AdaptedAgents) -> Array:
        def loss(each: AdaptedAgents) -> Array:
            taken = read(each.agents, each.validation).taken
            targets, _, _ = outer.targets({}, {}, Batch(each.validation, {}, {}))  # these rules' targets read no predictions
            return mean_loss(taken, outer, {}, targets, each.validation)[0]

        return jnp.mean(jax.lax.map(loss, adapted))

    def judge(updates: Updates, rule_params: PyTree, adaptation: Adaptation, adapted: AdaptedAgents) -> tuple[Array, Metrics]:
        return outer_loss(adapted), {}

    def fitness(adaptation: Adaptation, adapted: AdaptedAgents, metrics: Metrics) -> Array:
        # Not the recorded return: experience is data, so only the loss says whether another agent would do better.
        return -outer_loss(adapted)

    def end_params(adaptation: Adaptation) -> Agent:
        return split(adaptation.life.learner_state.params)[0]

    return Problem(enter, live, make_updates(learner, memory), judge, fitness, end_params)
