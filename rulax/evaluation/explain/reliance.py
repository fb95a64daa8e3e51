"""Analysis 4: what the targets rely on. How far do they move when some of their inputs are blanked?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.evaluation.explain.divergence import divergence
from rulax.evaluation.explain.horizon import apart
from rulax.evaluation.explain.intervals import over_groups
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Metrics, PyTree

Y, Z = "state_prediction", "action_prediction"
Respond = Callable[[PyTree, dict[str, PyTree]], dict[str, Array]]  # (operands, parts) -> targets [T, B, N]


def reliance(
    respond: Respond,
    operands: PyTree,
    parts: dict[str, PyTree],
    blanked: Mapping[str, Sequence[str]],
    counts: np.ndarray,
) -> dict[str, dict[str, Any]]:
    """How far each target moves when some of its inputs are set to zero: KL(target || target without them).

    Logits of zero are a uniform prediction, that of an agent that knows nothing.

    Args:
        respond: computes the targets.
        operands: its other inputs.
        parts: the inputs that can be blanked, by name.
        blanked: by label, the names of the parts to blank together.
        counts: which steps are averaged over, [T, B] bool.

    Returns:
        By label and target, the mean with its interval over streams.
    """
    found: dict[str, dict[str, Any]] = {}
    before = without(respond, operands, parts)
    streams = np.broadcast_to(np.arange(counts.shape[1]), counts.shape)
    for label, names in blanked.items():
        changes = jax.tree.map(np.asarray, apart(divergence)(before, without(respond, operands, parts, names)))
        found[label] = {name: over_groups(np.where(counts, values, np.nan), streams) for name, values in changes.items()}
    return found


def without(respond: Respond, operands: PyTree, parts: dict[str, PyTree], names: Sequence[str] = ()) -> dict[str, Array]:
    """The targets with the named parts set to zero."""
    return with_some_blanked(respond)(operands, parts, {name: np.asarray(name not in names) for name in parts})


@functools.lru_cache(maxsize=4)
def with_some_blanked(respond: Respond) -> Callable[..., dict[str, Array]]:
    """The targets with some parts kept and the others set to zero; compiled once, whatever is blanked."""

    def ask(operands: PyTree, parts: dict[str, PyTree], keep: dict[str, Array]) -> dict[str, Array]:
        # A traced choice, so that every set of blanked parts runs the same compiled program.
        kept = {name: jax.tree.map(lambda x, keep=keep[name]: jnp.where(keep, x, 0), part) for name, part in parts.items()}
        return respond(operands, kept)

    return jax.jit(ask)


def without_predictions(rule: UpdateRule, everywhere: bool) -> UpdateRule:
    """A discovered rule that does not see y and z: only when it makes their own targets, or `everywhere`, the policy's included.

    The two ablations of the paper (Oh et al. 2025, figure 4e): do predictions bootstrap themselves, and do they drive the policy?
    """

    def targets(rule_params: PyTree, state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        blind, blind_state, metrics = rule.targets(rule_params, state, blank(batch))
        if everywhere:
            return blind, blind_state, metrics
        seeing, state, metrics = rule.targets(rule_params, state, batch)
        return {**seeing, Y: blind[Y], Z: blind[Z]}, state, metrics

    return rule._replace(targets=targets)


def blank(batch: Batch) -> Batch:
    """The batch with uniform y and z."""

    def zeroed(predictions: dict[str, Array]) -> dict[str, Array]:
        # The barrier stops XLA from folding everything that follows from zeros at compile time, which takes many seconds.
        nothing = {name: jax.lax.optimization_barrier(jnp.zeros_like(predictions[name])) for name in (Y, Z)}
        return {**predictions, **nothing}

    return batch._replace(online=zeroed(batch.online), slow=zeroed(batch.slow))
