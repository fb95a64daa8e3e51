"""The reference's names for Disco103's tensors beside ours: the table by which its files are read and written.

Used by rules/pretrained.py. The reference stores every layer as `w` [inputs, outputs] and `b`. Where we keep a matrix in two parts
(an LSTM's input and hidden rows, an action set's own and mean rows), its `w` is the two stacked along the first axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rulax.metanet.sizes import Sizes
from rulax.rules.rule_files import RuleFileError


class Layer(NamedTuple):
    """One of our layers, and the parts of its matrix."""

    path: str
    parts: tuple[str, ...] = ("weight",)
    convolution: bool = False  # the reference writes it [1, inputs, outputs]


LSTM_PARTS = ("weight_input", "weight_hidden")
SET_PARTS = ("weight_own", "weight_mean")
LIFETIME = "lstm/~/meta_lstm/~unroll"

TABLE = {
    "lstm/linear": Layer("gate"),
    "lstm/linear_1": Layer("summary"),
    "lstm/linear_2": Layer("state_prediction"),
    "lstm/linear_3": Layer("action_prediction"),
    "lstm/linear_4": Layer("policy"),
    "lstm/lstm/linear": Layer("trajectory", LSTM_PARTS),
    "lstm/mlp/~/linear_0": Layer("encoder.state_prediction.layers.0"),
    "lstm/mlp/~/linear_1": Layer("encoder.state_prediction.layers.1"),
    "lstm/mlp_1/~/linear_0": Layer("encoder.action_prediction.layers.0"),
    "lstm/mlp_1/~/linear_1": Layer("encoder.action_prediction.layers.1"),
    "lstm/sequential/conv1_d": Layer("encoder.actions.layers.0", SET_PARTS, True),
    "lstm/sequential/conv1_d_1": Layer("encoder.actions.layers.1", SET_PARTS, True),
    "lstm/sequential_1/conv1_d": Layer("policy_set.layers.0", SET_PARTS, True),
    f"{LIFETIME}/lstm/linear": Layer("lifetime.memory", LSTM_PARTS),
    f"{LIFETIME}/mlp/~/linear_0": Layer("lifetime.encoder.state_prediction.layers.0"),
    f"{LIFETIME}/mlp/~/linear_1": Layer("lifetime.encoder.state_prediction.layers.1"),
    f"{LIFETIME}/mlp_1/~/linear_0": Layer("lifetime.encoder.action_prediction.layers.0"),
    f"{LIFETIME}/mlp_1/~/linear_1": Layer("lifetime.encoder.action_prediction.layers.1"),
    f"{LIFETIME}/mlp_2/~/linear_0": Layer("lifetime.pool"),
    f"{LIFETIME}/sequential/conv1_d": Layer("lifetime.encoder.actions.layers.0", SET_PARTS, True),
    f"{LIFETIME}/sequential/conv1_d_1": Layer("lifetime.encoder.actions.layers.1", SET_PARTS, True),
}


def sizes_from_haiku(file: str, tensors: Mapping[str, np.ndarray]) -> Sizes:
    """The sizes of a rule in the reference's format, from the shapes of a few tensors; the rest is checked later."""

    def width(name: str) -> int:
        return _bias(file, tensors, name).shape[0]

    return Sizes(
        prediction_size=width("lstm/linear_2"),
        hidden=width("lstm/linear"),
        embedding=width("lstm/mlp/~/linear_0"),
        action_channels=(width("lstm/sequential/conv1_d"), width("lstm/sequential/conv1_d_1")),
        policy_channels=(width("lstm/sequential_1/conv1_d"),),
        # An LSTM's bias holds four gates side by side.
        lifetime_hidden=width(f"{LIFETIME}/lstm/linear") // 4,
        lifetime_embedding=width(f"{LIFETIME}/mlp_2/~/linear_0"),
    )


def shapes_in_haiku(ours: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The shapes of the reference's tensors, from those of ours."""
    shapes: dict[str, tuple[int, ...]] = {}
    for module, layer in TABLE.items():
        parts = [ours[f"{layer.path}.{part}"] for part in layer.parts]
        matrix = (sum(part[0] for part in parts), parts[0][1])
        shapes[f"{module}/w"] = (1, *matrix) if layer.convolution else matrix
        shapes[f"{module}/b"] = ours[f"{layer.path}.bias"]
    return shapes


def from_haiku(tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Tensors under our names, from tensors whose shapes have been checked against ours, `shapes`."""
    ours: dict[str, np.ndarray] = {}
    for module, layer in TABLE.items():
        weight = tensors[f"{module}/w"][0] if layer.convolution else tensors[f"{module}/w"]
        cuts = np.cumsum([shapes[f"{layer.path}.{part}"][0] for part in layer.parts])[:-1]
        pieces = zip(layer.parts, np.split(weight, cuts), strict=True)
        ours |= {f"{layer.path}.{part}": piece for part, piece in pieces}
        ours[f"{layer.path}.bias"] = tensors[f"{module}/b"]
    return ours


def to_haiku(file: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors under the reference's names, which only a rule with exactly the parts of Disco103 has."""
    theirs, used = {}, set()
    for module, layer in TABLE.items():
        paths = [f"{layer.path}.{part}" for part in layer.parts]
        used |= {*paths, f"{layer.path}.bias"}
        if not used <= set(tensors):
            raise RuleFileError(f"{file}: the reference's format needs '{layer.path}', which this rule lacks; use .safetensors")
        weight = np.concatenate([tensors[path] for path in paths])
        theirs[f"{module}/w"] = weight[None] if layer.convolution else weight
        theirs[f"{module}/b"] = tensors[f"{layer.path}.bias"]
    for path in set(tensors) - used:
        raise RuleFileError(f"{file}: the reference's format has no place for '{path}'; use .safetensors")
    return theirs


def _bias(file: str, tensors: Mapping[str, np.ndarray], module: str) -> np.ndarray:
    bias = tensors.get(f"{module}/b")
    if bias is None:
        raise RuleFileError(f"{file}: tensor '{module}/b' is missing")
    if bias.ndim != 1 or not bias.size:
        raise RuleFileError(f"{file}: tensor '{module}/b' has shape {bias.shape}, but it must have one axis")
    return bias
