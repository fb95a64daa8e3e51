"""What the meta-gradient stores of each update. All strategies give the same gradient; they differ in memory and time.

* plain: everything, as reverse mode does by default.
* remat: per update only the agent before it, its batch and its gradient; the rest is recomputed in the backward pass. Saving
  the gradient avoids a second inner backward pass (Kemaev et al. 2025, MixFlow-MG).
* mixed: the derivative of the inner gradient is computed by one forward-mode pass through it, so that nothing of the inner
  backward pass is stored.
* both: remat and mixed.
* segments: remat, and only every few agents between updates are stored: about sqrt(N) of N updates are recomputed at a time.
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
    follow_targets,
    gradient,
    make_targets,
    mean_loss,
    read,
    taken_and_embedding,
)
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Metrics, PyTree

STRATEGIES = ("plain", "mixed", "remat", "both", "segments")  # from the fastest to the smallest
ONE_PASS = ("mixed", "both")  # they differentiate one gradient per update
SHORT = 4  # updates

Penalties = dict[str, Array]  # named scalars, differentiable with respect to the rule's parameters
Penalise = Callable[[PyTree, Batch, PyTree], Penalties]  # (targets, batch, the rule's memory before them) -> penalties


class Updated(NamedTuple):
    """The result of one update. Only `state` and `penalties` may be differentiated; metrics are for people to look at."""

    state: LearnerState
    metrics: Metrics
    penalties: Penalties = {}  # noqa: RUF012 (nobody writes to it)


Update = Callable[[PyTree, LearnerState, Experience, Array], Updated]  # (rule_params, state, experience, key)
Read = Callable[[LearnerState, PyTree], Experience]  # (state, batch in the form in which it was recorded) -> experience [T, N]


class Updates(NamedTuple):
    """How a window's updates are made and repeated."""

    one: Update
    strategy: str = "plain"


def no_penalties(targets: PyTree, batch: Batch, rule_state: PyTree) -> Penalties:
    """For an outer loss that does not look at targets."""
    del targets, batch, rule_state
    return {}


def as_it_is(state: LearnerState, recorded: Experience) -> Experience:
    """For batches that were recorded as experience."""
    del state
    return recorded


def make_updates(learner: Learner, strategy: str, penalise: Penalise = no_penalties, read_batch: Read = as_it_is) -> Updates:
    """A learner's updates, which store what the strategy says and penalise the targets of each.

    Args:
        learner: how an update is made.
        strategy: one of `STRATEGIES`.
        penalise: what the outer loss looks at.
        read_batch: turns a batch in a more compact form into experience; only that form is stored.
    """
    if strategy in ONE_PASS:
        if learner.epochs * learner.minibatches > 1:
            raise ValueError(f"memory '{strategy}' cannot differentiate several passes per update; use plain, remat or segments")
        learner = learner._replace(gradient=mixed_gradient)

    def one_update(rule_params: PyTree, state: LearnerState, experience: Experience, key: Array) -> Updated:
        experience = read_batch(state, experience)
        made = make_targets(learner, rule_params, state, experience)
        after, metrics = follow_targets(learner, rule_params, state, made, key)
        # Penalised inside the update: after the window, the targets of all updates would have to be stored for it.
        return Updated(after, metrics, penalise(made.targets, made.batch, state.rule_state))

    if strategy in ("remat", "both", "segments"):
        kept = jax.checkpoint_policies.save_only_these_names(INNER_GRADIENT)
        # The update runs inside a scan, where the compiler could not undo the recomputation: no barrier against that is needed.
        return Updates(jax.checkpoint(one_update, policy=kept, prevent_cse=False), strategy)
    return Updates(one_update, strategy)


