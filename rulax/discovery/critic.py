"""The critic of discovery: one value function per agent, which judges validation experience and which no agent ever sees.

It is trained by V-trace beside the agent. Its advantages, normalised by moving averages over the agent's life, weight the policy
gradient in outer_loss.py; the critic and its advantages are data to the meta-gradient.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from rulax.agents.layers import Linear
from rulax.agents.torsos import Numbers, Torso, make_torso
from rulax.discovery.settings import Discovery
from rulax.learning.optimisers import make_optimiser
from rulax.settings import Learning, Network
from rulax.types import Array, Experience, Metrics, Policy, PyTree, now
from rulax.values.normalisation import Moments, masked_mean, normalise, start_moments, update_moments
from rulax.values.policies import log_probability
from rulax.values.returns import over_streams, vtrace
from rulax.values.two_hot import signed_parabolic


class Critic(eqx.Module):
    """A value network without memory: a torso that reads the same observations as agents do, and a linear head."""

    torso: Torso
    head: Linear

    def __call__(self, observation: PyTree) -> Array:
        """Squashed values [...] of observations [..., *shape] (an array, or a dictionary of arrays)."""
        return self.head(self.torso(observation))[..., 0]


class CriticState(NamedTuple):
    """A value network, its optimiser, and moving averages over the agent's life."""

    params: Critic
    optimiser_state: PyTree
    advantage: Moments
    error: Moments


class Judgement(NamedTuple):
    """The critic's V-trace estimates for one piece of experience."""

    value: Array  # [T+1, B]
    ratios: Array  # [T, B]  policy / behaviour
    target: Array  # [T, B]
    advantage: Array  # [T, B]
    normalised_advantage: Array  # [T, B]
    error: Array  # [T, B]  target - value
    normalised_error: Array  # [T, B]
    moments: tuple[Moments, Moments]  # of advantages and errors, this experience included


def critic_optimiser(settings: Discovery) -> optax.GradientTransformation:
    """Adam whose steps are clipped element by element, as for agents."""
    return make_optimiser(Learning(learning_rate=settings.critic_learning_rate, clip_update=1.0))


def start_critic(settings: Discovery, network: Network, observation: PyTree, key: Array) -> CriticState:
    """An untrained critic.

    Args:
        settings: the fields `critic_*` give its sizes and its initialisation.
        network: the agents' network; images, symbols and dictionaries are read by the same kind of torso.
        observation: shape and dtype of one observation, or a dictionary of them.
        key: randomness of the initial weights.
    """
    own = dataclasses.replace(
        network, hidden=settings.critic_hidden, activation="relu", activate_last=settings.critic_activate_last
    )
    torso = make_torso(key, observation, own)
    # The torso uses the keys before this one: one per hidden layer, and where it has to learn to read (convolutions, symbols)
    # one for all of them and one per array of the observation.
    plain = all(isinstance(reader, Numbers) for reader in torso.readers)
    used = len(settings.critic_hidden) if plain else 1 + max(len(settings.critic_hidden), len(torso.readers))
    key_head = jax.random.split(key, 1 + used)[-1]
    head = Linear(key_head, settings.critic_hidden[-1], 1, settings.critic_head_std or None)
    critic = Critic(torso, head)
    return CriticState(critic, critic_optimiser(settings).init(critic), start_moments(), start_moments())


def judge(settings: Discovery, critic: CriticState, experience: Experience, policy: Policy) -> Judgement:
    """V-trace estimates for the policy whose logits at the T steps are given, [T, B, A].

    Where it is not the policy that acted (`experience.behaviour`), importance weights correct for the difference.

    Args:
        settings: the fields `critic_*` give discount and trace.
        critic: the critic as it is.
        experience: [T, B, ...]; its `behaviour` is the policy that acted.
        policy: the policy that is judged, logits [T, B, A] or [T, B, D, A], or what a continuous one predicts.
    """
    # The network's output is squashed, but returns add up only on the scale of rewards.
    value = signed_parabolic(critic.params(experience.observation))
    return judge_by(settings, (critic.advantage, critic.error), value, experience, policy)


def judge_by(
    settings: Discovery, moments: tuple[Moments, Moments], value: Array, experience: Experience, policy: Policy
) -> Judgement:
    """The same from values [T+1, B] and the moments of advantages and errors so far.

    Args:
        settings: the fields `critic_*` give discount and trace.
        moments: of advantages and of errors, before this experience.
        value: [T+1, B], on the scale of rewards.
        experience: [T, B, ...]; its `behaviour` is the policy that acted.
        policy: the policy that is judged, logits [T, B, A] or [T, B, D, A], or what a continuous one predicts.
    """
    action, valid = experience.action, experience.valid
    ratios = jnp.exp(log_probability(policy, action) - log_probability(experience.behaviour, action))
    discounts = settings.critic_discount * experience.discount.astype(value.dtype)
    rewards = experience.reward.astype(value.dtype)
    estimate = over_streams(vtrace, rewards, discounts, value, ratios, valid, trace=settings.critic_trace)
    error = estimate.targets - now(value)
    # Updated before they are used: the first experience of a life would otherwise have no scale to be normalised by.
    moments = (update_moments(moments[0], estimate.advantages, valid), update_moments(moments[1], error, valid))
    return Judgement(
        value=value,
        ratios=ratios,
        target=estimate.targets,
        advantage=estimate.advantages,
        normalised_advantage=normalise(estimate.advantages, moments[0]),
        error=error,
        # The mean error is what the critic still has to learn: without it, a constant bias would never be corrected.
        normalised_error=normalise(error, moments[1], subtract_mean=False),
        moments=moments,
    )


def improve(settings: Discovery, critic: CriticState, experience: Experience, policy: Policy) -> tuple[CriticState, Metrics]:
    """One step of the critic, for the policy whose logits at the T steps are given, [T, B, A]; and its mean loss.

    Its output moves by the normalised error, so that the scale of rewards does not matter.

    Args:
        settings: the fields `critic_*` give discount and trace.
        critic: the critic before the step.
        experience: [T, B, ...]; its `behaviour` is the policy that acted.
        policy: the policy that is judged, logits [T, B, A] or [T, B, D, A], or what a continuous one predicts.
    """
    judgement = judge(settings, critic, experience, policy)

    # The judgement stays outside of the loss: its errors are data, and only this forward pass is differentiated.
    def mean_loss(params: Critic) -> Array:
        output = now(params(experience.observation))
        return masked_mean(squared_loss(output, output + judgement.normalised_error), experience.valid)

    loss, grads = jax.value_and_grad(mean_loss)(critic.params)
    updates, optimiser_state = critic_optimiser(settings).update(grads, critic.optimiser_state, critic.params)
    improved = CriticState(optax.apply_updates(critic.params, updates), optimiser_state, *judgement.moments)
    return improved, {"critic_loss": loss}


def squared_loss(output: Array, target: Array) -> Array:
    """Half the squared error [...]; a target is data, even if it was made from the output."""
    return 0.5 * jnp.square(jax.lax.stop_gradient(target) - output)
