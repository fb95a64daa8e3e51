"""Reptile (Nichol et al. 2018): move the initialisation towards where ordinary learning on a task ends.

    W_i = k updates on task i, starting from phi
    phi <- phi + epsilon mean_i (W_i - phi),    epsilon -> 0

No derivative passes through the updates. Tasks and updates are those of MAML, in `adaptation.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.agents.base import Agent, split
from rulax.discovery.estimators import Problem, displacement
from rulax.discovery.memory import Updates
from rulax.learning.update import Learner
from rulax.methods.adaptation import Adaptation, MetaState, Tasks, adapt_to_tasks, follow_mean
from rulax.methods.maml import AdaptedAgents, outer_problem
from rulax.rules.base import UpdateRule
from rulax.types import Array, Metrics, PyTree


class Reptile(NamedTuple):
    """The parts of a meta-update."""

    tasks: Tasks
    learner: Learner  # the rule, and the optimiser that turns its gradient into updates
    outer: UpdateRule  # its loss is logged, and nothing else
    optimiser: optax.GradientTransformation  # of phi: gradient descent with step epsilon, or another
    number: int  # tasks per meta-update
    updates: int  # k; at least 2, since with one update this is joint training on all tasks


def meta_update(reptile: Reptile, state: MetaState, key: Array) -> tuple[MetaState, Metrics]:
    """One meta-update: sample tasks, adapt to each, move towards the mean of where the agents arrived."""
    adapted = adapt_to_tasks(reptile.tasks, reptile.learner, state.meta_params, key, reptile.updates, reptile.number)
    problem = final_agent(reptile.learner, reptile.outer)

    trained = split(state.meta_params)[0]

    def towards(adaptation: Adaptation) -> tuple[Agent, Array]:
        gradient, _, metrics = displacement(problem, trained, adaptation)  # phi - W_i
        return gradient, metrics["outer_loss"]

    gradients, losses = jax.lax.map(towards, adapted)
    state, mean = follow_mean(reptile.optimiser, state, gradients)
    metrics = {"outer_loss": jnp.mean(losses), "meta_gradient_norm": optax.global_norm(mean)}
    return state, metrics | {"score": jnp.mean(adapted.scores[:, -1])}


def final_agent(learner: Learner, outer: UpdateRule) -> Problem[Adaptation, AdaptedAgents]:
    """An adaptation as it was recorded, for an estimator that only asks where it ended."""

    def enter(meta_params: Agent, adaptation: Adaptation) -> tuple[PyTree, Adaptation]:
        return {}, adaptation

    def live(updates: Updates, rule_params: PyTree, adaptation: Adaptation) -> tuple[Adaptation, AdaptedAgents, Metrics]:
        last = jax.tree.map(lambda x: x[None], adaptation.life.learner_state.params)
        return adaptation, AdaptedAgents(last, jax.tree.map(lambda x: x[-1:], adaptation.validation)), {}

    return outer_problem(learner, outer)._replace(enter=enter, live=live)
