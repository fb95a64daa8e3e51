"""Rules that look at the choices of one dimension at a time: how they teach an agent whose actions have several.

Most rules ask a policy only for log-probabilities, entropies and divergences, which add up over dimensions (values/policies.py).
Others go through a set of choices: they take its largest value, or let a meta-network read it. A joint action has A^D of them.
So such a rule is shown every dimension as a stream of its own, with the same rewards, and the losses are added up.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Factored, Metrics, Predictions, PyTree, logits_of


def each_dimension(rule: UpdateRule) -> UpdateRule:
    """The same rule, which is also able to teach factored policies; where an action is one choice, nothing changes.

    To a dimension the others are part of the environment: its values are means over what they do, its importance ratios are its
    own. Predictions per state exist once and get one opinion per dimension: their loss is the mean, that of all others the sum.
    Metrics are means over dimensions.
    """

    def targets(rule_params: PyTree, rule_state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        if not isinstance(batch.experience.behaviour, Factored):
            return rule.targets(rule_params, rule_state, batch)
        dimensions, choices = batch.experience.behaviour.logits.shape[-2:]
        found = Batch(
            lives(batch.experience, dimensions),
            apart(rule, batch.online, dimensions, choices),
            apart(rule, batch.slow, dimensions, choices),
        )
        made, rule_state, metrics = rule.targets(rule_params, rule_state, found)
        # In the order in which they came, which `jax.tree.map` would change: losses are added up in it.
        return {name: x.reshape(len(x), -1, dimensions, *x.shape[2:]) for name, x in made.items()}, rule_state, metrics

    def loss(rule_params: PyTree, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        if not isinstance(experience.behaviour, Factored):
            return rule.loss(rule_params, taken, targets, experience)
        dimensions, choices = experience.behaviour.logits.shape[-2:]
        split = apart(rule, taken, dimensions, choices, share=1 / dimensions)
        merged = {name: merge(x) for name, x in targets.items()}
        losses, metrics = rule.loss(rule_params, split, merged, lives(experience, dimensions))
        return jnp.sum(losses.reshape(*experience.reward.shape, dimensions), -1), metrics

    return rule._replace(targets=targets, loss=loss)


def merge(values: Array) -> Array:
    """From [T, B, D, ...] to [T, B D, ...]."""
    return values.reshape(len(values), -1, *values.shape[3:])


def lives(experience: Experience, dimensions: int) -> Experience:
    """What happened, as each dimension lived it: its own choices, everything else as it was."""
    same = jax.tree.map(lambda x: jnp.repeat(x, dimensions, 1), experience._replace(memory=()))
    return same._replace(action=merge(experience.action), behaviour=merge(logits_of(experience.behaviour)))


def apart(rule: UpdateRule, predictions: Predictions, dimensions: int, choices: int, share: float = 1.0) -> Predictions:
    """Predictions of each dimension as those of a stream: per action its own; per state a copy, with that share of the gradient."""

    def copies(x: Array) -> Array:
        still = jax.lax.stop_gradient(x)
        return jnp.repeat(still + share * (x - still) if share != 1 else x, dimensions, 1)

    heads, found = rule.heads(choices), {}
    for name, values in predictions.items():
        if isinstance(values, Factored):
            found[name] = merge(values.logits)
        else:
            found[name] = merge(values) if heads[name].per_action else copies(values)
    return found
