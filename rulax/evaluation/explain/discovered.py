"""Analyses that need a discovered rule: its meta-network is evaluated again with some of its inputs changed."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from rulax.evaluation.explain.divergence import divergence
from rulax.evaluation.explain.horizon import apart, donors_of, reach
from rulax.evaluation.explain.inputs import TARGETS, answer, signals_of, take_apart
from rulax.evaluation.explain.intervals import over_groups
from rulax.evaluation.explain.knowledge import taken
from rulax.evaluation.explain.reliance import Y, Z, reliance, without
from rulax.evaluation.explain.saliency import saliency
from rulax.metanet.estimates import nothing_follows
from rulax.metanet.sizes import Constants, Sizes
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, PyTree, now

LIFETIME = "lifetime"


def horizon_of(rule: UpdateRule, rule_params: PyTree, state: PyTree, batch: Batch, head: str, hide_ends: bool, seed: int) -> Any:
    """How far back a change of y or z affects the targets. With `hide_ends` no episode ends, so that nothing limits the horizon."""
    if hide_ends:
        old: Any = batch.experience
        never = np.zeros_like(old.first)
        batch = batch._replace(
            experience=old._replace(discount=np.ones_like(old.discount), first=never, valid=np.ones_like(old.valid))
        )
    values: dict[str, PyTree] = {name: (batch.online[name], batch.slow[name]) for name in (Y, Z)}
    donors = {**values, head: donors_of(values[head], seed)}
    return reach(replaced(rule), (rule_params, state, batch), values, donors, np.asarray(ends_of(batch.experience)))


ends_of = jax.jit(lambda experience: nothing_follows(experience._replace(observation=(), memory=())))


# One function per rule, because compiled programs are cached by the identity of `respond`.
@functools.lru_cache(maxsize=4)
def replaced(rule: UpdateRule) -> Any:
    """The targets as a function of y and z, each a pair (online, slow)."""

    def respond(operands: PyTree, values: dict[str, tuple[Array, Array]]) -> dict[str, Array]:
        params, state, batch = operands
        online, slow = ({name: value[which] for name, value in values.items()} for which in (0, 1))
        changed = batch._replace(online={**batch.online, **online}, slow={**batch.slow, **slow})
        targets = rule.targets(params, state, changed)[0]
        return {name: targets[name] for name in TARGETS}

    return respond


def reliance_of(rule: UpdateRule, rule_params: PyTree, state: Any, batch: Batch) -> dict[str, Any]:
    """How much the targets change without each of their sources and, for comparison, how far they are from the predictions."""
    heads = tuple(name for name in (Y, Z, "value") if name in batch.online)
    parts: dict[str, PyTree] = {name: (batch.online[name], batch.slow[name]) for name in heads}
    parts["reward"] = batch.experience.reward
    if jax.tree.leaves(state.lifetime):
        parts[LIFETIME] = state.lifetime
    blanked = {name: (name,) for name in parts} | ({"both": (Y, Z)} if Y in parts else {})
    valid = np.asarray(batch.experience.valid)
    respond, operands = rebuilt(rule, heads), (rule_params, state, batch)
    found = reliance(respond, operands, parts, blanked, valid)
    return {"blanked": found, "move": distance_to_targets(without(respond, operands, parts), batch)}


@functools.lru_cache(maxsize=4)
def rebuilt(rule: UpdateRule, heads: tuple[str, ...]) -> Any:
    """The targets as a function of predictions, rewards and the state of the lifetime LSTM."""

    def respond(operands: PyTree, parts: dict[str, PyTree]) -> dict[str, Array]:
        params, state, batch = operands
        experience = batch.experience._replace(reward=parts["reward"])
        online = {**batch.online, **{name: parts[name][0] for name in heads}}
        slow = {**batch.slow, **{name: parts[name][1] for name in heads}}
        state = state._replace(lifetime=parts.get(LIFETIME, state.lifetime))
        targets = rule.targets(params, state, Batch(experience, online, slow))[0]
        return {name: targets[name] for name in TARGETS if name in targets}

    return respond


def distance_to_targets(targets: dict[str, Array], batch: Batch) -> dict[str, Any]:
    """KL(target || prediction) of policy, y and z (at the action taken): how far the rule asks the agent to move."""
    predicted = {name: now(batch.online[name]) for name in targets}
    if Z in predicted:
        predicted[Z] = taken(np.asarray(predicted[Z]), np.asarray(batch.experience.action))
    moves = jax.tree.map(np.asarray, apart(divergence)(targets, predicted))
    valid = np.asarray(batch.experience.valid)
    streams = np.broadcast_to(np.arange(valid.shape[1]), valid.shape)
    return {name: over_groups(np.where(valid, move, np.nan), streams) for name, move in moves.items()}


def saliency_of(network: Any, sizes: Sizes, constants: Constants, state: Any, batch: Batch, seed: int) -> dict[str, Any]:
    """Gradients of the targets with respect to each named group of inputs."""
    signals = jax.tree.map(np.asarray, signals_of(sizes, constants)(state.scales, batch))
    return saliency(answer(sizes.bootstrap), (network, state.lifetime, signals), take_apart(signals), jax.random.key(seed))
