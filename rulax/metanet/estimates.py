"""How good the actions were: Retrace targets, advantages and errors of the action value; the meta-network reads them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.metanet.sizes import Constants, Sizes
from rulax.types import Array, Batch, Experience, later, now, starts
from rulax.values.normalisation import Moments, normalise, update_moments
from rulax.values.policies import at_action, log_probability
from rulax.values.returns import over_streams, retrace
from rulax.values.two_hot import Bins, expected_value


class Scales(NamedTuple):
    """Moving averages over an agent's life, by which advantages and errors are normalised."""

    advantage: Moments
    error: Moments


class Estimates(NamedTuple):
    """Value estimates of one batch. Targets and advantages are computed with the slow copy, as in Muesli."""

    values: Array  # [T+1, B, A]  the agent's own q
    value: Array  # [T+1, B]     their mean under the agent's policy
    slow_values: Array  # [T+1, B, A]  the slow copy's q
    target: Array  # [T, B]       Retrace target of q at the action taken
    advantage: Array  # [T, B]       target - slow value
    normalised_advantage: Array  # [T, B]
    action_advantages: Array  # [T+1, B, A]  slow q - slow value
    normalised_action_advantages: Array  # [T+1, B, A]
    error: Array  # [T, B]       target - the agent's own q at the action taken
    normalised_error: Array  # [T, B]


def episode_ends(experience: Experience) -> Array:
    """Where observation t + 1 belongs to another episode than action t, or to none, [T, B].

    The episodes of a trial are one here: inside of it something starts (`first`) after a valid step with discount 1, and what is
    earned later still counts.
    """
    return (experience.discount == 0) | (starts(later(experience.first)) & ~experience.valid)


def outcome_known(experience: Experience) -> Array:
    """Where the stream shows what came of action t, [T, B]: the end of its episode, or the state that it led to.

    A dummy or cut-off step is not `valid`, and it leads to the first observation of another episode. A step that starts an
    episode which goes on, or ends there, did happen even if the learner may not learn from it (the reference does not).
    Moving averages and the lifetime's mean are facts about what happened and go by this; what is learned goes by `valid`.
    """
    shown = (experience.discount == 0) | ~starts(later(experience.first))
    return experience.valid | (shown & starts(now(experience.first)))


def nothing_follows(experience: Experience) -> Array:
    """Where nothing that comes after step t may reach back to it, [T, B]: at an episode's end, or beside an unknown outcome."""
    known = outcome_known(experience)
    # The last step has no successor in the batch, so there only its own outcome counts.
    next_known = jnp.concatenate([known[1:], jnp.ones_like(known[:1])])
    return episode_ends(experience) | ~known | ~next_known


def estimate(scales: Scales, batch: Batch, sizes: Sizes, constants: Constants) -> tuple[Scales, Estimates]:
    """Estimates of one batch, and the moving averages after it."""
    experience, bins = batch.experience, Bins(sizes.bins, sizes.largest_value)
    # Policy and value are data to the meta-gradient: it crosses from update to update through y and z alone.
    online = jax.lax.stop_gradient((batch.online["policy"], batch.online["value"]))
    policy, values = online[0], expected_value(online[1], bins)
    slow_values = expected_value(jax.lax.stop_gradient(batch.slow["value"]), bins)  # bootstraps are data as well
    probabilities = jax.nn.softmax(policy)
    value = jnp.sum(probabilities * values, -1)
    # Under the online policy as well: Retrace evaluates the policy that is learning.
    slow_value = jnp.sum(probabilities * slow_values, -1)
    action, known = experience.action, outcome_known(experience)
    ratios = jnp.exp(log_probability(now(policy), action) - log_probability(experience.behaviour, action))
    discounts = (constants.discount * experience.discount).astype(value.dtype)
    rewards, slow_taken = experience.reward.astype(value.dtype), at_action(now(slow_values), action)
    target = over_streams(retrace, rewards, discounts, slow_value, slow_taken, ratios, known, trace=constants.trace)
    # Against the slow value, because the target bootstraps from the slow copy as well.
    advantage = target - now(slow_value)
    error = target - at_action(now(values), action)
    action_advantages = slow_values - slow_value[..., None]
    # Updated before they normalise, so that the first batch of a lifetime has a scale already.
    scales = Scales(
        update_moments(scales.advantage, advantage, known, constants.moments_decay),
        update_moments(scales.error, error, known, constants.moments_decay),
    )
    return scales, Estimates(
        values=values,
        value=value,
        slow_values=slow_values,
        target=target,
        advantage=advantage,
        normalised_advantage=normalise(advantage, scales.advantage),
        action_advantages=action_advantages,
        # By the moments of the advantages of actions taken, so that the two inputs share one scale.
        normalised_action_advantages=normalise(action_advantages, scales.advantage),
        error=error,
        normalised_error=normalise(error, scales.error, subtract_mean=False),
    )
