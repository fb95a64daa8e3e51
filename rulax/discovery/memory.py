"""What the meta-gradient keeps of each update. All strategies give the same gradient; they differ in memory and time.

* plain: everything, as reverse mode does by itself.
* remat: per update only the agent before it, its batch and its gradient; the rest is computed again on the way back. Keeping
  the gradient saves the second inner backward pass (Kemaev et al. 2025, MixFlow-MG).
* mixed: the gradient function's own derivative is one forward-mode pass through it, so the inner backward pass is not kept.
* both.
* segments: remat, and of the agents between updates only every few are kept: sqrt(N) of N updates at a time are lived again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rulax.agents.base import Agent, join, split
from rulax.learning.update import (
    INNER_GRADIENT,
    Learner,
    LearnerState,
    Reading,
    gradient,
    mean_loss,
    read,
    taken_and_embedding,
    update,
)
from rulax.rules.base import UpdateRule
from rulax.types import Array, Experience, Metrics, PyTree

Update = Callable[[PyTree, LearnerState, Experience, Array], tuple[LearnerState, Metrics]]
STRATEGIES = ("plain", "mixed", "remat", "both", "segments")  # from the fastest to the smallest
ONE_PASS = ("mixed", "both")  # they differentiate one gradient per update
SHORT = 4  # updates


class Updates(NamedTuple):
    """How a window's updates are made and repeated."""

    one: Update  # (rule_params, state, experience, key) -> state, metrics
    strategy: str = "plain"


def make_updates(learner: Learner, strategy: str) -> Updates:
    """A learner's updates, which store what the strategy says."""
    if strategy in ONE_PASS:
        if learner.epochs * learner.minibatches > 1:
            raise ValueError(f"memory '{strategy}' cannot differentiate several passes per update; use plain, remat or segments")
        learner = learner._replace(gradient=mixed_gradient)

    def one_update(rule_params: PyTree, state: LearnerState, experience: Experience, key: Array) -> tuple[LearnerState, Metrics]:
        return update(learner, rule_params, state, experience, key)

    if strategy in ("remat", "both", "segments"):
        kept = jax.checkpoint_policies.save_only_these_names(INNER_GRADIENT)
        # Inside a scan there is nothing to merge with.
        return Updates(jax.checkpoint(one_update, policy=kept, prevent_cse=False), strategy)
    return Updates(one_update, strategy)


def repeat(updates: Updates, one: Callable, carry: Any, inputs: Any, times: int) -> tuple[Any, Any]:
    """`jax.lax.scan(one, carry, inputs, times)`, which stores what the strategy says."""
    if updates.strategy == "segments":
        return scan_in_segments(one, carry, inputs, times)
    if not 1 < times <= SHORT:
        return jax.lax.scan(one, carry, inputs, times)
    # The agent that a window starts from is data, so the first update needs no derivative with respect to it. In a short window
    # that is a fifth of the work, worth a second copy of the update for the compiler.
    carry, first = one(carry, jax.tree.map(lambda x: x[0], inputs))
    carry, others = jax.lax.scan(one, carry, jax.tree.map(lambda x: x[1:], inputs), times - 1)
    return carry, jax.tree.map(lambda x, rest: jnp.concatenate([x[None], rest]), first, others)


def scan_in_segments(one: Callable, carry: Any, inputs: Any, times: int) -> tuple[Any, Any]:
    """A scan of scans, of which each inner one is computed again on the way back."""
    length = segment_length(times)
    split = jax.tree.map(lambda x: x.reshape(times // length, length, *x.shape[1:]), inputs)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def segment(carry: Any, inputs: Any) -> tuple[Any, Any]:
        return jax.lax.scan(one, carry, inputs, length)

    carry, outputs = jax.lax.scan(segment, carry, split, times // length)
    return carry, jax.tree.map(lambda x: x.reshape(times, *x.shape[2:]), outputs)


def segment_length(times: int) -> int:
    """The divisor of `times` for which the agents kept, one per segment and one per update of a segment, are fewest."""
    divisors = [length for length in range(1, times + 1) if times % length == 0]
    return min(divisors, key=lambda length: (times // length + length, length))


def mixed_gradient(rule: UpdateRule, reading: Reading, targets: PyTree, experience: Experience) -> tuple[PyTree, Metrics]:
    """As `learning.update.gradient`, with a derivative of its own: forward mode over the inner reverse mode.

    For a direction v, v^T d/d(params, targets) of grad L is the derivative of the *whole* gradient of L along v in the
    parameters, because second derivatives commute. Its metrics carry no derivative.
    """

    @jax.custom_vjp
    def inner(trained: Agent, targets: PyTree, carried: Agent, experience: Experience) -> tuple[PyTree, Metrics]:
        return gradient(rule, read(join(trained, carried), experience), targets, experience)

    def forward(*inputs: Any) -> tuple[Any, Any]:
        return inner(*inputs), inputs

    def backward(inputs: Any, slopes: Any) -> tuple[PyTree, PyTree, None, None]:
        trained, targets, carried, experience = inputs

        def loss(trained: Agent, targets: PyTree) -> Array:
            taken, _ = taken_and_embedding(join(trained, carried), experience)
            return mean_loss(taken, rule, targets, experience)[0]

        def whole(trained: Agent) -> tuple[PyTree, PyTree]:
            return jax.grad(loss, argnums=(0, 1))(trained, targets)

        return *jax.jvp(whole, (trained,), (slopes[0],))[1], None, None  # what is carried, and experience, are data

    inner.defvjp(forward, backward)
    trained, carried = split(reading.params)
    return inner(trained, targets, carried, experience)
