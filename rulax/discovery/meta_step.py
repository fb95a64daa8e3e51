"""One step of discovery: refresh the population, estimate the gradient, optimise, return. Of this folder, read this file first.

Agents in environments of equal shapes form a family and are mapped by one compiled program, however many they are. Only the loop
over families is written in Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.discovery.estimators import ESTIMATORS, Estimator, Problem, evolution, in_groups
from rulax.discovery.memory import Updates, make_updates
from rulax.discovery.meta_optimiser import MetaOptimiser, norm_of_mean
from rulax.discovery.objectives import OBJECTIVES, validation_reward
from rulax.discovery.outer_loss import penalties
from rulax.discovery.persistent import pes_within
from rulax.discovery.population import Family, Member
from rulax.discovery.settings import PERTURBING, Discovery
from rulax.discovery.whole_life import whole_life_problem
from rulax.discovery.window import Window, live
from rulax.types import Array, Metrics, PyTree

Estimated = tuple[PyTree, Member, Metrics]  # gradients, members and metrics, [K, ...] each for a family of K agents
# (meta_params, state, gradients per family) -> the next meta_params and state, metrics [] of each family and last of all
Optimise = Callable[[PyTree, PyTree, tuple[PyTree, ...]], tuple[PyTree, PyTree, list[Metrics]]]


class Programs(NamedTuple):
    """One family's two compiled functions."""

    refresh: Callable[[Member], Member]  # members [K, ...] -> members, none of them at the end of its lifetime
    estimate: Callable[[PyTree, Member], Estimated]  # meta_params, members [K, ...] -> gradients, members, metrics


class DiscoveryState(NamedTuple):
    """Everything that discovery changes."""

    meta_params: PyTree
    optimiser_state: PyTree
    members: tuple[Member, ...]  # per family, leaves [K, ...]
    steps: Array  # [] int32, meta-steps made


def meta_step(families: Sequence[Programs], optimise: Optimise, state: DiscoveryState) -> tuple[DiscoveryState, list[Metrics]]:
    """One meta-step of all families.

    Returns the next state and metrics per family ([K], and [] for the norm of its mean gradient), and last those of the optimiser.
    """
    population = [family.refresh(members) for family, members in zip(families, state.members, strict=True)]
    grads, lived, metrics = zip(
        *(family.estimate(state.meta_params, members) for family, members in zip(families, population, strict=True)), strict=True
    )
    meta_params, optimiser_state, (*norms, optimised) = optimise(state.meta_params, state.optimiser_state, grads)
    shown = [of_agents | of_family for of_agents, of_family in zip(metrics, norms, strict=True)]
    return DiscoveryState(meta_params, optimiser_state, lived, state.steps + 1), [*shown, optimised]


def estimate(family: Family, problem: Problem[Member, Any], at_once: int = 0) -> Callable[[PyTree, Member], Estimated]:
    """One family's meta-gradients, as a function to compile; at most `at_once` agents at the same time (0: all)."""
    estimator = make_estimator(family.settings)

    def estimated(meta_params: PyTree, members: Member) -> Estimated:
        def one(member: Member) -> Estimated:
            grads, after, metrics = estimator(problem, meta_params, member)
            norm = optax.global_norm(grads)
            # A gradient that is not finite ends the lifetime: the agent's own parameters may no longer be finite.
            after = after._replace(budget=jnp.where(jnp.isfinite(norm), after.budget, 0))
            return grads, after, metrics | {"meta_gradient_norm": norm}

        return in_groups(one, members, at_once)

    return estimated


def make_estimator(settings: Discovery) -> Estimator:
    """The estimator that the settings name, with its options."""
    if settings.estimator not in PERTURBING:
        return ESTIMATORS[settings.estimator]
    chosen: dict[str, Any] = {"noise": settings.noise, "shaping": settings.fitness_shaping, "at_once": settings.pairs_at_once}
    if settings.estimator == "pes":
        return functools.partial(pes_within, **chosen)
    return functools.partial(evolution, pairs=settings.pairs, **chosen)


def optimise(optimiser: MetaOptimiser) -> Optimise:
    """The step from all families' gradients to the next meta-parameters, as a function to compile."""

    def optimised(meta_params: PyTree, state: PyTree, grads: tuple[PyTree, ...]) -> tuple[PyTree, PyTree, list[Metrics]]:
        # All families share the rule, so their gradients have the same shapes but for the number of agents.
        together = jax.tree.map(lambda *parts: jnp.concatenate(parts), *grads)
        meta_params, state, metrics = optimiser.step(meta_params, state, together)
        return meta_params, state, [*({"meta_gradient_norm_of_mean": norm_of_mean(family)} for family in grads), metrics]

    return optimised


def make_problem(family: Family, strategy: str) -> Problem[Member, Any]:
    """What the settings ask for: windows whose updates store what the strategy says, or whole lives, of which nothing is stored."""
    return whole_life_problem(family) if family.settings.fitness == "lifetime" else rule_problem(family, strategy)


def rule_problem(family: Family, strategy: str) -> Problem[Member, Window]:
    """The discovery of a rule: meta-parameters are the rule's, and a window is judged by what its agent does next."""

    def enter(meta_params: PyTree, member: Member) -> tuple[PyTree, Member]:
        return meta_params, member

    def lived(updates: Updates, rule_params: PyTree, member: Member) -> tuple[Member, Window, Metrics]:
        return live(family, updates, rule_params, member)

    return Problem(
        enter=enter,
        live=lived,
        updates=make_updates(family.learner, strategy, penalties),
        judge=OBJECTIVES[family.settings.objective](family),
        fitness=validation_reward,
    )
