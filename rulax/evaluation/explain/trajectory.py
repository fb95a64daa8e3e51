"""The data from which the interactive page computes a rule's targets: a short recorded trajectory, and the network's weights.

On the page a reader edits the rewards, probabilities, values and ends of a few steps. y and z enter a meta-network through one
number per state (and action), so the page holds those numbers instead of the encoders; q enters through its mean.
"""

from __future__ import annotations

import base64
import functools
from typing import Any

import jax
import numpy as np

from rulax.evaluation.explain.alignment import advantages
from rulax.evaluation.explain.knowledge import log_softmax
from rulax.evaluation.explain.record import Observed, Snapshot
from rulax.evaluation.explain.reliance import Y, Z
from rulax.metanet.layers import encode_softmax
from rulax.metanet.network import MetaNetwork
from rulax.metanet.sizes import Constants, Sizes
from rulax.types import Batch, Predictions
from rulax.values.two_hot import Bins, expected_value

STEPS = 6
MOST_WEIGHTS = 1_000_000  # in one page: four bytes each, and a third more in base64


def pack(values: Any) -> dict[str, Any]:
    """An array of any shape as its shape and its float32 bytes in base64."""
    values = np.asarray(values, np.float32)
    # Little-endian, as the page's typed arrays read it.
    return {"shape": list(values.shape), "data": base64.b64encode(values.astype("<f4").tobytes()).decode()}


def pick(observed: Observed) -> tuple[int, int]:
    """First step and stream of the trajectory to show: the last steps of the episode with the largest final reward."""
    experience = observed.batch.experience
    ends, rewards = np.asarray(experience.discount) == 0, np.asarray(experience.reward)
    length, best = len(ends), None
    for stream in range(ends.shape[1]):
        for last in np.flatnonzero(ends[: length - 1, stream]):
            start = int(last) - STEPS + 1
            if start < 0 or observed.episode[start, stream] != observed.episode[last, stream]:
                continue
            if best is None or rewards[last, stream] > best[0]:
                best = (rewards[last, stream], start, stream)
    return (0, 0) if best is None else (best[1], best[2])


def part_of(batch: Any, start: int, stream: int) -> Any:
    """`STEPS` steps of one stream as a batch of its own, made on-policy: slow copy and behaviour have the agent's policy."""
    steps, states, one = slice(start, start + STEPS), slice(start, start + STEPS + 1), slice(stream, stream + 1)
    online, slow = ({name: value[states, one] for name, value in read.items()} for read in (batch.online, batch.slow))
    slow = {**slow, "policy": online["policy"]}
    old = batch.experience
    discount = old.discount[steps, one]
    first = np.concatenate([np.ones_like(old.first[:1, one]), discount == 0]).astype(old.first.dtype)  # `Level.EPISODE`
    fields = {name: getattr(old, name)[steps, one] for name in ("action", "reward", "valid")}
    experience = old._replace(observation=(), memory=(), discount=discount, first=first, behaviour=online["policy"][:-1], **fields)
    return Batch(experience._replace(valid=np.ones_like(experience.valid)), online, slow)


def scene(label: str, snapshot: Snapshot, observed: Observed, discovered: Any = None) -> dict[str, Any]:
    """One trajectory for the page. `discovered` is (network, sizes) for a rule whose meta-network the page evaluates."""
    start, stream = pick(observed)
    batch = part_of(observed.batch, start, stream)
    experience = batch.experience
    found: dict[str, Any] = {
        "label": label,
        "step": snapshot.step,
        "action": np.asarray(experience.action)[:, 0],
        "reward": np.asarray(experience.reward)[:, 0],
        "end": np.asarray(experience.discount)[:, 0] == 0,
        "policy": np.exp(log_softmax(batch.online["policy"]))[:, 0],
        "value": observed.value[start : start + STEPS + 1, stream],
        "advantages": moments_of(observed),
    }
    if discovered is not None:
        found |= fixed_inputs(discovered[0], discovered[1], snapshot, batch)
    return found


def moments_of(observed: Observed) -> list[float]:
    """Mean and deviation of the advantages over the whole recording: what PPO would standardise these few steps by."""
    value: Any = observed.value
    found = np.asarray(advantages(lambda _: value, observed.batch))
    found = found[np.asarray(observed.batch.experience.valid, bool)]
    return [float(found.mean()), float(found.std())] if found.size else [0.0, 1.0]


def fixed_inputs(network: MetaNetwork, sizes: Sizes, snapshot: Snapshot, batch: Any) -> dict[str, Any]:
    """The inputs of the meta-network that cannot be edited on the page."""
    found: dict[str, Any] = {"gate": None, "moments": None}
    state = snapshot.rule_state
    if network.gate is not None:
        found["gate"] = pack(state.lifetime.hidden @ np.asarray(network.gate.weight) + np.asarray(network.gate.bias))
    if sizes.value:
        found["moments"] = [float(x) for x in state.scales.advantage]
    for name, read in (("online", batch.online), ("slow", batch.slow)):
        found[name] = {key: np.asarray(value)[:, 0] for key, value in encoded(sizes)(network, read).items()}
    if sizes.predictions:
        found["logits"] = {"y": pack(batch.online[Y][:-1, 0]), "z": pack(batch.online[Z][:-1, 0])}
    return found


@functools.lru_cache(maxsize=4)
def encoded(sizes: Sizes) -> Any:
    """A compiled function: the scalars through which predictions enter, q [T+1, B, A], y [T+1, B] and z [T+1, B, A]."""

    def read(network: MetaNetwork, predictions: Predictions) -> dict[str, Any]:
        found = {}
        if sizes.value:
            found["q"] = expected_value(predictions["value"], Bins(sizes.bins, sizes.largest_value))
        if network.encoder.state_prediction is not None and network.encoder.action_prediction is not None:
            found["y"] = encode_softmax(predictions[Y], [network.encoder.state_prediction])[0]
            found["z"] = encode_softmax(predictions[Z], [network.encoder.action_prediction])[0]
        return found

    return jax.jit(read)


def weights(network: MetaNetwork, sizes: Sizes, constants: Constants) -> dict[str, Any] | None:
    """The weights of the part of the meta-network that the page runs; None if they are too many for a page."""
    parts: dict[str, Any] = {
        "lstm.input": network.trajectory.weight_input,
        "lstm.hidden": network.trajectory.weight_hidden,
        "lstm.bias": network.trajectory.bias,
        "policy.weight": network.policy.weight,
        "policy.bias": network.policy.bias,
    }
    for name, layers in (("actions", network.encoder.actions.layers), ("policy_set", network.policy_set.layers)):
        for index, layer in enumerate(layers):
            parts |= {
                f"{name}.{index}.own": layer.weight_own,
                f"{name}.{index}.mean": layer.weight_mean,
                f"{name}.{index}.bias": layer.bias,
            }
    if network.state_prediction is not None and network.action_prediction is not None:
        parts |= {"y.weight": network.state_prediction.weight, "y.bias": network.state_prediction.bias}
        parts |= {"z.weight": network.action_prediction.weight, "z.bias": network.action_prediction.bias}
    if sum(np.size(part) for part in parts.values()) > MOST_WEIGHTS:
        return None
    return {
        "arrays": {name: pack(part) for name, part in parts.items()},
        "actions": len(network.encoder.actions.layers),
        "policy_set": len(network.policy_set.layers),
        "hidden": sizes.hidden,
        "bootstrap": sizes.bootstrap,
        "value": sizes.value,
        "predictions": sizes.predictions,
        "discount": constants.discount,
        "trace": constants.trace,
        "decay": constants.moments_decay,
    }
