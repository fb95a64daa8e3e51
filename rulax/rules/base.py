"""The interface of every update rule, written by people or discovered: what an agent predicts, and what that should become.

A rule never sees a network. It is handed arrays: what happened, and two readings of it (`Batch`). `targets` is evaluated
outside of what the agent's gradient differentiates, so to the agent targets are constants, while to an outer gradient they are
functions of `rule_params`. That is why no flag anywhere says what is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rulax.agents.base import AgentMaker
from rulax.settings import Learning, Network
from rulax.types import Array, Batch, Experience, Head, Metrics, Predictions, PyTree


class UpdateRule(NamedTuple):
    """How an agent learns: what it must predict, and what those predictions should become.

    Axes as in `types.py`. `loss` gets *taken* predictions: heads per state [T, B, size], and heads per action [T, B, size] at the
    action that was taken. It returns the loss per step, [T, B]; the learner averages it over valid steps.
    """

    heads: Callable[[int], dict[str, Head]]  # (num_actions) -> what the agent must output; always a "policy"
    init: Callable[[Array], PyTree]  # (key) -> rule_params; {} for a hand-designed rule
    start: Callable[[Array], PyTree]  # (key) -> rule_state, the memory over one lifetime
    targets: Callable[[PyTree, PyTree, Batch], tuple[PyTree, PyTree, Metrics]]
    loss: Callable[[Predictions, PyTree, Experience], tuple[Array, Metrics]]


class Recipe(NamedTuple):
    """A rule together with the settings it is recommended with."""

    rule: UpdateRule
    learning: Learning
    network: Network
    make_agent: AgentMaker | None = None  # makes the agents that learn by the rule; None means `rulax.agents.make_agent`


def no_params(key: Array) -> dict:
    """`init` of a rule that has nothing to be discovered."""
    del key
    return {}


def no_state(key: Array) -> dict:
    """`start` of a rule that remembers nothing between updates."""
    del key
    return {}
