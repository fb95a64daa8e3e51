"""From a user's own object to a `Recipe`: a rule, a recipe, or a function that makes either."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rulax.errors import UserError
from rulax.own import is_nameless, name_of
from rulax.rules.base import Recipe, UpdateRule
from rulax.rules.guarded import guarded, telling
from rulax.settings import Learning, Network

ACCEPTED = "an UpdateRule, a Recipe (a rule with its settings), or a function that returns one of them"


def is_rule(thing: Any) -> bool:
    """Whether an object could be a rule; a function is believed until it has been called."""
    return isinstance(thing, Recipe | UpdateRule) or callable(thing)


def rule_name(thing: Any) -> str:
    """What tables call an object: the function that made a rule gives it its name."""
    if is_nameless(thing):  # called after what it makes; a mistake in it is reported where it is used
        with suppress(Exception):
            return rule_name(thing())
    rule = thing.rule if isinstance(thing, Recipe) else thing
    if not isinstance(rule, UpdateRule):
        return name_of(rule)
    # The functions of a rule are made inside of the one that makes it: `my_rule.<locals>.loss`.
    maker = rule.loss.__qualname__.split(".")[0] if hasattr(rule.loss, "__qualname__") else ""
    return maker if maker.isidentifier() else "rule"


def recipe_of(thing: Any, name: str, read: Callable[[Callable, dict[str, Any]], dict[str, Any]], options: dict[str, Any]) -> Recipe:
    """The recipe that a user's own object stands for.

    Without settings of its own a rule gets `LEARNING` and `NETWORK` of the module that its function stands in, or else the defaults
    of `Learning` and `Network`.

    Args:
        thing: the object.
        name: what error messages call it.
        read: converts options to arguments of a function, given the function.
        options: what the user chose.
    """
    made = thing
    if not isinstance(thing, Recipe | UpdateRule):
        if not callable(thing):
            raise UserError(f"rule '{name}' must be {ACCEPTED}, not {type(thing).__name__}")
        arguments = read(thing, options)
        with telling(name, "making it", thing, f"{name_of(thing)}({', '.join(arguments)})"):
            made = thing(**arguments)
    elif options:
        raise UserError(f"rule '{name}' is ready-made and takes no options; give the function that makes it")
    if isinstance(made, Recipe):
        return made._replace(rule=guarded(made.rule, name, needs_policy=made.make_agent is None))
    if not isinstance(made, UpdateRule):
        raise UserError(f"rule '{name}' must be {ACCEPTED}; it returned {type(made).__name__}")
    module = sys.modules.get(getattr(thing, "__module__", ""))
    learning, network = getattr(module, "LEARNING", None), getattr(module, "NETWORK", None)
    return Recipe(
        guarded(made, name),
        learning if isinstance(learning, Learning) else Learning(),
        network if isinstance(network, Network) else Network(),
    )
