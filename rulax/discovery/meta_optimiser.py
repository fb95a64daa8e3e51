"""The outer optimiser: one Adam per agent and then the mean of their steps, or one Adam on the mean of their gradients.

An agent whose gradient is not finite is left out of the mean, and its Adam's moments stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.discovery.settings import Discovery
from rulax.envs.wrappers import select
from rulax.learning.optimisers import learning_rate
from rulax.parallel.mesh import Layout
from rulax.settings import Learning
from rulax.types import Array, Metrics, PyTree


class MetaOptimiser(NamedTuple):
    """A pair of pure functions over the gradients [K, ...] of all K agents."""

    init: Callable[[PyTree, int], PyTree]  # (meta_params, number of agents) -> state
    step: Callable[[PyTree, PyTree, PyTree], tuple[PyTree, PyTree, Metrics]]  # (meta_params, state, grads [K]) -> the next, metrics


class OptimiserState(NamedTuple):
    """Adam's moments (one set, or one per agent) and the number of meta-steps, which determines the learning rate."""

    adam: PyTree
    count: Array  # type: ignore[assignment]  # [] int32


def make_meta_optimiser(settings: Discovery, total_steps: int) -> MetaOptimiser:
    """The optimiser that the settings describe; schedules end after `total_steps` meta-steps."""
    parts = [optax.clip_by_global_norm(settings.meta_clip)] if settings.meta_clip else []
    transform = optax.chain(*parts, optax.scale_by_adam())
    rate = learning_rate(Learning(learning_rate=settings.meta_learning_rate, schedule=settings.meta_schedule), total_steps)
    per_agent = settings.meta_optimiser == "per_agent"

    def init(meta_params: PyTree, agents: int) -> OptimiserState:
        adam = transform.init(meta_params)
        if per_agent:
            adam = jax.tree.map(lambda x: jnp.broadcast_to(x, (agents, *x.shape)) + jnp.zeros_like(x), adam)
        return OptimiserState(adam, jnp.zeros((), jnp.int32))

    def step(meta_params: PyTree, state: OptimiserState, grads: PyTree) -> tuple[PyTree, OptimiserState, Metrics]:
        norms = jax.vmap(optax.global_norm)(grads)
        # A norm is finite only if every element is.
        good = jnp.isfinite(norms)
        if per_agent:
            # Each Adam removes the scale of its own agent's gradients before the mean, so no environment dominates by its scale.
            directions, adam = jax.vmap(transform.update)(grads, state.adam)
            # The moments of a bad agent have taken its NaN in by now; they are put back.
            adam = jax.vmap(select)(good, adam, state.adam)
            direction = mean_of_good(directions, good)
        else:
            direction, adam = transform.update(mean_of_good(grads, good), state.adam)
            adam = select(jnp.any(good), adam, state.adam)
            # The mean of no agents is a zero gradient, on which Adam's momentum would still move.
            direction = jax.tree.map(lambda d: jnp.where(jnp.any(good), d, 0), direction)
        # By the count of meta-steps, which goes on even when Adam's own counts stay behind for bad agents.
        size = rate(state.count) if callable(rate) else rate
        change = jax.tree.map(lambda d: -size * d, direction)
        metrics = {
            "meta_gradient_norm_of_mean": optax.global_norm(mean_of_good(grads, good)),
            "meta_gradient_mean_of_norms": mean_of_good(norms, good),
            "meta_update_norm": optax.global_norm(change),
            "bad_agents": jnp.sum(~good),
        }
        return optax.apply_updates(meta_params, change), OptimiserState(adam, state.count + 1), metrics

    return MetaOptimiser(init, step)


def lie(settings: Discovery, layout: Layout) -> OptimiserState:
    """Where its state lies: moments that each agent has of its own by their agents, of all families one after the other."""
    return OptimiserState(layout.members if settings.meta_optimiser == "per_agent" else layout.everywhere, layout.everywhere)


def norm_of_mean(grads: PyTree) -> Array:
    """The norm [] of the mean of gradients [K, ...], without those that are not finite."""
    return optax.global_norm(mean_of_good(grads, jnp.isfinite(jax.vmap(optax.global_norm)(grads))))


def mean_of_good(values: PyTree, good: Array) -> PyTree:
    """Mean of leaves [K, ...] over the agents that are `good` [K]; 0 if there are none."""
    number = jnp.maximum(jnp.sum(good), 1)

    def mean(x: Array) -> Array:
        chosen = good.reshape(-1, *(1,) * (x.ndim - 1))
        # `where`, because a product with 0 would keep a NaN.
        return jnp.sum(jnp.where(chosen, x, 0), 0) / number.astype(x.dtype)

    return jax.tree.map(mean, values)
