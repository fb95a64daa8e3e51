"""From a gradient to a step: one chain for every rule, so that a rule recommends numbers and not code. Used by update.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.settings import Learning
from rulax.types import Array, PyTree


class AdamState(NamedTuple):
    """Adam's memory."""

    count: Array  # type: ignore[assignment]  # [] steps made
    mean: PyTree  # of gradients
    square: PyTree  # of squared gradients


def adam_direction(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> optax.GradientTransformation:
    """Adam (Kingma and Ba, 2015): m / (sqrt(v) + eps) with both moments corrected for their start at zero.

    To an outer gradient the denominator is a constant: the derivative of 1/sqrt(v) explodes where gradients are small.
    """

    def init(params: PyTree) -> AdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return AdamState(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(grads: PyTree, state: AdamState, params: PyTree = None) -> tuple[PyTree, AdamState]:
        del params
        count = state.count + 1
        mean = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, grads, state.mean)
        square = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * g * g, grads, state.square)

        def direction(m: Array, v: Array) -> Array:
            steps = count.astype(m.dtype)
            denominator = jnp.sqrt(v / (1 - b2**steps)) + eps
            return m / (1 - b1**steps) / jax.lax.stop_gradient(denominator)  # protects the outer gradient, see above

        return jax.tree.map(direction, mean, square), AdamState(count, mean, square)

    return optax.GradientTransformation(init, update)


def learning_rate(learning: Learning, total_steps: int) -> float | Callable[[Array], Array]:
    """The step size as a function of the number of gradient steps: a rise, then constant, a line or a cosine to zero."""
    peak, rise = learning.learning_rate, learning.warmup_updates
    fall = max(total_steps - rise, 1)
    if learning.schedule == "linear":
        after = optax.linear_schedule(peak, 0.0, fall)
    elif learning.schedule == "cosine":
        after = optax.cosine_decay_schedule(peak, fall)
    else:
        after = optax.constant_schedule(peak)
    if rise:
        return optax.join_schedules([optax.linear_schedule(0.0, peak, rise), after], [rise])
    return peak if learning.schedule == "constant" else after


def make_optimiser(learning: Learning, total_steps: int = 1) -> optax.GradientTransformation:
    """Clip the gradient's norm, Adam, clip its direction's elements, decay weights, learning rate; what is set to 0 is left out."""
    parts: list[optax.GradientTransformation] = []
    if learning.clip_gradient:
        parts.append(optax.clip_by_global_norm(learning.clip_gradient))
    parts.append(adam_direction(learning.adam_b1, learning.adam_b2, learning.adam_eps))
    if learning.clip_update:
        parts.append(optax.clip(learning.clip_update))
    if learning.weight_decay:
        parts.append(optax.add_decayed_weights(learning.weight_decay))
    parts.append(optax.scale_by_learning_rate(learning_rate(learning, total_steps)))
    return optax.chain(*parts)
