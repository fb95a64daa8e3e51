"""Analysis 4: what the targets rely on. Some inputs are blanked; how far do the targets move?"""

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
    """For each set of `parts` in `blanked`: KL(target || target with those parts at zero), averaged where `counts` [T, B].

    Logits at zero are a uniform prediction: what an agent says that knows nothing. Intervals are over streams.
    """
    found: dict[str, dict[str, Any]] = {}
    before = without(respond, operands, parts)
    streams = np.broadcast_to(np.arange(counts.shape[1]), counts.shape)
    for label, names in blanked.items():
        changes = jax.tree.map(np.asarray, apart(divergence)(before, without(respond, operands, parts, names)))
        found[label] = {name: over_groups(np.where(counts, values, np.nan), streams) for name, values in changes.items()}
    return found


def without(respond: Respond, operands: PyTree, parts: dict[str, PyTree], names: Sequence[str] = ()) -> dict[str, Array]:
    """The targets with the parts of these names at zero."""
    return compiled(respond)(operands, parts, {name: np.asarray(name not in names) for name in parts})


@functools.lru_cache(maxsize=4)
def compiled(respond: Respond) -> Callable[..., dict[str, Array]]:
    """The targets with some parts kept and the others at zero; compiled once, whatever is blanked."""

    def ask(operands: PyTree, parts: dict[str, PyTree], keep: dict[str, Array]) -> dict[str, Array]:
        kept = {name: jax.tree.map(lambda x, keep=keep[name]: jnp.where(keep, x, 0), part) for name, part in parts.items()}
        return respond(operands, kept)

    return jax.jit(ask)


def without_predictions(rule: UpdateRule, everywhere: bool) -> UpdateRule:
    """A discovered rule that does not see y and z: in making their own targets only, or `everywhere`, the policy's included.

    The two ablations of the paper (Oh et al. 2025, figure 4e): do predictions teach themselves, and do they drive the policy?
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
        # Behind a barrier: XLA would compute all that follows from zeros while it compiles, which takes it many seconds.
        nothing = {name: jax.lax.optimization_barrier(jnp.zeros_like(predictions[name])) for name in (Y, Z)}
        return {**predictions, **nothing}

    return batch._replace(online=zeroed(batch.online), slow=zeroed(batch.slow))
