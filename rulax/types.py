"""The data that everything else passes around: experience, predictions, and the two readings of them that a rule may use.

Axes, everywhere and in this order: agents, updates [N], time [T], streams [B], then features. They are never transposed. Of the
features, A is always the number of actions to choose from and D the number of dimensions that an action has.
The paper's letters, given once: `policy` is pi, `state_prediction` y, `action_prediction` z, `value` q, `next_policy` p;
`params` is theta (what the agent learns), `rule_params` is eta (what discovery learns).
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

import jax
import jax.numpy as jnp

Array = jax.Array
PyTree = Any
Metrics = dict[str, Array]


class Factored(NamedTuple):
    """A policy over actions of D dimensions, each chosen independently. It has its own type because its shape alone cannot tell.

    Log-probabilities, entropies and divergences (values/policies.py) are sums over the dimensions.
    """

    logits: Array  # [..., D, A]


class RealPolicy(Protocol):
    """A policy over actions of D real numbers, [..., D]: a NamedTuple of arrays with these methods (values/real_policies.py)."""

    def sample(self, key: Array) -> Array:
        """Draw actions [..., D]."""

    def greedy(self) -> Array:
        """The actions [..., D] of an agent that does not explore."""

    def log_probability(self, action: Array) -> Array:
        """Log-density [...] of actions [..., D]."""

    def entropy(self) -> Array:
        """Differential entropy [...]."""


Policy = Array | Factored | RealPolicy  # logits [..., A] where an action is one choice
Predictions = dict[str, Any]  # Array each, but for the policy: Policy


class Level(enum.IntEnum):
    """What starts at an observation. `first` holds these numbers (int8); a higher level includes those below it.

    Memory, lasting noise and skills each have a level: they are renewed wherever something of that level or above starts.
    """

    NOTHING = 0
    EPISODE = 1
    TRIAL = 2  # several episodes of one task, or a new task
    LIFE = 3  # the stream itself


class Experience(NamedTuple):
    """What happened in T steps of B streams.

    `observation` and `first` have T + 1 entries, the last one for what the last action led to; `memory` has no time axis, it is
    what the agent remembered before the first observation; every other field has T entries.
    """

    observation: PyTree  # [T+1, B, ...]  observation[t] is what action[t] was chosen from
    action: Array  # [T, B], or [T, B, D] where an action has D dimensions; int32, or float32 where it is made of real numbers
    reward: Array  # [T, B]         reward[t] follows action[t]
    discount: Array  # [T, B]         0 where action[t] ended the episode, else 1 (a time limit is not an end)
    first: Array  # [T+1, B] int8  `Level` of what starts at observation[t]; memory of that level is cleared before it
    valid: Array  # [T, B]         False where nothing may be learned (a dummy step, a cut-off)
    behaviour: Policy  # [T, B, A]      policy logits when it acted; nothing else of that network is stored
    memory: PyTree  # [B, ...]       recurrent state before observation[0]; () if there is none
    weight: Array | None = None  # [T, B]  what the learner multiplies the loss of each step by (learning/update.py); None means 1


class Batch(NamedTuple):
    """Experience, and the predictions of two agents at all its T + 1 observations, for every action."""

    experience: Experience
    online: Predictions  # [T+1, B, ...] by the agent that learns
    slow: Predictions  # [T+1, B, ...] by its slowly moving copy


class Head(NamedTuple):
    """One prediction of an agent: `size` numbers per state, or per state and action.

    Where actions have D dimensions, "per action" is per dimension and choice, and the policy has `size` numbers per dimension.
    """

    size: int
    per_action: bool = False


def logits_of(policy: Policy) -> Array:
    """A policy's logits, [..., A] or [..., D, A]."""
    if isinstance(policy, Factored):
        return policy.logits
    if is_real(policy):
        raise ValueError("this rule needs a policy over choices, and this one is over real numbers: --action-distribution bins")
    return cast(Array, policy)


def is_real(policy: Policy) -> TypeGuard[RealPolicy]:
    """Whether a policy is over real numbers."""
    return isinstance(policy, tuple) and not isinstance(policy, Factored)


def starts(first: Any, level: int = Level.EPISODE) -> Any:
    """Where something of `level` or above starts: booleans of the shape of `first`, an array of JAX or numpy."""
    return first >= int(level)


def now(values: PyTree) -> PyTree:
    """The first T of T + 1 entries [T+1, ...]: those at which an action was taken."""
    return jax.tree.map(lambda x: x[:-1], values)


def later(values: PyTree) -> PyTree:
    """The last T of T + 1 entries [T+1, ...]: those that the actions led to."""
    return jax.tree.map(lambda x: x[1:], values)


def strong(tree: PyTree) -> PyTree:
    """The same numbers as arrays without JAX's weak types, which make a scan's carry change its type or compile a program twice."""

    def one(x: Any) -> Any:
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.lax.convert_element_type(x, x.dtype)

    return jax.tree.map(one, tree)
