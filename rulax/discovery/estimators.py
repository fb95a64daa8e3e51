"""Estimators of a meta-gradient: how the outcome of one window of one agent's life depends on the meta-parameters.

They all have one signature,

    estimate(problem, meta_params, member) -> gradient to descend, member after the window, metrics

and know of a life only what its `Problem` tells them: how meta-parameters enter it, how it is lived, and what counts as good. For
DiscoRL meta-parameters are the rule's; for MAML and Reptile they are an agent's initial parameters. A member is any tree: one of a
population, a trial of a method, or the state that an estimator keeps between windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import rankdata

from rulax.agents.base import join, split
from rulax.discovery.memory import Update, Updated, Updates
from rulax.learning.update import LearnerState
from rulax.types import Array, Experience, Metrics, PyTree

M = TypeVar("M")  # a member: everything that one agent carries from window to window
W = TypeVar("W")  # a window: what `live` leaves for `judge` and `fitness`
T = TypeVar("T")


def split_life_key(member: Any) -> tuple[Any, Array]:
    """Take a key out of a member that has a `life` with a `key`: the member, which goes on with another key, and the key."""
    key_life, key = jax.random.split(member.life.key)
    return member._replace(life=member.life._replace(key=key_life)), key


class Problem(NamedTuple, Generic[M, W]):
    """What is meta-learned, and what counts as good.

    Which estimators make sense depends on what a problem offers: `backprop` and `first_order` need a `judge`, `evolution` needs a
    `fitness`, `displacement` needs `end_params`. Where nothing is differentiated, `live` may be a whole lifetime.
    """

    enter: Callable[[PyTree, M], tuple[PyTree, M]]  # meta_params, member -> rule_params, member
    live: Callable[[Updates, PyTree, M], tuple[M, W, Metrics]]  # updates, rule_params, member -> member, window, metrics
    updates: Updates
    judge: Callable[[Updates, PyTree, M, W], tuple[Array, Metrics]] | None = None  # a loss [] to differentiate, and metrics
    fitness: Callable[[M, W, Metrics], Array] | None = None  # a score [], more is better; it need not be differentiable
    end_params: Callable[[M], PyTree] | None = None  # what the meta-parameters have become in this life
    split_key: Callable[[M], tuple[M, Array]] = split_life_key  # for estimators that draw random numbers


Estimator = Callable[[Problem, PyTree, Any], tuple[PyTree, Any, Metrics]]


def required(part: T | None, name: str) -> T:
    """A part of a problem that an estimator cannot do without."""
    if part is None:
        raise ValueError(f"this problem has no '{name}', which the estimator needs")
    return part


def outcome(problem: Problem[M, W], meta_params: PyTree, member: M) -> tuple[Array, tuple[M, Metrics]]:
    """Live one window: its loss (0 for a problem without a `judge`), the member after it, and metrics."""
    rule_params, entered = problem.enter(meta_params, member)
    after, window, metrics = problem.live(problem.updates, rule_params, entered)
    if problem.judge is None:
        return jnp.zeros(()), (after, metrics)
    loss, judged = problem.judge(problem.updates, rule_params, after, window)
    return loss, (after, metrics | judged | {"outer_loss": loss})


# -- by differentiation --------------------------------------------------------------------------------------------------------


def backprop(problem: Problem[M, W], meta_params: PyTree, member: M) -> tuple[PyTree, M, Metrics]:
    """Reverse mode through all updates of the window."""
    required(problem.judge, "judge")
    grads, (after, metrics) = jax.grad(lambda params: outcome(problem, params, member), has_aux=True)(meta_params)
    return grads, after, metrics


def first_order(problem: Problem[M, W], meta_params: PyTree, member: M) -> tuple[PyTree, M, Metrics]:
    """Reverse mode that ignores how each update's gradient depends on the updates before it."""
    return backprop(problem._replace(updates=problem.updates._replace(one=detached(problem.updates.one))), meta_params, member)


def detached(update: Update) -> Update:
    """The same update, whose derivative with respect to the agent's parameters is the identity."""

    def one_update(rule_params: PyTree, state: LearnerState, experience: Experience, key: Array) -> Updated:
        # The whole state: moments of the optimiser and the rule's memory depend on earlier updates as well.
        before = jax.lax.stop_gradient(state)
        updated = update(rule_params, before, experience, key)
        trained, carried = split(updated.state.params)
        parts = split(state.params)[0], split(before.params)[0], trained
        # The value is `new`, up to rounding. Its derivative is the identity with respect to the agent before (by `old`) and that of
        # this one update with respect to the rule (by `new`).
        trained = jax.tree.map(lambda old, data, new: old + (new - data), *parts)
        return updated._replace(state=updated.state._replace(params=join(trained, carried)))

    return one_update


# -- by perturbation -----------------------------------------------------------------------------------------------------------


