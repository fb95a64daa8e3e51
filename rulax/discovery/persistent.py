"""Persistent evolution strategies (Vicol et al. 2021): evolution over whole lives, one window at a time, without truncation bias.

Evolution that perturbs the meta-parameters for one window only sees what they do within it: what they did to the agent in earlier
windows counts as given. Here every perturbed life goes on, from window to window, under a new perturbation each time, and what it
earns is credited to the *sum* of all its perturbations so far, because all of them had a part in it. So the gradient of a window
is, in expectation, that of its outcome with respect to meta-parameters that had been the same since the life began.

The perturbed lives and the sums are state of the estimator: `Particles`, which begin anew with the member's life.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp

from rulax.discovery.estimators import SHAPINGS, SIGNS, M, Problem, W, draw_noise, evolution_gradient, in_groups, outcome, required
from rulax.types import Array, Metrics, PyTree


class Particles(NamedTuple, Generic[M]):
    """A member, and the lives that began as copies of it."""

    member: M  # goes on with the unperturbed meta-parameters
    perturbed: M  # [P, 2, ...] the two lives of each pair
    sums: PyTree  # [P, ...] of the perturbations of each pair's first life since it began, in standard deviations


def begin_particles(member: M, meta_params: PyTree, pairs: int) -> Particles[M]:
    """Copies of a member at the beginning of its life; of `meta_params` only the shapes are read."""
    copies = jax.tree.map(lambda x: jnp.broadcast_to(x, (pairs, len(SIGNS), *x.shape)), member)
    return Particles(member, copies, jax.tree.map(lambda p: jnp.zeros((pairs, *p.shape), p.dtype), meta_params))


def pes(
    problem: Problem[M, W],
    meta_params: PyTree,
    particles: Particles[M],
    *,
    noise: float = 0.02,
    shaping: str = "values",
    at_once: int = 0,
) -> tuple[PyTree, Particles[M], Metrics]:
    """The next window of every life: -1/(2 P s) sum_i w_i x_i, where x_i is the sum of the noise +-e of life i since it began.

    All lives begin with the same random numbers and use as many of them, so that they stay the same for all.

    Args:
        problem: with a `fitness`, of one window.
        meta_params: where the gradient is estimated; they may change between windows.
        particles: before the window.
        noise: standard deviation of each window's perturbation, s.
        shaping: the weights w: "values" of fitness (without bias) or its "ranks" among the lives (robust, but no longer unbiased).
        at_once: how many pairs live at the same time, if not all.
    """
    fitness = required(problem.fitness, "fitness")
    member, key = problem.split_key(particles.member)
    fresh = draw_noise(meta_params, jax.tree.leaves(particles.sums)[0].shape[0], key)

    def lived(pair: tuple[M, PyTree]) -> tuple[M, Array]:
        def signed(life: M, sign: Any) -> tuple[M, Array]:
            perturbed = jax.tree.map(lambda p, e: p + sign.astype(p.dtype) * noise * e, meta_params, pair[1])
            after, window, metrics = problem.live(problem.updates, *problem.enter(perturbed, life))
            return after, fitness(after, window, metrics)

        return jax.vmap(signed)(pair[0], SIGNS)

    perturbed, values = in_groups(lived, (particles.perturbed, fresh), at_once)
    # The new noise counts already: it is part of what led to this window's outcome.
    sums = jax.tree.map(jnp.add, particles.sums, fresh)
    fitnesses = jnp.ravel(values.T)
    grads = evolution_gradient(fitnesses, sums, noise, SHAPINGS[shaping])
    _, (after, metrics) = outcome(problem, meta_params, member)
    shown = {"fitness": jnp.mean(fitnesses), "fitness_spread": jnp.std(fitnesses)}
    return grads, Particles(after, perturbed, sums), metrics | shown


def pes_within(problem: Problem[Any, W], meta_params: PyTree, member: Any, **options: Any) -> tuple[PyTree, Any, Metrics]:
    """`pes` for a member of discovery's population, which has the rest of its particles in its field `estimator`."""
    alone = member._replace(estimator=())
    grads, after, metrics = pes(problem, meta_params, Particles(alone, *member.estimator), **options)
    return grads, after.member._replace(estimator=(after.perturbed, after.sums)), metrics