def repeat(updates: Updates, one: Callable, carry: Any, inputs: Any, times: int) -> tuple[Any, Any]:
    """`jax.lax.scan(one, carry, inputs, times)`, storing what the strategy says.

    Args:
        updates: whose strategy is followed.
        one: (carry, input) -> carry, output.
        carry: what one update hands to the next.
        inputs: [times, ...] leaves, or None.
        times: updates, at least one.
    """
    if updates.strategy == "segments":
        return scan_in_segments(one, carry, inputs, times)
    if not 1 < times <= SHORT:
        return jax.lax.scan(one, carry, inputs, times)
    # The agent at the start of a window is data, so the first update needs no derivative with respect to it. In a short window
    # this saves a fifth of the work, which is worth compiling the update a second time.
    carry, first = one(carry, jax.tree.map(lambda x: x[0], inputs))
    carry, others = jax.lax.scan(one, carry, jax.tree.map(lambda x: x[1:], inputs), times - 1)
    return carry, jax.tree.map(lambda x, rest: jnp.concatenate([x[None], rest]), first, others)


def scan_in_segments(one: Callable, carry: Any, inputs: Any, times: int) -> tuple[Any, Any]:
    """A scan of scans; the backward pass recomputes one inner scan at a time."""
    length = segment_length(times)
    split = jax.tree.map(lambda x: x.reshape(times // length, length, *x.shape[1:]), inputs)

    # The update inside has a checkpoint of its own: within the segment at hand, one update at a time is recomputed.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def segment(carry: Any, inputs: Any) -> tuple[Any, Any]:
        return jax.lax.scan(one, carry, inputs, length)

    carry, outputs = jax.lax.scan(segment, carry, split, times // length)
    return carry, jax.tree.map(lambda x: x.reshape(times, *x.shape[2:]), outputs)


def segment_length(times: int) -> int:
    """The divisor of `times` that stores the fewest agents: one per segment, and one per update of the segment at hand."""
    # Only divisors, so that all segments have one shape. A prime number of updates has none between 1 and itself.
    divisors = [length for length in range(1, times + 1) if times % length == 0]
    return min(divisors, key=lambda length: (times // length + length, length))


def mixed_gradient(
    rule: UpdateRule, rule_params: PyTree, reading: Reading, targets: PyTree, experience: Experience
) -> tuple[PyTree, Metrics]:
    """As `learning.update.gradient`, with a derivative of its own: forward mode over the inner reverse mode.

    The outer backward pass needs v^T d(grad_params L) / dx for x in (params, targets, rule_params). Second derivatives commute, so
    this is the derivative of grad_x L along v in the parameters: one JVP of the gradient of L with respect to all three.
    Experience is data and the metrics carry no derivative.
    """

    # Everything that is to receive a derivative must be an argument: a custom VJP cannot see what it closes over.
    @jax.custom_vjp
    def inner(
        trained: Agent, targets: PyTree, rule_params: PyTree, carried: Agent, experience: Experience
    ) -> tuple[PyTree, Metrics]:
        # Read again: `reading.pull_back` closes over a forward pass, and a custom VJP cannot see what is closed over.
        return gradient(rule, rule_params, read(join(trained, carried), experience), targets, experience)

    def forward(*inputs: Any) -> tuple[Any, Any]:
        # The inputs are all that is kept; `backward` starts from them.
        return inner(*inputs), inputs

    def backward(inputs: Any, slopes: Any) -> tuple[PyTree, PyTree, PyTree, None, None]:
        trained, targets, rule_params, carried, experience = inputs

        def loss(trained: Agent, targets: PyTree, rule_params: PyTree) -> Array:
            taken, _ = taken_and_embedding(join(trained, carried), experience)
            return mean_loss(taken, rule, rule_params, targets, experience)[0]

        def whole(trained: Agent) -> tuple[PyTree, PyTree, PyTree]:
            return jax.grad(loss, argnums=(0, 1, 2))(trained, targets, rule_params)

        return *jax.jvp(whole, (trained,), (slopes[0],))[1], None, None  # what is carried, and experience, are data

    inner.defvjp(forward, backward)
    trained, carried = split(reading.params)
    return inner(trained, targets, rule_params, carried, experience)