def evolution(
    problem: Problem[M, W],
    meta_params: PyTree,
    member: M,
    *,
    pairs: int = 4,
    noise: float = 0.02,
    shaping: str = "ranks",
    at_once: int = 0,
) -> tuple[PyTree, M, Metrics]:
    """Antithetic evolution strategies (Salimans et al. 2017): -1/(2 P s) sum_i w_i e_i over P pairs of noise +-e_i.

    The same window is lived with every perturbation of the meta-parameters and with the same random numbers, so that fitness
    differs only by what the perturbation does. The member itself goes on with the unperturbed ones.

    Args:
        problem: with a `fitness`.
        meta_params: where the gradient is estimated.
        member: before the window.
        pairs: antithetic pairs, P.
        noise: standard deviation of the perturbation, s.
        shaping: the weights w: "ranks" of fitness (robust to its scale) or its "values" (unbiased for a quadratic).
        at_once: how many pairs live at the same time, if not all: the lives of the others begin when theirs are over.
    """
    fitness = required(problem.fitness, "fitness")
    # Split before any life is lived, so that all perturbations share the key that the member goes on with: common random numbers.
    member, key = problem.split_key(member)
    directions = draw_noise(meta_params, pairs, key)

    def fitness_of_pair(direction: PyTree) -> Array:
        def signed(sign: Any) -> Array:
            perturbed = jax.tree.map(lambda p, e: p + sign.astype(p.dtype) * noise * e, meta_params, direction)
            return fitness(*problem.live(problem.updates, *problem.enter(perturbed, member)))

        return jax.vmap(signed)(SIGNS)

    values = jnp.ravel(in_groups(fitness_of_pair, directions, at_once).T)
    grads = evolution_gradient(values, directions, noise, SHAPINGS[shaping])
    _, (after, metrics) = outcome(problem, meta_params, member)
    return grads, after, metrics | {"fitness": jnp.mean(values), "fitness_spread": jnp.std(values)}


def in_groups(one: Callable[[Any], Any], inputs: Any, at_once: int, shares: int = 1) -> Any:
    """`one` of each entry along the first axis of a tree: of all at once (0), or of so many at a time, which needs less memory.

    With several shares the axis is cut into as many parts, and each group takes so many of every part: no device waits for another.
    """
    number = jax.tree.leaves(inputs)[0].shape[0]
    if not at_once or at_once >= number // shares:
        return jax.vmap(one)(inputs)
    if shares == 1:
        return jax.lax.map(one, inputs, batch_size=at_once)
    parts = jax.tree.map(lambda x: x.reshape(shares, number // shares, *x.shape[1:]), inputs)
    done = jax.vmap(lambda part: in_groups(one, part, at_once))(parts)
    return jax.tree.map(lambda x: x.reshape(number, *x.shape[2:]), done)


def draw_noise(like: PyTree, number: int, key: Array) -> PyTree:
    """Standard normal noise, `number` times the shape of a tree: leaves [number, ...]."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, (number, *leaf.shape), leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def centred_ranks(fitness: Array) -> Array:
    """Ranks [M] from -0.5 (worst) to 0.5 (best); equal values share their mean rank, so that no difference gives no gradient."""
    fitness = jnp.where(jnp.isnan(fitness), -jnp.inf, fitness)  # a life that went wrong counts as the worst
    return (rankdata(fitness) - 1) / (fitness.shape[0] - 1) - 0.5


def centred_values(fitness: Array) -> Array:
    """Fitness [M] minus its mean, which antithetic noise would cancel anyway, but not without rounding errors."""
    finite = jnp.isfinite(fitness)
    fitness = jnp.where(finite, fitness, jnp.min(jnp.where(finite, fitness, jnp.inf)))  # a life that went wrong: the worst
    return fitness - jnp.mean(fitness)


SHAPINGS = {"ranks": centred_ranks, "values": centred_values}
SIGNS = np.array([1, -1], np.int8)  # of the two lives of a pair


def evolution_gradient(
    fitness: Array, noise: PyTree, deviation: float | Array, shape: Callable[[Array], Array] = centred_ranks
) -> PyTree:
    """The estimate from fitness [M] (more is better) and noise [M, ...]: a gradient to *descend*.

    Noise may be [M / 2, ...]: the second half of the fitness is then that of the opposite noise, antithetic pairs.
    """
    # Fitness is to rise and optimisers descend, hence the sign; M counts both halves of the pairs.
    weight, rows = shape(fitness), jax.tree.leaves(noise)[0].shape[0]
    if rows < fitness.shape[0]:
        # With the weights "values", whatever is even in the perturbation cancels exactly here.
        weight = weight[:rows] - weight[rows:]
    return jax.tree.map(lambda e: -jnp.tensordot(weight.astype(e.dtype), e, 1) / (deviation * fitness.shape[0]), noise)


# -- by where a life ends ------------------------------------------------------------------------------------------------------


def displacement(problem: Problem[M, W], meta_params: PyTree, member: M) -> tuple[PyTree, M, Metrics]:
    """Reptile (Nichol et al. 2018): meta-parameters move towards what a life makes of them."""
    end_params = required(problem.end_params, "end_params")
    _, (after, metrics) = outcome(problem, meta_params, member)
    return jax.tree.map(lambda start, end: start - end, meta_params, end_params(after)), after, metrics


ESTIMATORS: dict[str, Estimator] = {
    "backprop": backprop,
    "first_order": first_order,
    "evolution": evolution,
    "displacement": displacement,
}
