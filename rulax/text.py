"""Between text and values: numbers written for a reader, and what a user wrote turned into the type that is expected.

Flags, presets, keywords in Python, and options of environments and rules all pass through the one converter here.
"""

from __future__ import annotations

import ast
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Union

from rulax.errors import UserError
from rulax.own import OPTIONS, JsonFile, OwnPart, is_own

# -- numbers for a reader ------------------------------------------------------------------------------------------------------

COUNTS = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def count(number: float, digits: int = 3) -> str:
    """1234567 -> '1.23M'; `digits` are the significant ones."""
    for size, suffix in COUNTS:
        if abs(number) >= size:
            return f"{number / size:.{digits}g}{suffix}"
    return f"{number:.{digits}g}"


def bytes_text(number: float) -> str:
    """2040109466 -> '1.9 GiB'."""
    factor, unit = next((each for each in SIZES if number >= each[0]), SIZES[-1])
    return f"{number / factor:.3g} {unit}"


def duration(seconds: float | None) -> str:
    """3661 -> '1:01:01'."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def shown_return(value: float | None) -> str:
    """A return in a few characters."""
    return "-" if value is None else f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def with_interval(found: Mapping[str, float | None], shown: Callable[[float], str]) -> str:
    """A `value` with its interval from `low` to `high`, if it has one: `0.5 [0.4, 0.6]`."""
    value, *interval = (found[name] for name in ("value", "low", "high"))
    assert value is not None
    return shown(value) + (f" [{', '.join(map(shown, interval))}]" if None not in interval else "")  # type: ignore[arg-type]


def plural(number: int, word: str) -> str:
    """`1 seed`, `3 seeds`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


# -- from text to a type -------------------------------------------------------------------------------------------------------

BYTES = {"": 1, "b": 1} | {f"{letter}{end}": 2 ** (10 * power) for power, letter in enumerate("kmgt", 1) for end in ("", "ib")}
BYTES |= {f"{letter}b": 10 ** (3 * power) for power, letter in enumerate("kmgt", 1)}
SUFFIXES = {"k": 10**3, "m": 10**6, "b": 10**9}
TRUE, FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def without_none(hint: Any) -> Any:
    """`T | None` -> `T`: `None` only says that a value may be left out."""
    if typing.get_origin(hint) in (Union, types.UnionType) and not {OwnPart, JsonFile} & set(typing.get_args(hint)):
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    return hint


def choices_of(hint: Any) -> tuple[Any, ...]:
    """The words that a type lists, as in `Literal["none", "lstm"] | OwnPart`; none if it lists no words."""
    literals = [part for part in (hint, *typing.get_args(hint)) if typing.get_origin(part) is Literal]
    return typing.get_args(literals[0]) if literals else ()


def convert(label: str, hint: Any, value: Any) -> Any:
    """A raw value as a field's type, or a `UserError` that says what `label` expects."""
    hint = without_none(hint)
    origin = typing.get_origin(hint)
    if hint is bool:
        return to_bool(label, value)
    if hint is int:
        return to_int(label, value)
    if hint is float:
        return to_float(label, value)
    choices, own_too, file_too = choices_of(hint), OwnPart in typing.get_args(hint), JsonFile in typing.get_args(hint)
    if choices:
        # Or the folder in which such a file is.
        if file_too and (str(value).endswith(".json") or (value not in choices and Path(str(value)).is_dir())):
            return str(value)
        if value not in choices and not (own_too and is_own(value)):
            more, file = " or your own as file.py:name" if own_too else "", " (or a file that ends in .json)" if file_too else ""
            raise UserError(f"{label} expects one of {', '.join(map(str, choices))}{more}, not {value!r}{file}")
        return value
    if origin is tuple:
        return tuple(convert(label, typing.get_args(hint)[0], part) for part in words(value))
    if origin is dict or hint is dict:
        return to_options(label, value)
    return str(value)


def convert_like(label: str, default: Any, value: Any) -> Any:
    """A raw value as the kind of thing that `default` is, or a `UserError`: for options, which have defaults but no type hints.

    Numbers of NumPy or JAX, which may be traced, are left as they are.
    """
    # A traced value has no number yet that could be converted or checked.
    if hasattr(value, "dtype"):
        return value
    if isinstance(default, tuple):
        return _tuple_like(label, default, value)
    if default is None:
        return None if value is None or str(value).lower() == "none" else to_float(label, value)
    if isinstance(default, bool | int | float):
        return convert(label, type(default), value)
    if not isinstance(value, type(default)):
        raise UserError(f"{label} expects {'a word' if isinstance(default, str) else f'a {type(default).__name__}'}, not {value!r}")
    return value


