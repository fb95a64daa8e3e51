"""Reads dataclass fields as a user sees them: their help text, and raw text or YAML values turned into their types.

Used by `flags.py` for the command line, by `config.py` for presets and for keywords in Python: one converter for all three.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import re
import textwrap
import types
import typing
from typing import Any, Literal, Union

from rulax.errors import UserError

BYTES = {"": 1, "b": 1} | {f"{letter}{end}": 2 ** (10 * power) for power, letter in enumerate("kmgt", 1) for end in ("", "ib")}
BYTES |= {f"{letter}b": 10 ** (3 * power) for power, letter in enumerate("kmgt", 1)}
SUFFIXES = {"k": 10**3, "m": 10**6, "b": 10**9}
TRUE, FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstring under each field, which Python itself does not keep."""
    docs = {}
    for part in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0].body  # type: ignore[attr-defined]
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                docs[field.target.id] = ast.literal_eval(text.value)
    return docs


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
    """Every field's type, without the `| None` that only says that it may be left out."""
    return {name: without_none(hint) for name, hint in typing.get_type_hints(cls).items()}


def without_none(hint: Any) -> Any:
    """`T | None` -> `T`."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    return hint


def convert(label: str, hint: Any, value: Any) -> Any:
    """A raw value as the field's type, or one sentence that says what was expected."""
    hint = without_none(hint)
    origin = typing.get_origin(hint)
    if hint is bool:
        return to_bool(label, value)
    if hint is int:
        return to_int(label, value)
    if hint is float:
        return to_float(label, value)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UserError(f"{label} expects one of {', '.join(map(str, choices))}, not '{value}'")
        return value
    if origin is tuple:
        return to_tuple(label, typing.get_args(hint)[0], value)
    if origin is dict or hint is dict:
        return to_options(label, value)
    return str(value)


def to_bool(label: str, value: Any) -> bool:
    """`true`, `yes`, `on`, `1` and their opposites."""
    text = str(value).lower()
    if text not in TRUE | FALSE:
        raise UserError(f"{label} expects true or false, not '{value}'")
    return text in TRUE


def to_float(label: str, value: Any) -> float:
    """A finite number; `3e-4` too, which YAML alone would read as text."""
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
    except (TypeError, ValueError):
        raise UserError(f"{label} expects a number, not '{value}'") from None
    if not math.isfinite(number):
        raise UserError(f"{label} expects a finite number, not '{value}'")
    return number


def to_int(label: str, value: Any) -> int:
    """A whole number, also written as `1e6`, `1_000_000`, `200k` or `2M`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).strip().lower().replace("_", "")
    try:
        if isinstance(value, bool):
            raise ValueError
        if text.lstrip("+-").isdigit():
            return int(text)  # exact, however long
        factor = SUFFIXES.get(text[-1:], 1)
        number = float(text[:-1] if factor > 1 else text) * factor
        if not math.isfinite(number) or abs(number - round(number)) > 1e-6:
            raise ValueError
    except ValueError:
        raise UserError(f"{label} expects a whole number such as 50000, 1e6 or 200k, not '{value}'") from None
    return round(number)


def to_bytes(label: str, value: str) -> int:
    """`4GiB`, `512M`, `2.5 GB` or plain bytes."""
    number, unit = re.split(r"\s*(?=[a-z]*$)", value.strip().lower(), maxsplit=1)
    try:
        size = int(float(number) * BYTES[unit])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise UserError(f"{label} expects a size such as 4GiB or 512M, not '{value}'")
    return size


def to_tuple(label: str, item: Any, value: Any) -> tuple:
    """`64 64` on the command line, `[64, 64]` in a preset, `(64, 64)` or just `64` in Python."""
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, (list, tuple)):
        value = [value]
    return tuple(convert(label, item, part) for element in value for part in str(element).replace(",", " ").split())


def to_options(label: str, value: Any) -> dict[str, Any]:
    """`rows=8 columns=8` on the command line, a mapping everywhere else."""
    if isinstance(value, dict):
        return {str(name): option for name, option in value.items()}
    options = {}
    for part in [value] if isinstance(value, str) else value:
        name, equals, text = str(part).partition("=")
        if not equals or not name:
            raise UserError(f"{label} expects KEY=VALUE, not '{part}'")
        options[name] = literal(text)
    return options


def literal(text: str) -> Any:
    """What a Python programmer would mean by the text: a number, true/false, a list, else the text itself."""
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
