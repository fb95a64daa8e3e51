"""The data that everything else passes around: experience, predictions, and the two readings of them that a rule may use.

Axes, everywhere and in this order: `[A]gents, [N]updates, [T]ime, [B]streams`, then features. They are never transposed.
The paper's letters, given once: `policy` is pi, `state_prediction` y, `action_prediction` z, `value` q, `next_policy` p;
`params` is theta (what the agent learns), `rule_params` is eta (what discovery learns).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
PyTree = Any
Metrics = dict[str, Array]
NOTHING_OWN: dict[str, Array] = {}  # every hyper-parameter is the one that all agents share


class Factored(NamedTuple):
    """A policy over actions of D dimensions, each chosen by itself. It has a type of its own because its shape does not say so.

    What a rule asks of a policy (values/policies.py) answers for all dimensions together: log-probabilities, entropies and
    divergences add up.
    """

    logits: Array  # [..., D, A]


Policy = Array | Factored  # logits [..., A] where an action is one choice
Predictions = dict[str, Any]  # Array each, but for the policy: Policy


class Experience(NamedTuple):
    """What happened. T steps need T + 1 observations; every other field has exactly T."""

    observation: PyTree  # [T+1, B, ...]  observation[t] is what action[t] was chosen from
    action: Array  # [T, B], or [T, B, D] where an action has D dimensions
    reward: Array  # [T, B]         reward[t] follows action[t]
    discount: Array  # [T, B]         0 where action[t] ended the episode, else 1 (a time limit is not an end)
    first: Array  # [T+1, B]       observation[t] starts an episode: memory is cleared before it
    valid: Array  # [T, B]         False where nothing may be learned (a dummy step, a cut-off)
    behaviour: Policy  # [T, B, A]      policy logits when it acted; nothing else of that network is stored
    memory: PyTree  # [B, ...]       recurrent state before observation[0]; () if there is none


class Batch(NamedTuple):
    """Experience and two readings of all its T + 1 observations, every action included."""

    experience: Experience
    online: Predictions  # [T+1, B, ...] by the agent as it is
    slow: Predictions  # [T+1, B, ...] by its slowly moving copy


class Head(NamedTuple):
    """One thing that an agent must predict: `size` numbers per state, or per state and action.

    Where actions have D dimensions, "per action" is per dimension and choice, and the policy has `size` numbers per dimension.
    """

    size: int
    per_action: bool = False


class LearnerState(NamedTuple):
    """One agent in the middle of its life: everything that an update changes."""

    params: PyTree  # the agent itself: an equinox module of arrays
    slow: PyTree  # its slowly moving copy
    optimiser_state: PyTree
    rule_state: PyTree  # the rule's memory over this lifetime
    updates: Array  # [] how many updates it has made
    hyperparameters: dict[str, Array] = NOTHING_OWN  # [] each: those that this agent has of its own, see learning/members.py


def logits_of(policy: Policy) -> Array:
    """A policy's logits, [..., A] or [..., D, A]."""
    return policy.logits if isinstance(policy, Factored) else policy


def now(values: PyTree) -> PyTree:
    """Of `T + 1` entries, the `T` at which an action was taken."""
    return jax.tree.map(lambda x: x[:-1], values)


def later(values: PyTree) -> PyTree:
    """Of `T + 1` entries, the `T` that the actions led to."""
    return jax.tree.map(lambda x: x[1:], values)


def strong(tree: PyTree) -> PyTree:
    """The same numbers as arrays whose type is not weak: else a scan takes them for two types, or a program is compiled twice."""

    def one(x: Any) -> Any:
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)

    return jax.tree.map(one, tree)
