"""How a rule's step compares with the policy gradient on the same data: cosines between gradients of the agent's parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rulax.agents.base import Agent
from rulax.evaluation.explain.record import Values
from rulax.learning.update import mean_loss, read, take_streams
from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Predictions, PyTree
from rulax.values.normalisation import masked_mean
from rulax.values.policies import log_probability
from rulax.values.returns import generalised_advantages, over_streams


def cosine(one: PyTree, other: PyTree) -> Array:
    """Cosine of the angle between two gradients; 0 if one of them is zero."""
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    product = sum(jnp.sum(a * b) for a, b in pairs)
    sizes = sum(jnp.sum(a * a) for a, _ in pairs) * sum(jnp.sum(b * b) for _, b in pairs)
    # Both branches are evaluated: the inner choice avoids a division by 0.
    return jnp.where(sizes > 0, product / jnp.sqrt(jnp.where(sizes > 0, sizes, 1)), 0)


def advantages(values: Values, batch: Batch, discount: float = 0.99, trace: float = 0.95) -> Array:
    """The weights of log pi(a) in actor-critic: generalised advantages from the agent's own value, [T, B].

    The experience is on-policy, so all importance ratios of V-trace are one and the two estimates are the same.
    """
    experience = batch.experience
    arrays = (experience.reward, discount * experience.discount, values(batch.online), experience.valid)
    return over_streams(generalised_advantages, *arrays, trace=trace)


def align(
    rule: UpdateRule, rule_params: PyTree, rule_state: PyTree, params: Agent, slow: Agent, experience: Experience, values: Values
) -> dict[str, Array]:
    """Cosines of the rule's gradient with that of -A log pi(a), averaged over valid steps, in the agent's parameters.

    `whole` is the rule's whole loss, `policy` only the part of it that passes through the policy head. `again` compares the policy
    gradients of two halves of the streams: noise alone lowers that cosine from one to this value.
    """
    reading = read(params, experience)
    batch = Batch(experience, params.predict(reading.embedding), slow.predict(slow.embed(experience)))
    targets, _, _ = rule.targets(rule_params, rule_state, batch)
    slopes = jax.grad(mean_loss, has_aux=True)(reading.taken, rule, rule_params, targets, experience)[0]
    weights = advantages(values, batch)
    (by_rule,) = reading.pull_back(slopes)
    (by_policy,) = reading.pull_back(policy_only(slopes))
    (plain,) = reading.pull_back(plain_slopes(reading.taken, weights, experience))
    half = experience.action.shape[1] // 2
    parts: list[PyTree] = []
    for index in (jnp.arange(half), jnp.arange(half, 2 * half)):
        part = read(params, take_streams(experience, index))
        parts += part.pull_back(plain_slopes(part.taken, weights[:, index], take_streams(experience, index)))
    return {"whole": cosine(by_rule, plain), "policy": cosine(by_policy, plain), "again": cosine(*parts)}


def policy_only(slopes: Predictions) -> Predictions:
    """The same slopes with those of all other heads set to zero."""
    return {name: slope if name == "policy" else jnp.zeros_like(slope) for name, slope in slopes.items()}


def plain_slopes(taken: Predictions, weights: Array, experience: Experience) -> Predictions:
    """The gradient of the mean of -A log pi(a) with respect to the predictions."""

    def loss(taken: Predictions) -> Array:
        return masked_mean(-weights * log_probability(taken["policy"], experience.action), experience.valid)

    return jax.grad(loss)(taken)
