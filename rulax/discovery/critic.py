"""The critic of discovery: a value function per agent that judges validation experience and that no agent ever sees.

It is trained by V-trace beside the agent. Its advantages, normalised by moving averages over the agent's life, weigh the policy
gradient in outer_loss.py; both it and its advantages are data to the meta-gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.agents.layers import MLP
from rulax.discovery.settings import Discovery
from rulax.learning.optimisers import make_optimiser
from rulax.settings import Learning
from rulax.types import Array, Experience, Policy, PyTree, now
from rulax.values.normalisation import Moments, masked_mean, normalise, start_moments, update_moments
from rulax.values.policies import log_probability
from rulax.values.returns import over_streams, vtrace
from rulax.values.two_hot import signed_parabolic


class CriticState(NamedTuple):
    """A value network, its optimiser, and moving averages over the agent's life."""

    params: eqx.Module  # observations [..., D] -> squashed value [..., 1]
    optimiser_state: PyTree
    advantage: Moments
    error: Moments


class Judgement(NamedTuple):
    """What V-trace says of experience, with this critic."""

    value: Array  # [T+1, B]
    ratios: Array  # [T, B]  policy / behaviour
    target: Array  # [T, B]
    advantage: Array  # [T, B]
    normalised_advantage: Array  # [T, B]
    error: Array  # [T, B]  target - value
    normalised_error: Array  # [T, B]
    moments: tuple[Moments, Moments]  # of advantages and errors, this experience included


def critic_optimiser(settings: Discovery) -> optax.GradientTransformation:
    """Adam with its elements clipped, as for agents."""
    return make_optimiser(Learning(learning_rate=settings.critic_learning_rate, clip_update=1.0))


def start_critic(settings: Discovery, observation: jax.ShapeDtypeStruct, key: Array) -> CriticState:
    """A critic that knows nothing."""
    inputs = int(np.prod(observation.shape))
    params = MLP(key, (inputs, *settings.critic_hidden, 1))
    return CriticState(params, critic_optimiser(settings).init(params), start_moments(), start_moments())


def squashed_value(params: eqx.Module, experience: Experience) -> Array:
    """The network's output [T+1, B], in squashed space."""
    leading = experience.first.shape
    observation = experience.observation.reshape(*leading, -1)
    dtype = jax.tree.leaves(params)[0].dtype
    return params(observation.astype(dtype))[..., 0]  # type: ignore[operator]


def judge(settings: Discovery, critic: CriticState, experience: Experience, policy: Policy) -> Judgement:
    """V-trace for the policy whose logits at the T steps are given, [T, B, A]."""
    value = signed_parabolic(squashed_value(critic.params, experience))
    return judge_by(settings, (critic.advantage, critic.error), value, experience, policy)


def judge_by(
    settings: Discovery, moments: tuple[Moments, Moments], value: Array, experience: Experience, policy: Policy
) -> Judgement:
    """The same from values [T+1, B] and the moments of advantages and errors so far."""
    action, valid = experience.action, experience.valid
    ratios = jnp.exp(log_probability(policy, action) - log_probability(experience.behaviour, action))
    discounts = settings.critic_discount * experience.discount.astype(value.dtype)
    rewards = experience.reward.astype(value.dtype)
    estimate = over_streams(vtrace, rewards, discounts, value, ratios, valid, trace=settings.critic_trace)
    error = estimate.targets - now(value)
    moments = (update_moments(moments[0], estimate.advantages, valid), update_moments(moments[1], error, valid))
    return Judgement(
        value=value,
        ratios=ratios,
        target=estimate.targets,
        advantage=estimate.advantages,
        normalised_advantage=normalise(estimate.advantages, moments[0]),
        error=error,
        normalised_error=normalise(error, moments[1], subtract_mean=False),
        moments=moments,
    )


def improve(settings: Discovery, critic: CriticState, experience: Experience, policy: Policy) -> CriticState:
    """One step of the critic: its output moves by the normalised error, so that the scale of rewards does not matter."""
    judgement = judge(settings, critic, experience, policy)

    def mean_loss(params: eqx.Module) -> Array:
        output = now(squashed_value(params, experience))
        return masked_mean(squared_loss(output, output + judgement.normalised_error), experience.valid)

    grads = jax.grad(mean_loss)(critic.params)
    updates, optimiser_state = critic_optimiser(settings).update(grads, critic.optimiser_state, critic.params)
    return CriticState(optax.apply_updates(critic.params, updates), optimiser_state, *judgement.moments)


def squared_loss(output: Array, target: Array) -> Array:
    """Half the squared error [...]; a target is data, even if it was made from the output."""
    return 0.5 * jnp.square(jax.lax.stop_gradient(target) - output)