def _tuple_like(label: str, default: tuple, value: Any) -> tuple:
    """Several equal things, or a named tuple such as the bins of a value: `bins=61,60`."""
    names = getattr(default, "_fields", ())
    parts = tuple(value) if isinstance(value, list | tuple) else tuple(value.split(",")) if isinstance(value, str) else (value,)
    if not names:
        return tuple(convert_like(label, default[0], part) for part in parts) if default else parts
    if len(parts) != len(names):
        example = ",".join(f"{each:g}" if isinstance(each, float) else str(each) for each in default)
        raise UserError(f"{label} expects {len(names)} values ({', '.join(names)}), for example {example}, not {value!r}")
    read = (convert_like(f"{label} ({name})", each, part) for name, each, part in zip(names, default, parts, strict=True))
    return type(default)(*read)


def to_bool(label: str, value: Any) -> bool:
    """`true`, `yes`, `on`, `1` and their opposites."""
    text = str(value).lower()
    if text not in TRUE | FALSE:
        raise UserError(f"{label} expects true or false, not {value!r}")
    return text in TRUE


def to_float(label: str, value: Any) -> float:
    """A finite number; `3e-4` too, which YAML alone would read as text."""
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
    except (TypeError, ValueError):
        raise UserError(f"{label} expects a number, not {value!r}") from None
    if not math.isfinite(number):
        raise UserError(f"{label} expects a finite number, not {value!r}")
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
        # A tolerance, because 2.3M times a factor is not exact in floating point.
        if not math.isfinite(number) or abs(number - round(number)) > 1e-6:
            raise ValueError
    except ValueError:
        raise UserError(f"{label} expects a whole number such as 50000, 1e6 or 200k, not {value!r}") from None
    return round(number)


def to_bytes(label: str, value: str) -> int:
    """`4GiB`, `512M`, `2.5 GB` or plain bytes."""
    number, unit = re.split(r"\s*(?=[a-z]*$)", value.strip().lower(), maxsplit=1)
    try:
        size = int(float(number) * BYTES[unit])
    except (KeyError, ValueError, OverflowError):
        # Whatever is wrong with it, the sentence below says what is expected.
        size = 0
    if size <= 0:
        raise UserError(f"{label} expects a size such as 4GiB or 512M, not {value!r}")
    return size


def words(value: Any) -> list[Any]:
    """`64 64` on the command line, `[64, 64]` in a preset, `(64, 64)` or just `64` in Python: the parts."""
    parts = value if isinstance(value, list | tuple) else [value]
    return [word for part in parts for word in str(part).replace(",", " ").split()]


def to_options(label: str, value: Any) -> dict[str, Any]:
    """`rows=8 columns=8` on the command line, a mapping everywhere else."""
    if isinstance(value, dict):
        return {str(name): option for name, option in value.items()}
    options = {}
    for part in value if isinstance(value, list | tuple) else [value]:
        name, equals, text = str(part).partition("=")
        if not equals or not name:
            raise UserError(f"{label} expects KEY=VALUE, not {part!r}")
        options[name] = literal(text)
    return options


def split_options(text: str) -> tuple[str, dict[str, Any]]:
    """What stands before the options of a name, and the options: `catch:rows=5,columns=5` is `catch` with two of them."""
    name, *rest = OPTIONS.split(text, maxsplit=1)
    pieces = [piece for piece in split_commas(rest[0]) if piece] if rest else []
    return name, to_options(f"'{name}'", pieces) if pieces else {}


def split_commas(text: str) -> list[str]:
    """Pieces between the commas that stand in no bracket: `kinds=[[1,0],[2,1]],height=5` has two."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces]


def merge_options(text: str, inside: Mapping[str, Any], beside: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Options that stand in a name together with those beside it, which are in `where`; one that has two values is refused."""
    for name, value in inside.items():
        if name in beside and str(beside[name]) != str(value):
            raise UserError(f"'{text}' has {name}={value}, and {where} has {name}={beside[name]}; give it once")
    return {**beside, **inside}


def literal(text: str) -> Any:
    """What a Python programmer would mean by the text: a number, true/false, a list, else the text itself."""
    if text.lower() in ("true", "false", "none"):
        text = text.capitalize()
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):  # the last two: brackets by the thousand
        return text
