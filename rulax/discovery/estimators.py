"""Ways to estimate the gradient of a window's outcome with respect to meta-parameters, for one agent, all with one signature:

    estimate(problem, meta_params, member) -> gradient, member after the window, metrics

A `Problem` says how meta-parameters enter a life and how its outcome is judged. For DiscoRL they are the rule's parameters; for
MAML and Reptile they are what an agent is born with. A member is whatever has a `life`: one of a population, or of a method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.agents.base import join, split
from rulax.discovery.memory import Update, Updates
from rulax.learning.update import LearnerState
from rulax.types import Array, Experience, Metrics, PyTree

Member = PyTree  # a NamedTuple with a `life`: learning/life.py
Window = PyTree  # what `live` leaves for `judge`


class Problem(NamedTuple):
    """What is optimised."""

    enter: Callable[[PyTree, Member], tuple[PyTree, Member]]  # meta_params, member -> rule_params, member
    live: Callable[[Updates, PyTree, Member], tuple[Member, Window, Metrics]]
    judge: Callable[[Updates, PyTree, Member, Window], tuple[Array, Metrics]]  # the loss of a window, to be differentiated
    updates: Updates
    pairs: int = 4
    noise: float = 0.02


Estimate = tuple[PyTree, Member, Metrics]


def backprop(problem: Problem, meta_params: PyTree, member: Member) -> Estimate:
    """Reverse mode through all updates of the window."""

    def outcome(meta_params: PyTree) -> tuple[Array, tuple[Member, Metrics]]:
        rule_params, entered = problem.enter(meta_params, member)
        after, window, metrics = problem.live(problem.updates, rule_params, entered)
        loss, judged = problem.judge(problem.updates, rule_params, after, window)
        return loss, (after, metrics | judged | {"outer_loss": loss})

    grads, (after, metrics) = jax.grad(outcome, has_aux=True)(meta_params)
    return grads, after, metrics


def first_order(problem: Problem, meta_params: PyTree, member: Member) -> Estimate:
    """Reverse mode that ignores how each update's gradient depends on the updates before it."""
    return backprop(problem._replace(updates=problem.updates._replace(one=detached(problem.updates.one))), meta_params, member)


def detached(update: Update) -> Update:
    """The same update, through which a derivative with respect to the agent passes as if it only added something."""

    def one_update(rule_params: PyTree, state: LearnerState, experience: Experience, key: Array) -> tuple[LearnerState, Metrics]:
        before = jax.lax.stop_gradient(state)
        after, metrics = update(rule_params, before, experience, key)
        trained, carried = split(after.params)
        parts = split(state.params)[0], split(before.params)[0], trained
        trained = jax.tree.map(lambda old, data, new: old + (new - data), *parts)
        return after._replace(params=join(trained, carried)), metrics

    return one_update


def evolution(problem: Problem, meta_params: PyTree, member: Member) -> Estimate:
    """Antithetic evolution strategies (Salimans et al. 2017): -1/(2 P s) sum_i rank_i e_i over P pairs of noise +-e_i.

    The same life is lived with every perturbed rule, with the same randomness; fitness is the validation reward, of which only
    the ranks count. The life goes on with the unperturbed rule.
    """
    key_life, key_noise = jax.random.split(member.life.key)
    member = member._replace(life=member.life._replace(key=key_life))
    half = draw_noise(meta_params, problem.pairs, key_noise)
    noise = jax.tree.map(lambda e: jnp.concatenate([e, -e]), half)

    def fitness(noise: PyTree) -> Array:
        perturbed = jax.tree.map(lambda p, e: p + problem.noise * e, meta_params, noise)
        return problem.live(problem.updates, *problem.enter(perturbed, member))[2]["validation_reward"]

    values = jax.vmap(fitness)(noise)
    grads = evolution_gradient(values, noise, problem.noise)
    rule_params, entered = problem.enter(meta_params, member)
    after, window, metrics = problem.live(problem.updates, rule_params, entered)
    loss, judged = problem.judge(problem.updates, rule_params, after, window)
    return grads, after, metrics | judged | {"outer_loss": loss, "fitness_spread": jnp.std(values)}


def draw_noise(like: PyTree, number: int, key: Array) -> PyTree:
    """Standard normal noise, `number` times the shape of a tree."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, (number, *leaf.shape), leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def evolution_gradient(fitness: Array, noise: PyTree, deviation: float) -> PyTree:
    """The estimate from fitness [M] (more is better) and noise [M, ...]: a gradient to *descend*."""
    weight = centred_ranks(fitness)
    return jax.tree.map(lambda e: -jnp.tensordot(weight.astype(e.dtype), e, 1) / (deviation * fitness.shape[0]), noise)


def centred_ranks(fitness: Array) -> Array:
    """Ranks from -0.5 (worst) to 0.5 (best); equals share the mean of their ranks, so no difference gives no gradient."""
    fitness = jnp.where(jnp.isnan(fitness), -jnp.inf, fitness)  # a life that went wrong is the worst of all
    below = jnp.sum(fitness[:, None] > fitness[None, :], 1)
    equal = jnp.sum(fitness[:, None] == fitness[None, :], 1) - 1
    return (below + 0.5 * equal) / (fitness.shape[0] - 1) - 0.5


def displacement(problem: Problem, meta_params: PyTree, member: Member) -> Estimate:
    """Reptile (Nichol et al. 2018): meta-parameters are those an agent is born with, and move to where it arrives."""
    rule_params, entered = problem.enter(meta_params, member)
    after, window, metrics = problem.live(problem.updates, rule_params, entered)
    loss, judged = problem.judge(problem.updates, rule_params, after, window)
    grads = jax.tree.map(lambda start, end: start - end, meta_params, after.life.learner_state.params)
    return grads, after, metrics | judged | {"outer_loss": loss}


ESTIMATORS = {"backprop": backprop, "first_order": first_order, "evolution": evolution, "displacement": displacement}
