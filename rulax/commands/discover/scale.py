"""`--scale X`: the experiment of a suite made smaller, with its proportions kept. No JAX here: settings become settings.

What a run costs is a product: how many agents there are, how long they learn, how large the networks are. Each factor shrinks:

* budgets, lifetimes and the replay that an agent keeps of its life: X times as long;
* agents per family, and those of an evaluation: X times as many;
* networks, those of agents, of the critic and of the rule: X times as many weights, so sqrt(X) times as wide.

Families, batches, unrolls, windows, step sizes and the share of replay stay: they are what the protocol is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from rulax.discovery.settings import Discovery
from rulax.metanet.sizes import Sizes
from rulax.settings import Learning

LIVES = ("lifetimes", "evaluation_updates")  # in updates
COUNTS = ("steps", "evaluate_every", "agents", "evaluation_seeds")
WIDTHS = ("hidden", "channels", "action_model", "action_hidden", "critic_hidden")
RULE_OPTIONS = "rule_options"
# Those of the meta-network that have a least are numbers of units; the others are switches, and the range of values.
UNITS = tuple(field.name for field in dataclasses.fields(Sizes) if field.metadata.get("bounds"))
NARROWEST = 4  # units of a layer that still learn together
COARSEST = 31  # bins of a two-hot value, which are its resolution as well as a width


def complete(suite: Mapping[str, Any], meta_network: bool) -> dict[str, Any]:
    """The settings of a suite with the defaults that a scale will change; `meta_network` says whether the rule is one."""
    sizes: dict[str, Any] = {}
    if meta_network:
        options = suite.get(RULE_OPTIONS, {})
        given = {field.name: options[field.name] for field in dataclasses.fields(Sizes) if field.name in options}
        sizes = {RULE_OPTIONS: options | {name: getattr(Sizes(**given), name) for name in UNITS}}
    defaults = {name: getattr(Discovery(), name) for name in ("window", "agents", "lifetimes", "critic_hidden")}
    return defaults | dict(suite) | sizes


def shrink(suite: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Settings, as `complete` gives them, at a scale of 0 < X <= 1.

    What would become nothing is kept at its least: one agent, one window, one batch, a few units.
    """

    def lives(updates: int) -> int:
        # An agent is only replaced between two windows: a life that ends within one would be longer than it says.
        return suite["window"] * times(updates / suite["window"], scale, 1)

    def wide(units: int) -> int:
        return times(units, math.sqrt(scale), NARROWEST)

    smaller = {name: each(lives, suite[name]) for name in LIVES if name in suite}
    smaller |= {name: times(suite[name], scale, 1) for name in COUNTS if name in suite}
    smaller |= {name: each(wide, suite[name]) for name in WIDTHS if name in suite}
    if "capacity" in suite:
        held = max(suite.get(name, getattr(Learning(), name)) for name in ("batch", "streams", "warmup"))
        smaller["capacity"] = times(suite["capacity"], scale, held)
    options = {name: each(wide, value) if name in UNITS else value for name, value in suite.get(RULE_OPTIONS, {}).items()}
    if "bins" in options:
        # An odd number, so that one bin is the value 0.
        options["bins"] = min(suite[RULE_OPTIONS]["bins"], max(COARSEST, options["bins"] // 2 * 2 + 1))
    return dict(suite) | smaller | {RULE_OPTIONS: options}


def times(number: float, factor: float, least: int) -> int:
    """A number of things times a factor, rounded; at least so many, unless there were fewer before."""
    return max(math.floor(number * factor + 0.5), min(least, math.ceil(number)))


def each(function: Callable[[int], int], value: Any) -> Any:
    """A function of one number, or of each of several."""
    return tuple(map(function, value)) if isinstance(value, tuple) else function(value)


# -- what it did ---------------------------------------------------------------------------------------------------------------


def what_changed(suite: Mapping[str, Any], smaller: Mapping[str, Any], final: Mapping[str, Any]) -> dict[str, list[Any]]:
    """By name, what became of what: `{"agents": [2, 1]}`. Left out is what a flag, a file or a rule to start from has set."""
    was, now, used = flat(suite), flat(smaller), flat(final)
    return {name: [was[name], value] for name, value in now.items() if was[name] != value and used.get(name) == value}


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which the options of the rule stand beside the others, as `rule hidden`."""
    options = {f"rule {name}": value for name, value in settings.get(RULE_OPTIONS, {}).items()}
    return {name: value for name, value in settings.items() if name != RULE_OPTIONS} | options


def scaled_text(scale: float, changed: Mapping[str, Any]) -> str:
    """What a scale did, as a line for the start of a run."""
    parts = [f"{name.replace('_', ' ')} {listed(was)} -> {listed(now)}" for name, (was, now) in changed.items()]
    return f"scale {scale:g}: {'; '.join(parts) or 'nothing is left to shrink'}"


def listed(value: Any) -> str:
    """One number or several, with commas at the thousands."""
    return " ".join(f"{number:,}" for number in value) if isinstance(value, tuple) else f"{value:,}"
