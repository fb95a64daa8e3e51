"""The separate value function of the reference's meta-training notebook: V-trace on a small network. Part of case 7 only.

It pairs an action with the reward and discount that arrived *before* it (`rewards[:-1]`): the reference really does this.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rulax.agents.layers import MLP
from rulax.rules.returns import over_streams, vtrace
from rulax.rules.values import Moments, log_probability, normalise, signed_hyperbolic, signed_parabolic, update_moments
from rulax.types import Array, PyTree

DISCOUNT, TRACE, LEARNING_RATE, CLIP = 0.99, 0.96, 1e-3, 1.0


class CriticState(NamedTuple):
    """Two MLPs in a row (torso and head), its optimiser, and moving averages of advantages and errors."""

    params: tuple[MLP, MLP]
    optimiser_state: PyTree
    advantage: Moments
    error: Moments


class CriticReading(NamedTuple):
    """What V-trace says with this critic."""

    value: Array  # [T+1, B]
    ratios: Array  # [T, B]
    target: Array  # [T, B]
    advantage: Array  # [T, B]
    normalised_advantage: Array  # [T, B]
    error: Array  # [T, B]
    normalised_error: Array  # [T, B]
    moments: tuple[Moments, Moments]  # after this reading


def raw_value(params: tuple[MLP, MLP], observations: Array) -> Array:
    """The network's output [T+1, B], in squashed space."""
    torso, head = params
    return head(torso(observations.reshape(*observations.shape[:2], -1)))[..., 0]


def judge(
    value: Array, state: tuple[Moments, Moments], rollout: dict, logits: Array, discount: float, trace: float
) -> CriticReading:
    """V-trace of values [T+1, B] for the policy `logits` [T+1, B, A]."""
    action = rollout["actions"][:-1]
    ratios = jnp.exp(log_probability(logits[:-1], action) - log_probability(rollout["behaviour_logits"][:-1], action))
    discounts = discount * (rollout["discounts"][:-1] > 0).astype(value.dtype)
    estimate = over_streams(vtrace, rollout["rewards"][:-1], discounts, value, ratios, trace=trace)
    error = estimate.targets - value[:-1]
    advantages, errors = update_moments(state[0], estimate.advantages), update_moments(state[1], error)
    normalised = normalise(estimate.advantages, advantages), normalise(error, errors, subtract_mean=False)
    moments = (advantages, errors)
    return CriticReading(value, ratios, estimate.targets, estimate.advantages, normalised[0], error, normalised[1], moments)


def read_critic(state: CriticState, rollout: dict, logits: Array) -> CriticReading:
    value = signed_parabolic(raw_value(state.params, rollout["observations"]))
    return judge(value, (state.advantage, state.error), rollout, logits, DISCOUNT, TRACE)


def scalar_loss(output: Array, target: Array, squashed: bool) -> Array:
    """Half the squared error [...] of a network that says one number, in squashed space or not."""
    target = jax.lax.stop_gradient(signed_hyperbolic(target) if squashed else target)  # a target is data
    return 0.5 * jnp.square(target - output)


def improve(optimiser: optax.GradientTransformation, state: CriticState, rollout: dict, logits: Array) -> CriticState:
    """One step of the critic on one rollout."""
    reading = read_critic(state, rollout, logits)

    def mean_loss(params: tuple[MLP, MLP]) -> Array:
        output = raw_value(params, rollout["observations"])[:-1]
        # The notebook adds the normalised error of the value to the network's output, which is in squashed space.
        return jnp.mean(scalar_loss(output, output + reading.normalised_error, squashed=False))

    grads = jax.grad(mean_loss)(state.params)
    updates, optimiser_state = optimiser.update(grads, state.optimiser_state, state.params)
    return CriticState(optax.apply_updates(state.params, updates), optimiser_state, *reading.moments)
