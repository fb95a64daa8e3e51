"""What a search may try, as a user writes it: `learning_rate=1e-4:1e-2:log`, `unroll=8,16,32`, `rule.clip=0.1:0.3`. No JAX here.

Lists are understood by `rulax compare --tune` too, which tries all combinations.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from rulax.commands.settings import known_keys, parts_of, settings_keys
from rulax.errors import SYNONYMS, UserError, suggestion
from rulax.settings import check_value
from rulax.text import convert, literal, to_float, to_int

NO_RANGE = "; or give --population K, which needs no range"
OF_RULE = "rule."  # in front of an option of the rule
EXAMPLES = "learning_rate=1e-4:1e-2:log or unroll=8,16,32"


class Range(NamedTuple):
    """Every number from `low` to `high`, both included."""

    low: float
    high: float
    log: bool  # whether each factor of ten is as likely as any other
    whole: bool  # whether only whole numbers are meant

    def holds(self, value: Any) -> bool:
        """Whether a setting of this value could be drawn."""
        return isinstance(value, int | float) and self.low <= value <= self.high


class Choices(NamedTuple):
    """Some values, by the text that the user wrote for each."""

    values: dict[str, Any]

    def holds(self, value: Any) -> bool:
        """Whether a setting of this value could be drawn."""
        return value in self.values.values()


Dimension = Range | Choices


def seed_of_trials(seed: int) -> int:
    """The seed of all trials of a search, far from those that its result is measured by: the two share no randomness."""
    return (seed + 1_000_003) % 2**32


def join_tuning(parts: Iterable[str], otherwise: str = "") -> tuple[str, ...]:
    """`("lr=1", "2", "unroll=8")` -> `("lr=1,2", "unroll=8")`: reading a list of words has split the values at the commas.

    `otherwise` ends the sentence about words that are no such thing.
    """
    joined: list[str] = []
    for part in parts:
        if "=" in part:
            joined.append(part)
        elif joined:
            joined[-1] += f",{part}"
        else:
            raise UserError(f"--tune expects KEY=A,B,C, for example lr=1e-4,3e-4,1e-3, not '{part}'{otherwise}")
    return tuple(joined)


def tuned_setting(key: str, cls: type, taken: Collection[str]) -> str:
    """The setting of agents that a user means by `key`; unknown ones, and those in `taken`, are refused."""
    name, tunable = SYNONYMS.get(key, key), settings_keys(cls)
    if name not in tunable:
        raise UserError(f"--tune: '{key}' is not a setting of an agent or its learning{suggestion(key, tunable)}")
    if name in taken:
        raise UserError(f"--tune: {name} is set twice")
    return name


def read_space(texts: Iterable[str], cls: type, overrides: Collection[str], options: Collection[str]) -> dict[str, Dimension]:
    """What a search may try, by name; `overrides` and `options` of the rule are set already and cannot be searched as well."""
    space: dict[str, Dimension] = {}
    for text in texts:
        key, equals, written = text.partition("=")
        if not equals or not key:
            raise UserError(f"--tune expects KEY=LOW:HIGH or KEY=A,B,C, for example {EXAMPLES}, not '{text}'{NO_RANGE}")
        if key.startswith(OF_RULE):
            if key in space or key.removeprefix(OF_RULE) in options:
                raise UserError(f"--tune: {key} is set twice")
            space[key] = read_range(key, _kind(written), written, {}) if ":" in written else _choices(key, None, written, {})
            continue
        name = tuned_setting(key, cls, {*space, *overrides})
        hint = known_keys(cls)[name]
        bounds = next(field.metadata.get("bounds", {}) for part in parts_of(cls) for field in _fields(part) if field.name == name)
        if ":" not in written:
            space[name] = _choices(name, hint, written, bounds)
        elif hint in (int, float):
            space[name] = read_range(name, hint, written, bounds)
        else:
            raise UserError(f"--tune: {name} is not a number, so it has no range; list its values: {name}=A,B,C")
    return space


def split_rule(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of agents, and options of the rule."""
    options = {name.removeprefix(OF_RULE): value for name, value in values.items() if name.startswith(OF_RULE)}
    return {name: value for name, value in values.items() if not name.startswith(OF_RULE)}, options


def _fields(part: type) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(part)


def _kind(written: str) -> type:
    """Options have no declared type: whole numbers where both ends are written as such."""
    return int if all(isinstance(literal(end), int) for end in written.split(":")[:2]) else float


def read_range(name: str, kind: type, written: str, bounds: Mapping[str, float]) -> Range:
    """`LOW:HIGH`, `LOW:HIGH:lin` or `LOW:HIGH:log`, each end within the bounds of the setting."""
    low_text, high_text, *scale = written.split(":")
    if len(scale) > 1 or (scale and scale[0] not in ("log", "lin")):
        raise UserError(f"--tune: {name}={written} is no range; write {name}=LOW:HIGH, {name}=LOW:HIGH:lin or {name}=LOW:HIGH:log")
    read = to_int if kind is int else to_float
    low, high = (read(f"--tune {name}", end) for end in (low_text, high_text))
    if low >= high:
        raise UserError(f"--tune: the range {name}={written} is empty; its first number must be the smaller one")
    for end in (low, high):
        check_value(f"--tune: {name}", end, bounds)
    log = scale == ["log"]
    if log and low <= 0:
        raise UserError(f"--tune: a logarithmic range must begin above 0, and {name}={written} does not")
    return Range(low, high, log, kind is int)


def _choices(name: str, hint: Any, written: str, bounds: Mapping[str, float]) -> Choices:
    values: dict[str, Any] = {}
    for text in filter(None, written.split(",")):
        if hint is None:
            values[text] = literal(text)
        else:
            # A comma separates values, so the widths of one network are written 64x64.
            values[text] = convert(f"--tune {name}", hint, text.split("x") if typing.get_origin(hint) is tuple else text)
            check_value(f"--tune: {name}", values[text], bounds)
    if len({repr(value) for value in values.values()}) < 2:
        raise UserError(f"--tune: {name} needs at least two different values, for example lr=1e-4,3e-4,1e-3")
    return Choices(values)
