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
from rulax.discovery.outer_loss import make_penalise
from rulax.discovery.persistent import pes_within
from rulax.discovery.population import Family, Member
from rulax.discovery.settings import PERTURBING, WHOLE, Discovery
from rulax.discovery.whole_life import whole_life_problem
from rulax.discovery.window import Window, live
from rulax.rules.epg_sizes import HANDOVER
from rulax.types import Array, Metrics, PyTree

Live = Callable[[PyTree, Member], tuple[Member, Any, Metrics]]  # meta_params, members -> members, what was lived, metrics
Submit = Callable[..., Callable[[], Any]]  # (function, *arguments) -> a function that waits for its result
Estimated = tuple[PyTree, Member, Metrics]  # gradients, members and metrics, [K, ...] each for a family of K agents
# (meta_params, state, gradients per family) -> the next meta_params and state, metrics [] of each family and last of all
Optimise = Callable[[PyTree, PyTree, tuple[PyTree, ...]], tuple[PyTree, PyTree, list[Metrics]]]


class Programs(NamedTuple):
    """One family's functions; the last one is compiled, and the others mostly, too."""

    refresh: Callable[[Member], Member]  # members [K, ...] -> members, none of them at the end of its lifetime
    estimate: Callable[[PyTree, Any], Estimated]  # meta_params, what was lived [K, ...] -> gradients, members, metrics
    live: Live | None = None  # where agents act on the host, they live there first; else the estimate does it all


class DiscoveryState(NamedTuple):
    """Everything that discovery changes."""

    meta_params: PyTree
    optimiser_state: PyTree
    members: tuple[Member, ...]  # per family, leaves [K, ...]
    steps: Array  # [] int32, meta-steps made


def at_once(function: Callable, *arguments: Any) -> Callable[[], Any]:
    """Call it, before anything else."""
    result = function(*arguments)
    return lambda: result


def meta_step(
    families: Sequence[Programs], optimise: Optimise, state: DiscoveryState, handover: int = 0, submit: Submit = at_once
) -> tuple[DiscoveryState, list[Metrics]]:
    """One meta-step of all families.

    Args:
        families: what each of them does.
        optimise: the step of the meta-parameters.
        state: before it.
        handover: that of the settings.
        submit: starts an estimate, so that agents of another family may act on the host meanwhile.

    Returns:
        The next state, and metrics per family ([K], and [] for the norm of its mean gradient), and last those of the optimiser.
    """
    population = [
        with_share(family.refresh(members), state.steps, handover) for family, members in zip(families, state.members, strict=True)
    ]
    # Those who live in the estimate come first: theirs is computed while the others act.
    order = sorted(range(len(families)), key=lambda index: families[index].live is not None)
    started = {index: begin_estimate(families[index], state.meta_params, population[index], submit) for index in order}
    grads, lived, metrics = zip(*(started[index]() for index in range(len(families))), strict=True)
    meta_params, optimiser_state, (*norms, optimised) = optimise(state.meta_params, state.optimiser_state, grads)
    shown = [of_agents | of_family for of_agents, of_family in zip(metrics, norms, strict=True)]
    return DiscoveryState(meta_params, optimiser_state, lived, state.steps + 1), [*shown, optimised]


def begin_estimate(family: Programs, meta_params: PyTree, members: Member, submit: Submit) -> Callable[[], Estimated]:
    """Let a family live its window, here if it acts on the host; the function that is returned waits for its estimate."""
    if family.live is None:
        return submit(family.estimate, meta_params, members)
    members, recorded, metrics = family.live(meta_params, members)
    waiting = submit(family.estimate, meta_params, recorded)

    def finish() -> Estimated:
        grads, after, estimated = waiting()
        return grads, members._replace(budget=after.budget), metrics | estimated

    return finish


def with_share(members: Member, steps: Array, handover: int) -> Member:
    """Members [K, ...] that learn by as much of PPO's loss as is due after so many meta-steps; as they are without a handover."""
    if not handover:
        return members
    share = jnp.maximum(0, 1 - steps / handover).astype(jnp.float32)
    state = members.life.learner_state
    # In the rule's memory of a life, where every agent has it, perturbed lives too: so it is no parameter that noise would move.
    ruled = state.rule_state | {HANDOVER: jnp.full_like(state.rule_state[HANDOVER], share)}
    kept = members.estimator
    if kept:
        kept = (with_share(kept[0], steps, handover), *kept[1:])
    return members._replace(life=members.life._replace(learner_state=state._replace(rule_state=ruled)), estimator=kept)


def estimate(family: Family, problem: Problem[Any, Any], at_once: int = 0, shares: int = 1) -> Callable[[PyTree, Any], Estimated]:
    """One family's meta-gradients, as a function to compile; of each share of it at most `at_once` agents together (0: all)."""
    estimator = make_estimator(family.settings)

    def estimated(meta_params: PyTree, members: Any) -> Estimated:
        def one(member: Any) -> Estimated:
            grads, after, metrics = estimator(problem, meta_params, member)
            norm = optax.global_norm(grads)
            # A gradient that is not finite ends the lifetime: the agent's own parameters may no longer be finite.
            after = after._replace(budget=jnp.where(jnp.isfinite(norm), after.budget, 0))
            return grads, after, metrics | {"meta_gradient_norm": norm}

        return in_groups(one, members, at_once, shares)

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
    return whole_life_problem(family) if family.settings.fitness in WHOLE else rule_problem(family, strategy)


def rule_problem(family: Family, strategy: str) -> Problem[Member, Window]:
    """The discovery of a rule: meta-parameters are the rule's, and a window is judged by what its agent does next."""

    def enter(meta_params: PyTree, member: Member) -> tuple[PyTree, Member]:
        return meta_params, member

    def lived(updates: Updates, rule_params: PyTree, member: Member) -> tuple[Member, Window, Metrics]:
        return live(family, updates, rule_params, member)

    return Problem(
        enter=enter,
        live=lived,
        updates=make_updates(family.learner, strategy, make_penalise(family.settings, family.recipe.rule)),
        judge=OBJECTIVES[family.settings.objective](family),
        fitness=validation_reward,
    )
