"""The one reading of environments and rules as users write them, options included: `catch:rows=5`, `mine.py:my_rule:clip=0.1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rulax.commands.fields import field_types
from rulax.own import OPTIONS
from rulax.settings import Learning, Network
from rulax.text import convert, merge_options, split_commas, split_options


class EnvironmentSpec(NamedTuple):
    """An environment with options, as a user wrote it."""

    name: str  # as in `catch:rows=5,columns=5`
    env: str
    options: dict[str, Any]


class RuleSpec(NamedTuple):
    """A rule with options, as a user wrote it."""

    rule: str  # with its ablations, if any
    options: dict[str, Any]  # of the rule
    overrides: dict[str, Any]  # fields of Learning and Network


def split_specs(parts: tuple[str, ...]) -> tuple[str, ...]:
    """`("catch:rows=5", "columns=5", "grid/delayed")` -> `("catch:rows=5,columns=5", "grid/delayed")`.

    A piece with `=` and without `:` is an option of the environment before it; commas in brackets separate nothing.
    """
    specs: list[str] = []
    # Joined first: reading a list of words has split at every comma, those inside of brackets included.
    for piece in split_commas(",".join(parts)):
        if "=" in piece and ":" not in piece.partition("=")[0] and specs:
            specs[-1] += f",{piece}" if OPTIONS.search(specs[-1]) else f":{piece}"
        elif piece:
            specs.append(piece)
    return tuple(specs)


def read_spec(text: str) -> EnvironmentSpec:
    """`catch:rows=5,columns=5` as an environment with options."""
    env, options = split_options(text)
    return EnvironmentSpec(text, env, options)


def read_rule_spec(text: str) -> RuleSpec:
    """`ppo:clip=0.1,learning_rate=1e-3` as a rule with options, some of which are settings of agents and their learning."""
    rule, options = split_options(text)
    types = {name: hint for part in (Learning, Network) for name, hint in field_types(part).items()}
    overrides = {name: convert(f"'{text}': {name}", types[name], value) for name, value in options.items() if name in types}
    return RuleSpec(rule, {name: value for name, value in options.items() if name not in types}, overrides)


def take_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which the options that a user wrote into `env` and `rule` stand beside them, where they are recorded.

    `{"env": "catch:rows=6", "rule": "ppo:clip=0.1,streams=8"}` has `env_options`, `rule_options` and `streams` then.
    """
    found = dict(given)
    if given.get("env"):
        env = read_spec(given["env"])
        ranges = {"randomise": given["randomise"]} if given.get("randomise") else {}
        merge_options(env.name, env.options, ranges, "the setting randomise")
        options = merge_options(env.name, env.options, given.get("env_options", {}), "env_options")
        found |= {"env": env.env, **({"env_options": options} if env.options else {})}
    if given.get("rule"):
        rule, text = read_rule_spec(given["rule"]), given["rule"]
        options = merge_options(text, rule.options, given.get("rule_options", {}), "rule_options")
        beside = {name: given[name] for name in rule.overrides if name in given}
        found |= {"rule": rule.rule, **({"rule_options": options} if rule.options else {})}
        found |= merge_options(text, rule.overrides, beside, "a setting of its own")
    return found
