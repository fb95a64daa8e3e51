"""The inputs of the meta-network: one function per group of inputs. Between metanet/estimates.py and metanet/encoder.py.

Per step, in this order (27 numbers for Disco103):

    policy_taken       2   pi(a), mu(a)                          probabilities of the action taken
    outcome            2   reward, whether the episode goes on
    value_scalars      4   V now, V later, advantage, normalised advantage
    slow_policy_taken  1   slow pi(a)
    of_states      2 x 2   encoded y now and later: online, slow
    of_actions     2 x 5   encoded z of the action taken; its mean under pi, now and later; its largest, now and later
    of_action_set  2 x 2   mean over actions of the action encoding; that of the action taken

Per action (9 channels): pi, mu, slow pi; encoded z and slow z; slow q, its advantage, that normalised; whether it was taken.
"Now" is the state in which the action was taken, "later" the one that it led to. Rewards, values and advantages are squashed by
sign(x) log(1 + |x|). An observation is never an input, so a rule found in one environment can be used in any other.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rulax.metanet.estimates import Estimates, nothing_follows, outcome_known
from rulax.types import Array, Batch, Experience, later, logits_of, now
from rulax.values.policies import at_action
from rulax.values.two_hot import sign_log


class Signals(NamedTuple):
    """All inputs before any learned encoding; the trajectory's and the lifetime's encoder share them."""

    scalars: Array  # [T, B, S]
    scalars_handed_on: Array  # [S] False for those that show a prediction, see `bootstrap`
    probabilities: Array  # [T+1, B, A] of the agent's policy
    channels_before: Array  # [T, B, A, 3] channels that stand before those of z
    channels_after: Array  # [T, B, A, 1 or 4] and after
    state_predictions: tuple[Array, ...]  # logits [T+1, B, N]: online, slow; () without predictions
    action_predictions: tuple[Array, ...]  # logits [T+1, B, A, N]: online, slow
    action: Array  # [T, B]
    ends: Array  # [T, B] nothing reaches back across these steps
    known: Array  # [T, B] what came of the action is known
    bootstrap: bool  # whether a target may depend on predictions of later states


def make_signals(batch: Batch, estimates: Estimates | None, bootstrap: bool = True) -> Signals:
    """Gather the inputs from one batch; `estimates` is None for a rule without the value head."""
    experience = batch.experience
    # Policies are data to the meta-gradient: it crosses from update to update through y and z alone.
    policy, slow_policy = jax.lax.stop_gradient((batch.online["policy"], batch.slow["policy"]))
    probabilities, slow_probabilities = jax.nn.softmax(policy), jax.nn.softmax(slow_policy)
    behaviour = jax.nn.softmax(logits_of(experience.behaviour).astype(policy.dtype))
    action, predicted = experience.action, "state_prediction" in batch.online
    scalars = [
        policy_taken(now(probabilities), behaviour, action),
        outcome(experience, policy.dtype),
        *([] if estimates is None else [value_scalars(estimates, bootstrap)]),
        slow_policy_taken(now(slow_probabilities), action),
    ]
    # In the order of `scalars`: of these, only the value now and later shows a prediction.
    handed_on = [True] * 4 + ([] if estimates is None else [False, False, True, True]) + [True]
    taken = jax.nn.one_hot(action, policy.shape[-1], dtype=policy.dtype)
    return Signals(
        scalars=jnp.concatenate(scalars, -1),
        scalars_handed_on=jnp.array(handed_on),
        probabilities=probabilities,
        channels_before=jnp.stack([now(probabilities), behaviour, now(slow_probabilities)], -1),
        channels_after=jnp.stack([*([] if estimates is None else value_channels(estimates)), taken], -1),
        state_predictions=(batch.online["state_prediction"], batch.slow["state_prediction"]) if predicted else (),
        action_predictions=(batch.online["action_prediction"], batch.slow["action_prediction"]) if predicted else (),
        action=action,
        ends=nothing_follows(experience),
        known=outcome_known(experience),
        bootstrap=bootstrap,
    )


def policy_taken(probabilities: Array, behaviour: Array, action: Array) -> Array:
    """pi(a) and mu(a), [T, B, 2]."""
    return jnp.stack([at_action(probabilities, action), at_action(behaviour, action)], -1)


def outcome(experience: Experience, dtype) -> Array:
    """The reward, and whether the episode goes on, [T, B, 2]."""
    return jnp.stack([sign_log(experience.reward.astype(dtype)), experience.discount.astype(dtype)], -1)


def value_scalars(estimates: Estimates, bootstrap: bool = True) -> Array:
    """The value now and later, the advantage, and the advantage normalised, [T, B, 4]."""
    value, advantage = sign_log(estimates.value), sign_log(estimates.advantage)
    return jnp.stack([*now_and_later(value, bootstrap), advantage, estimates.normalised_advantage], -1)


def slow_policy_taken(slow_probabilities: Array, action: Array) -> Array:
    """The slow copy's pi(a), [T, B, 1]."""
    return at_action(slow_probabilities, action)[..., None]


def value_channels(estimates: Estimates) -> list[Array]:
    """The slow copy's q, its advantage and its normalised advantage for each action, [T, B, A] each."""
    advantages, normalised = estimates.action_advantages, estimates.normalised_action_advantages
    return now([sign_log(estimates.slow_values), sign_log(advantages), normalised])


def now_and_later(values: Array, bootstrap: bool = True) -> list[Array]:
    """Values [T+1, B] of the state in which an action was taken and of the one that it led to (0 if that may not be seen)."""
    # Zeros rather than fewer inputs, so that the weights of a rule keep their shapes.
    return [now(values), later(values) if bootstrap else jnp.zeros_like(later(values))]


def of_states(encoded: Array, bootstrap: bool = True) -> list[Array]:
    """An encoded state prediction now and later, two times [T, B]."""
    return now_and_later(encoded, bootstrap)


def of_actions(encoded: Array, probabilities: Array, action: Array, bootstrap: bool = True) -> list[Array]:
    """Encoded action predictions [T+1, B, A] in five views [T, B], each over a set of actions of any size.

    The mean is under the online policy for the slow copy's predictions too, as in the reference.
    """
    mean, largest = jnp.sum(probabilities * encoded, -1), jnp.max(encoded, -1)
    return [at_action(now(encoded), action), *now_and_later(mean, bootstrap), *now_and_later(largest, bootstrap)]


def of_action_set(encoding: Array, action: Array) -> list[Array]:
    """The action encoding [T, B, A, C] averaged, and at the action taken, two times [T, B, C]."""
    taken = jnp.take_along_axis(encoding, action[..., None, None], -2)[..., 0, :]
    return [jnp.mean(encoding, -2), taken]
