"""Actions of several dimensions for rules that consider the choices of one dimension at a time.

Most rules only ask a policy for log-probabilities, entropies and divergences, which add up over dimensions (values/policies.py).
Others enumerate choices: they take the largest value, or a meta-network reads all of them. A joint action has A^D choices. So such
a rule sees every dimension as a stream of its own, with the same rewards, and the losses are added up.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Factored, Metrics, Predictions, PyTree, logits_of


def each_dimension(rule: UpdateRule) -> UpdateRule:
    """The same rule, made able to teach factored policies; where an action is one choice, nothing changes.

    To each dimension the others are part of the environment: its values average over what they do, and its importance ratios are
    its own. Predictions per state exist once but get one target per dimension: their loss is the mean over dimensions, that of all
    other predictions the sum. Metrics and priorities are means over dimensions.
    """

    def targets(rule_params: PyTree, rule_state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        if not isinstance(batch.experience.behaviour, Factored):
            return rule.targets(rule_params, rule_state, batch)
        dimensions = batch.experience.behaviour.logits.shape[-2]
        made, rule_state, metrics = rule.targets(rule_params, rule_state, as_streams(rule, batch))
        # `jax.tree.map` would sort the names, but losses are added up in the order of the targets, and rounding depends on it.
        return {name: x.reshape(len(x), -1, dimensions, *x.shape[2:]) for name, x in made.items()}, rule_state, metrics

    def loss(rule_params: PyTree, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        if not isinstance(experience.behaviour, Factored):
            return rule.loss(rule_params, taken, targets, experience)
        dimensions, choices = experience.behaviour.logits.shape[-2:]
        split = apart(rule, taken, dimensions, choices, share=1 / dimensions)
        merged = {name: merge(x) for name, x in targets.items()}
        losses, metrics = rule.loss(rule_params, split, merged, lives(experience, dimensions))
        return jnp.sum(losses.reshape(*experience.reward.shape, dimensions), -1), metrics

    def priority(targets: PyTree, batch: Batch) -> Array:
        assert rule.priority is not None
        if not isinstance(batch.experience.behaviour, Factored):
            return rule.priority(targets, batch)
        merged = {name: merge(x) for name, x in targets.items()}
        errors = rule.priority(merged, as_streams(rule, batch))
        return jnp.mean(errors.reshape(*batch.experience.reward.shape, -1), -1)

    return rule._replace(targets=targets, loss=loss, priority=priority if rule.priority else None)


def as_streams(rule: UpdateRule, batch: Batch) -> Batch:
    """The batch [T, B D] in which every dimension of a factored policy is a stream of its own."""
    dimensions, choices = logits_of(batch.experience.behaviour).shape[-2:]
    read = (apart(rule, predictions, dimensions, choices) for predictions in (batch.online, batch.slow))
    return Batch(lives(batch.experience, dimensions), *read)


def merge(values: Array) -> Array:
    """From [T, B, D, ...] to [T, B D, ...]."""
    return values.reshape(len(values), -1, *values.shape[3:])


def lives(experience: Experience, dimensions: int) -> Experience:
    """The experience [T, B D, ...] of all dimensions: each has its own choices, and shares everything else."""
    # Without the memory, which rules do not read and which has no axis of time.
    same = jax.tree.map(lambda x: jnp.repeat(x, dimensions, 1), experience._replace(memory=()))
    # `repeat` and `merge` agree on the order: the dimensions of one stream are neighbours.
    return same._replace(action=merge(experience.action), behaviour=merge(logits_of(experience.behaviour)))


def apart(rule: UpdateRule, predictions: Predictions, dimensions: int, choices: int, share: float = 1.0) -> Predictions:
    """Predictions [T, B D, ...] of each dimension as a stream: its own action heads, and copies of the state heads.

    Args:
        rule: whose heads tell which predictions are per action.
        predictions: [T, B, D, ...] per action, [T, B, ...] per state.
        dimensions: D.
        choices: per dimension.
        share: of the gradient that each copy of a state head passes back.
    """

    def copies(x: Array) -> Array:
        # The value of x but only a share of its gradient, so that D copies together pass back the mean.
        still = jax.lax.stop_gradient(x)
        return jnp.repeat(still + share * (x - still) if share != 1 else x, dimensions, 1)

    heads, found = rule.heads(choices), {}
    for name, values in predictions.items():
        if isinstance(values, Factored):
            found[name] = merge(values.logits)
        else:
            found[name] = merge(values) if heads[name].per_action else copies(values)
    return found
