"""Discovered rules without one of their parts, as in `disco103:no_yz`: the same weights in a smaller meta-network.

The remaining parts read zeros in place of what was removed, which is the same as dropping the weights that would have read it. A
rule without lifetime memory stays as it is for a new agent: the gate of an empty memory is a constant, which is multiplied into
the weights behind it. An ablated rule was not trained in this form, so it is not what discovery without that part would find.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from rulax.metanet.sizes import ABLATIONS, Sizes

Tensors = Mapping[str, np.ndarray]  # by readable path, as in rule files
LIFETIME = ("lifetime.", "gate.", "summary.")
PREDICTIONS = ("state_prediction.", "action_prediction.")
OF_PREDICTIONS = 14  # inputs made from y and z, see metanet/features.py


def ablate(tensors: Tensors, sizes: Sizes, ablation: str) -> tuple[Tensors, Sizes]:
    """The tensors and sizes of a rule without the part that `ablation`, a key of `ABLATIONS`, names."""
    switch = ABLATIONS[ablation]
    if not getattr(sizes, switch):
        raise ValueError(f"{ablation}: the rule was already discovered without this part")
    if switch == "lifetime":
        tensors = keep_memory_of_birth(tensors)
    elif switch == "predictions":
        inputs = np.arange(sizes.scalars, sizes.scalars + OF_PREDICTIONS)
        # Channels 3 and 4 are those of z and slow z, in the order of metanet/features.py.
        tensors = without_rows(tensors, sizes, inputs, channels=np.arange(3, 5))
        tensors = {path: tensor for path, tensor in tensors.items() if not any(part in path for part in PREDICTIONS)}
    elif switch == "value":
        # Ablations can be combined: without z, the channels of the value have moved up.
        first = 5 if sizes.predictions else 3
        tensors = without_rows(tensors, sizes, inputs=np.arange(4, 8), channels=np.arange(first, first + 3))
    off: dict[str, Any] = {switch: False}
    return tensors, dataclasses.replace(sizes, **off)


def keep_memory_of_birth(tensors: Tensors) -> Tensors:
    """Multiply the gate of an empty memory, which is its bias, into the weights that read the gated values."""
    gate = np.asarray(tensors["gate.bias"])[:, None]
    kept = {path: tensor for path, tensor in tensors.items() if not path.startswith(LIFETIME)}
    for path in (f"{head}weight" for head in PREDICTIONS):
        if path in kept:
            kept[path] = kept[path] * gate
    for path in ("policy_set.layers.0.weight_own", "policy_set.layers.0.weight_mean"):
        behind, others = np.split(np.asarray(kept[path]), [len(gate)])
        kept[path] = np.concatenate([behind * gate, others])
    return kept


def without_rows(tensors: Tensors, sizes: Sizes, inputs: np.ndarray, channels: np.ndarray) -> Tensors:
    """Drop the weights that read the given inputs (per step) and channels (per action)."""
    kept = dict(tensors)
    for path, tensor in tensors.items():
        if path == "trajectory.weight_input":
            kept[path] = np.delete(tensor, inputs, 0)
        elif path == "lifetime.pool.weight":  # its last input is the target of y
            of_target = [sizes.inputs + 1] if len(inputs) == OF_PREDICTIONS else []
            kept[path] = np.delete(tensor, [*inputs, *of_target], 0)
        elif "encoder.actions.layers.0.weight" in path:
            kept[path] = np.delete(tensor, channels, 0)
    return kept
