"""From a gradient to a step: one chain for every rule, so that a rule recommends numbers and not code. Used by update.py.

The numbers are Python floats, compiled into the program; or, for the agents of a population that differ in them, arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.settings import Learning
from rulax.types import Array, PyTree

HORIZON = "horizon"  # an agent's own number of gradient steps until its schedule reaches zero; for all agents: `total_steps`


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


def learning_rate(learning: Learning, total_steps: int | Array) -> float | Array | Callable[[Array], Array]:
    """The step size as a function of the number of gradient steps made: a linear rise, then constant, or down to zero.

    Args:
        learning: `learning_rate` and `warmup_updates` may be numbers or arrays [].
        total_steps: the gradient step at which a linear or cosine schedule reaches zero, the rise included.

    Returns:
        A function of the count [] of gradient steps; or the rate itself where it never changes.
    """
    peak, rise = learning.learning_rate, learning.warmup_updates

    # Written out, because optax's schedules ask their horizon whether it is positive, which an array inside `jit` cannot answer.
    def rising(count: Array) -> Array:
        # `where` below evaluates both branches, so a rise of 0 must not divide by zero.
        steps = jnp.maximum(rise, 1)
        # Operation by operation what optax's linear schedule computes.
        return peak - peak * (1 - jnp.clip(count, 0, steps) / steps)

    def falling(count: Array) -> Array | float:
        if learning.schedule == "constant":
            return peak
        steps = jnp.maximum(total_steps - rise, 1)
        made = jnp.minimum(count, steps)
        return peak * (1 - made / steps if learning.schedule == "linear" else 0.5 * (1 + jnp.cos(jnp.pi * made / steps)))

    if is_used(rise):
        return lambda count: jnp.where(count < rise, rising(count), falling(count - rise))
    return peak if learning.schedule == "constant" else falling  # type: ignore[return-value]


def make_optimiser(
    learning: Learning, total_steps: int = 1, own: Collection[str] = ()
) -> optax.GradientTransformation | optax.GradientTransformationExtraArgs:
    """Clip the gradient's norm, Adam, clip its direction's elements, decay weights, learning rate.

    Args:
        learning: the numbers that are the same for every agent. What is 0 is left out of the program.
        total_steps: gradient steps of a whole run, over which the schedule falls.
        own: names of numbers that each agent has of its own (`learning/members.py` lists them). `update` then takes them by the
            keyword `hyperparameters`, a dict of arrays []; a limit of 0 still means no limit.
    """
    if not own:
        return make_chain(learning, total_steps)

    def chain_with(values: Mapping[str, Array]) -> optax.GradientTransformation:
        # optax's transformations close over their numbers, so the chain is made anew in each trace, around the agent's own arrays.
        numbers = {name: values[name] for name in own if name != HORIZON}
        return make_chain(dataclasses.replace(learning, **numbers), values.get(HORIZON, total_steps))  # type: ignore[arg-type]

    def init(params: PyTree) -> PyTree:
        return chain_with({name: jnp.ones(()) for name in own}).init(params)  # the state depends on no value

    def update(grads: PyTree, state: PyTree, params: PyTree = None, *, hyperparameters: Mapping[str, Array]) -> tuple:
        return chain_with(hyperparameters).update(grads, state, params)

    return optax.GradientTransformationExtraArgs(init, update)  # type: ignore[arg-type]


def make_chain(learning: Learning, total_steps: int | Array) -> optax.GradientTransformation:
    """The optimiser for numbers, or arrays [] in the place of some of them."""
    parts: list[optax.GradientTransformation] = []
    # Before Adam: a single outlier would otherwise stay in the second moment for about 1 / (1 - b2) steps.
    if is_used(learning.clip_gradient):
        parts.append(optax.clip_by_global_norm(limit(learning.clip_gradient)))
    parts.append(adam_direction(learning.adam_b1, learning.adam_b2, learning.adam_eps))
    if is_used(learning.clip_update):
        parts.append(optax.clip(limit(learning.clip_update)))
    # After Adam, so that decay is decoupled from the gradient's scale (Loshchilov and Hutter 2019), and after the clip, which
    # limits Adam's direction alone.
    if is_used(learning.weight_decay):
        parts.append(optax.add_decayed_weights(learning.weight_decay))
    parts.append(optax.scale_by_learning_rate(learning_rate(learning, total_steps)))
    return optax.chain(*parts)


def is_used(number: float | Array) -> bool:
    """Whether the program must contain what this number controls: a plain 0 leaves it out, an array may change at any time."""
    return isinstance(number, jax.Array) or number != 0


def limit(number: float | Array) -> float | Array:
    """A limit for clipping. An array's 0 means none: the largest number, as infinity times a zero cotangent would be NaN."""
    if not isinstance(number, jax.Array):
        return number
    return jnp.where(number > 0, number, jnp.finfo(number.dtype).max)
