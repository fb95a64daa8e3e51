"""Analysis 5: which inputs of the meta-network its targets are sensitive to, by gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.evaluation.explain.intervals import over_groups
from rulax.types import Array, PyTree

Respond = Callable[[PyTree, dict[str, PyTree]], dict[str, Array]]  # (operands, inputs) -> targets [T, B, N]
PROBES = 8  # random directions in the space of targets


def saliency(
    respond: Respond,
    operands: PyTree,
    inputs: dict[str, PyTree],
    key: Array,
    probes: int = PROBES,
) -> dict[str, dict[str, Any]]:
    """For each target and each group of inputs: the root mean square by which one target logit moves if the group is jittered.

        saliency = sqrt( sum over inputs j of the group, sum over outputs i of (J_ij deviation_j)^2 / number of outputs )

    with the Jacobian J of the targets (their mean over the last axis subtracted, which a softmax ignores) and each input's
    deviation over steps and streams, so that units cancel and an input that never varies has none. The sum over outputs is
    estimated with random signs (Hutchinson). Inputs are [T, B, ...] or [T+1, B, ...]; intervals are over streams.
    """
    rows = mean_squares(respond, probes)(operands, inputs, key)
    return {target: {name: root(over_groups(np.asarray(row))) for name, row in groups.items()} for target, groups in rows.items()}


@functools.lru_cache(maxsize=4)
def mean_squares(respond: Respond, probes: int) -> Callable[..., dict[str, dict[str, Array]]]:
    """A compiled function: for each target and group the mean square per stream, [B]."""

    def squares(operands: PyTree, inputs: dict[str, PyTree], key: Array) -> dict[str, dict[str, Array]]:
        deviations = jax.tree.map(lambda x: jnp.std(x, axis=(0, 1), keepdims=True), inputs)
        outputs, pull = jax.vjp(lambda inputs: respond(operands, inputs), inputs)
        return {target: of_one(target, outputs, pull, deviations, key) for target in outputs}

    def of_one(target: str, outputs: dict[str, Array], pull: Any, deviations: PyTree, key: Array) -> dict[str, Array]:
        shape, number = outputs[target].shape, outputs[target].size / outputs[target].shape[1]

        def one(key: Array) -> dict[str, Array]:
            signs = jax.random.rademacher(key, shape, outputs[target].dtype)
            asked = {name: jnp.zeros_like(output) for name, output in outputs.items()}
            # Centring is a symmetric projection, so pulling back centred signs differentiates the centred targets.
            (slopes,) = pull({**asked, target: signs - jnp.mean(signs, -1, keepdims=True)})
            scaled = jax.tree.map(lambda slope, deviation: jnp.square(slope * deviation), slopes, deviations)
            return {
                name: sum((per_stream(part) for part in jax.tree.leaves(group)), jnp.zeros(shape[1]))
                for name, group in scaled.items()
            }

        # One probe at a time: under `vmap` the backward passes of all of them would be in memory at once.
        return jax.tree.map(lambda x: jnp.mean(x, 0) / number, jax.lax.map(one, jax.random.split(key, probes)))

    return jax.jit(squares)


def per_stream(values: Array) -> Array:
    """Sum over all axes but that of the streams, [T, B, ...] -> [B]."""
    return jnp.sum(values, axis=tuple(axis for axis in range(values.ndim) if axis != 1))


def root(numbers: dict[str, Any]) -> dict[str, Any]:
    """The square root of a mean of squares and of its interval."""
    return {name: value if name == "count" or value is None else max(value, 0.0) ** 0.5 for name, value in numbers.items()}
