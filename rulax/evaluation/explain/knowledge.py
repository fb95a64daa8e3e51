"""Analyses 1 and 2 of a recording: confidences, and the features and targets of the probes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from rulax.evaluation.explain.confidence import confidence_before
from rulax.evaluation.explain.probes import future, probe
from rulax.evaluation.explain.record import Observed
from rulax.evaluation.explain.reliance import Y, Z
from rulax.types import now

FURTHEST = 10  # steps ahead that are probed
LARGEST_OBSERVATION = 2048  # size up to which observations are probed as well


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logits [..., N] as logarithms of probabilities."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def entropy(logits: np.ndarray) -> np.ndarray:
    """Entropy [...] of the distribution given by logits [..., N]."""
    logs = log_softmax(logits)
    return -np.sum(np.exp(logs) * logs, -1)


def taken(values: np.ndarray, action: np.ndarray) -> np.ndarray:
    """The predictions of the action taken, [L, B, N], from those of every action, [L, B, A, N]."""
    return np.take_along_axis(values, action[..., None, None], -2)[..., 0, :]


def prediction_logits(observed: Observed) -> dict[str, np.ndarray]:
    """Logits [L, B, N] of the predictions whose confidence is measured: y, z of the action taken, policy."""
    online, action = now(observed.batch.online), observed.batch.experience.action
    found = {}
    if Y in online:
        found["y"] = online[Y]
    if Z in online:
        found["z"] = taken(online[Z], action)
    return {**found, "policy": online["policy"]}


def confidence_of(observed: Observed, seed: int = 0) -> dict[str, Any]:
    """Analysis 1 for y, z and the policy: minus the entropy, and the norm of the logits."""
    experience = observed.batch.experience
    reward, valid = experience.reward, experience.valid
    found: dict[str, Any] = {}
    for name, logits in prediction_logits(observed).items():
        # A softmax ignores what is added to all logits alike, and so should the norm.
        centred = logits - logits.mean(-1, keepdims=True)
        for measure, values in {"confidence": -entropy(logits), "norm": np.linalg.norm(centred, axis=-1)}.items():
            found.setdefault(name, {})[measure] = confidence_before(values, reward, observed.episode, valid, FURTHEST, seed)
    return found


def probes_of(observed: Observed, seed: int = 0) -> dict[str, Any]:
    """Analysis 2: future rewards and future policy entropies, from each prediction and from the observation itself."""
    experience, online = observed.batch.experience, now(observed.batch.online)
    valid = experience.valid
    policy, randomness = log_softmax(online["policy"]), entropy(online["policy"])
    features = prediction_logits(observed)
    features["policy"] = np.concatenate([policy, np.exp(policy), randomness[..., None]], -1)
    features["value"] = value_features(observed)
    # All parts of an observation that has several.
    seen = [np.asarray(part[:-1], float).reshape(*valid.shape, -1) for part in jax.tree.leaves(experience.observation)]
    if sum(part.shape[-1] for part in seen) <= LARGEST_OBSERVATION:
        features["observation"] = np.concatenate(seen, -1)
    rows = {name: part.reshape(valid.size, -1) for name, part in features.items()}
    wanted = {"reward": np.where(valid, experience.reward, np.nan), "entropy": np.where(valid, randomness, np.nan)}
    ahead = range(FURTHEST + 1)
    columns = [future(part, observed.episode, steps).reshape(-1) for part in wanted.values() for steps in ahead]
    found = probe(rows, np.stack(columns, 1), observed.episode.reshape(-1), seed)
    size = len(ahead)
    return {
        target: {name: scores[place * size : (place + 1) * size] for name, scores in found.items()}
        for place, target in enumerate(wanted)
    }


def value_features(observed: Observed) -> np.ndarray:
    """The value of the state, and that of each action if the agent predicts it, [L, B, 1 or 1 + A]."""
    state = observed.value[:-1, :, None]
    head = observed.batch.online.get("value")
    if head is None or head.ndim < 4:
        return state
    numbers = np.linspace(-1, 1, head.shape[-1])
    means = np.exp(log_softmax(now(head))) @ numbers  # [L, B, A] on a squashed scale: probes have nonlinear features anyway
    return np.concatenate([state, means], -1)
