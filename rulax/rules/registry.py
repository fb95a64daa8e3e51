"""The names of rules: what there is, in one table, and how a name becomes a rule with its recommended settings.

Nothing here imports JAX until a rule is made: the command line lists rules and must answer at once.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rulax.rules.base import Recipe


class Entry(NamedTuple):
    """Where a rule is made, as `module:function`, and one line about it. The module also holds `LEARNING` and `NETWORK`."""

    where: str
    summary: str


RULES = {
    "policy_gradient": Entry(
        "rulax.rules.policy_gradient:policy_gradient", "REINFORCE with a learned baseline (Williams 1992)"
    ),
    "actor_critic": Entry("rulax.rules.actor_critic:actor_critic", "Actor-critic with V-trace (Espeholt et al. 2018)"),
    "ppo": Entry("rulax.rules.ppo:ppo", "Proximal policy optimisation, clipped surrogate (Schulman et al. 2017)"),
    "ppo_targets": Entry(
        "rulax.rules.ppo_targets:ppo_targets", "PPO in the form of targets, as a discovered rule would say it"
    ),
    "q_learning": Entry("rulax.rules.q_learning:q_learning", "Q(lambda) from replay with double targets (Watkins 1989)"),
}


class UnknownRule(ValueError):
    """There is no rule of that name."""

    def __init__(self, name: str):
        super().__init__(f"unknown rule '{name}'; {_suggest(name, RULES)}known: {', '.join(sorted(RULES))}")


def list_rules() -> dict[str, str]:
    """Every rule's name and one line about it."""
    return {name: entry.summary for name, entry in RULES.items()}


def make_rule(name: str, **options: Any) -> Recipe:
    """The rule of that name with its recommended settings; `options` are the arguments of the function that makes it.

    `make_rule("ppo", clip=0.1)` is `ppo(clip=0.1)` from `rulax.rules.ppo`, beside the `LEARNING` and `NETWORK` of that file.
    """
    from rulax.rules.base import Recipe  # with JAX, hence not at the top

    if name not in RULES:
        raise UnknownRule(name)
    module_name, function_name = RULES[name].where.split(":")
    module = importlib.import_module(module_name)
    make = getattr(module, function_name)
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            raise ValueError(f"rule '{name}' has no option '{option}'; {_suggest(option, known)}known: {', '.join(known)}")
    return Recipe(make(**options), module.LEARNING, module.NETWORK)


def _suggest(word: str, known) -> str:
    """A guess at what was meant, as the beginning of a sentence that goes on with what is known."""
    near = difflib.get_close_matches(str(word).lower().replace("-", "_"), list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(match) for match in near)}? " if near else ""
