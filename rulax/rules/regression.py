"""Supervised learning as a rule: an example is a step whose observation is the input and whose reward is the label."""

from __future__ import annotations

import jax.numpy as jnp

from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.types import Array, Experience, Head

PREDICTION = "prediction"


def regression() -> UpdateRule:
    """Squared error of the prediction at each observation: loss = (prediction(x_t) - y_t)²."""

    def heads(num_actions):
        return {PREDICTION: Head(1)}

    def targets(rule_params, rule_state, batch):
        del rule_params
        return {"output": batch.experience.reward}, rule_state, {}

    def loss(rule_params, taken, targets, experience):
        del rule_params
        return jnp.square(taken[PREDICTION][..., 0] - targets["output"]), {}

    return UpdateRule(heads, no_params, no_state, targets, loss)


def as_experience(inputs: Array, outputs: Array) -> Experience:
    """Examples, inputs [T, F] and outputs [T], as the experience of one stream whose actions mean nothing."""
    shape = (outputs.shape[0], 1)
    return Experience(
        # A trajectory has one observation more than steps; the last one is never learned from.
        observation=jnp.concatenate([inputs, inputs[-1:]])[:, None],
        action=jnp.zeros(shape, jnp.int32),
        reward=outputs[:, None],
        discount=jnp.ones(shape, outputs.dtype),
        first=jnp.zeros((shape[0] + 1, 1), jnp.int8),
        valid=jnp.ones(shape, bool),
        behaviour=jnp.zeros((*shape, 1), outputs.dtype),
        memory=(),
    )
