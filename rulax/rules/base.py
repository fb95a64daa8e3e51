"""The interface of every update rule, hand-designed or discovered: what an agent predicts, and how it learns from experience.

A rule never sees a network. It receives arrays: the experience, and the predictions of the agent and of its slow copy (`Batch`).
`targets` is evaluated outside the agent's gradient, so the agent treats targets as constants, while an outer gradient
differentiates them with respect to `rule_params`. That is why no flag anywhere chooses what is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rulax.agents.base import AgentMaker
from rulax.settings import Learning, Network
from rulax.types import Array, Batch, Experience, Head, Metrics, Predictions, PyTree


class UpdateRule(NamedTuple):
    """How an agent learns: what it must predict, what those predictions should become, and how far off they are.

    Axes as in `types.py`. All functions are pure.

    * `heads(num_actions)` names what the agent must output; there is always a "policy".
    * `init(key)` draws `rule_params`, what discovery learns; {} for a hand-designed rule.
    * `start(key)` gives the `rule_state` of a new agent, the rule's memory over one lifetime.
    * `targets(rule_params, rule_state, batch)` returns targets (a tree of arrays [T, B, ...]), the next rule state and metrics.
      It is called once per update, and the agent's gradient does not pass through it.
    * `loss(rule_params, taken, targets, experience)` returns the loss per step, [T, B], and metrics. `taken` holds the agent's
      predictions, [T, B, size] each: state heads as they are, action heads at the action taken. The agent's gradient is taken
      with respect to `taken` alone; the learner averages the loss over valid steps. A loss may itself be learned: an outer
      gradient reaches `rule_params` through `targets` and through `loss`.
    * `priority(targets, batch)`, which a rule may leave out, returns how far off each step was, [T, B], at least 0 (an absolute
      temporal-difference error). Prioritised replay (learning/priorities.py) needs it, and nothing else reads it.
    * `by_gradient` is False for a rule whose loss is constant, because its agents learn by what they write (agents/base.py).
    """

    heads: Callable[[int], dict[str, Head]]
    init: Callable[[Array], PyTree]
    start: Callable[[Array], PyTree]
    targets: Callable[[PyTree, PyTree, Batch], tuple[PyTree, PyTree, Metrics]]
    loss: Callable[[PyTree, Predictions, PyTree, Experience], tuple[Array, Metrics]]
    priority: Callable[[PyTree, Batch], Array] | None = None
    by_gradient: bool = True


class Recipe(NamedTuple):
    """A rule together with its recommended settings."""

    rule: UpdateRule
    learning: Learning
    network: Network
    make_agent: AgentMaker | None = None  # makes the agents that learn by the rule; None means `rulax.agents.make_agent`
    # What the rule needs around any environment, as options of `envs.registry.make`: {"with_skill": 6} for one that learns skills.
    env_options: Mapping[str, Any] = MappingProxyType({})


def policy_and_value(bins: int) -> Callable[[int], dict[str, Head]]:
    """The `heads` of an actor and its critic: a policy, and one value per state in so many bins."""
    return lambda num_actions: {"policy": Head(num_actions), "value": Head(bins)}


def no_params(key: Array) -> dict:
    """The `init` of a rule that has nothing to discover."""
    del key
    return {}


def no_state(key: Array) -> dict:
    """The `start` of a rule that remembers nothing between updates."""
    del key
    return {}
