"""One step of discovery. Read this file first: refresh the population, estimate the gradient, optimise, return.

Agents in equal environments are mapped at once; environments of different shapes are families, each with one compiled program
whatever the number of its agents. Only families are a Python loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.discovery.estimators import ESTIMATORS, Problem
from rulax.discovery.memory import Updates, make_updates
from rulax.discovery.meta_optimiser import MetaOptimiser
from rulax.discovery.objectives import OBJECTIVES
from rulax.discovery.population import Family, Member
from rulax.discovery.window import live
from rulax.types import Array, Metrics, PyTree


class Programs(NamedTuple):
    """One family's two compiled functions."""

    refresh: Callable[[Member], Member]  # members [A, ...] -> members, none of which is at the end of its life
    estimate: Callable[[PyTree, Member], tuple[PyTree, Member, Metrics]]  # -> gradients [A], members, metrics [A]


class MetaState(NamedTuple):
    """Everything that discovery changes."""

    meta_params: PyTree
    optimiser_state: PyTree
    members: tuple[Member, ...]  # per family, leaves [A, ...]
    steps: Array  # [] int32, meta-steps made


def meta_step(families: Sequence[Programs], optimise: Callable, state: MetaState) -> tuple[MetaState, list[Metrics]]:
    """One meta-step of all families; metrics [A] per family, and at the end those of the optimiser."""
    population = [family.refresh(members) for family, members in zip(families, state.members, strict=True)]
    grads, lived, metrics = zip(
        *(family.estimate(state.meta_params, members) for family, members in zip(families, population, strict=True)), strict=True
    )
    meta_params, optimiser_state, optimised = optimise(state.meta_params, state.optimiser_state, grads)
    return MetaState(meta_params, optimiser_state, lived, state.steps + 1), [*metrics, optimised]


def estimate(family: Family, problem: Problem, at_once: int = 0) -> Callable:
    """One family's gradients as a function to compile: `(meta_params, members) -> gradients [A], members, metrics [A]`."""
    estimator = ESTIMATORS[family.settings.estimator]

    def estimated(meta_params: PyTree, members: Member) -> tuple[PyTree, Member, Metrics]:
        def one(member: Member) -> tuple[PyTree, Member, Metrics]:
            grads, after, metrics = estimator(problem, meta_params, member)
            norm = optax.global_norm(grads)
            # Where the gradient is not finite, the agent's own numbers may not be either: its life ends here.
            after = after._replace(budget=jnp.where(jnp.isfinite(norm), after.budget, 0))
            return grads, after, metrics | {"meta_gradient_norm": norm}

        return over_agents(one, members, at_once)

    return estimated


def optimise(optimiser: MetaOptimiser) -> Callable:
    """All families' gradients, one after another, to the next meta-parameters; a function to compile."""

    def optimised(meta_params: PyTree, state: PyTree, grads: tuple[PyTree, ...]) -> tuple[PyTree, PyTree, Metrics]:
        return optimiser.step(meta_params, state, jax.tree.map(lambda *parts: jnp.concatenate(parts), *grads))

    return optimised


def over_agents(one: Callable, members: Member, at_once: int) -> tuple[PyTree, Member, Metrics]:
    """Map over agents: all at once, or in groups that fit into memory, one after another."""
    agents = members.age.shape[0]
    if not at_once or at_once >= agents:
        return jax.vmap(one)(members)
    return jax.lax.map(one, members, batch_size=at_once)


def rule_problem(family: Family, strategy: str) -> Problem:
    """The discovery of a rule: meta-parameters are the rule's."""

    def enter(meta_params: PyTree, member: Member) -> tuple[PyTree, Member]:
        return meta_params, member

    def lived(updates: Updates, rule_params: PyTree, member: Member):
        return live(family, updates, rule_params, member)

    settings = family.settings
    judge = OBJECTIVES[settings.objective](family)
    return Problem(enter, lived, judge, make_updates(family.learner, strategy), settings.pairs, settings.noise)
