"""The settings that a rule was discovered with: a rule file states them, and training with the rule starts from them. No JAX here.

A rule works best in the setting in which it was discovered; users can override every number.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, NamedTuple

from rulax.errors import UserError
from rulax.files.reading import parse_json
from rulax.metanet.sizes import Constants
from rulax.rules.rule_files import RuleFileError
from rulax.settings import Learning, Network, check_value, with_current_names
from rulax.text import choices_of

KEY = "settings"  # in a rule file's metadata; `rulax discover` writes it
OF_ENVIRONMENT = ("torso",)  # fields that depend on the observations of an environment, not on the rule
MOST = 10**9


class RuleSettings(NamedTuple):
    """The agents that a rule was discovered with, and how they learned."""

    learning: Learning
    network: Network
    constants: Any = Constants()  # of the class that the kind of rule has (rules/kinds.py)


def from_text(file: str, text: str, otherwise: RuleSettings) -> RuleSettings:
    """Settings from the JSON text of a rule file's metadata; fields that it does not state are those of `otherwise`."""
    problem = f"{file}: its metadata does not state how the rule was found ('{KEY}')"
    try:
        stated = parse_json(text or "{}", finite=False)  # a setting that may not be NaN is named below
    except ValueError:
        raise RuleFileError(problem) from None
    if not isinstance(stated, dict):
        raise RuleFileError(problem)
    return RuleSettings(*(_read(problem, stated.get(name, {}), getattr(otherwise, name)) for name in RuleSettings._fields))


def _read(problem: str, stated: Any, base: Any) -> Any:
    hints = typing.get_type_hints(type(base))
    bounds = {field.name: field.metadata.get("bounds", {}) for field in dataclasses.fields(base)}
    if not isinstance(stated, dict):
        raise RuleFileError(problem)
    stated = with_current_names(stated, type(base))
    if not set(stated) <= set(hints):
        raise RuleFileError(problem)
    own = {name: value for name, value in stated.items() if name not in OF_ENVIRONMENT}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
    for name, value in values.items():
        if not _acceptable(value, hints[name]):
            raise RuleFileError(f"{problem}: '{name}' cannot be {value!r}")
        try:
            check_value(f"'{name}'", value, bounds[name])
        except UserError as error:
            raise RuleFileError(f"{problem}: {error}") from None
    return dataclasses.replace(base, **values)


def _acceptable(value: Any, hint: Any) -> bool:
    """Whether a value has the type of a field, and no number is absurdly large."""
    if choices_of(hint):
        # Only what comes with the package: a file from somewhere else must not name a module to import.
        return value in choices_of(hint)
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and len(value) <= 8 and all(_acceptable(one, int) for one in value)
    if hint is bool:
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int if hint is int else (int, float)):
        return False
    return abs(value) <= MOST  # false for NaN too
