"""One reader per format, which can only return good data or raise the user's error: bytes, JSON, lines of JSON, YAML.

A file may be cut off, damaged, of another kind or hostile. So only regular files of a bounded size are opened, and what comes back
consists of plain values: text that can be encoded, numbers that a float can hold, names that are text, and no deep nesting. Readers
that need more say which form they expect (`misfit`); what interprets the content beyond its form does so inside of `blamed`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import stat
import types
import typing
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rulax.errors import UserError

MOST_BYTES = 2**30  # of a JSON file; the largest that Rulax writes have some megabytes
MOST_YAML = 2**18  # YAML takes seconds per megabyte, and a preset has a few lines
DEEPEST = 64  # levels of nesting
LARGEST = 2**63 - 1  # of whole numbers, as arrays hold them
# What careless handling of damaged content raises; `blamed` turns all of it into one sentence.
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, RecursionError, MemoryError)


# -- bytes ---------------------------------------------------------------------------------------------------------------------


def read_bytes(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """The contents of a regular file of at most so many bytes; anything else is a `UserError`."""
    path = Path(path)
    try:
        # Without blocking, or opening a pipe would wait for somebody to write into it; on a regular file it has no effect.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            about = os.fstat(file.fileno())
            if stat.S_ISDIR(about.st_mode):
                raise UserError(f"{path} cannot be read: it is a folder")
            if not stat.S_ISREG(about.st_mode):
                raise UserError(f"{path} cannot be read: it is not a regular file")
            if about.st_size > most:
                raise UserError(f"{path} is too large ({about.st_size / 2**20:,.0f} MB; at most {most / 2**20:,.0f} MB)")
            return file.read(about.st_size)  # bounded again, as it may grow meanwhile
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise UserError(f"{path} cannot be read: it does not fit into memory") from None
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} cannot be read: {error}") from None  # a name with a zero byte


# -- JSON ----------------------------------------------------------------------------------------------------------------------


def parse_json(data: bytes | str, finite: bool = True) -> Any:
    """The plain values in a JSON text; a ValueError that says in a few words what is wrong with any other.

    Args:
        data: the text.
        finite: whether all numbers must be; Python also writes those that are not.
    """
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        return plain(json.loads(text), finite)
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_yaml(data: bytes) -> Any:
    """The same of a YAML text."""
    import yaml  # here, because most commands never read a preset

    class Loader(yaml.SafeLoader):
        """Without references within the file, by which a few lines could stand for billions of values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event = self.get_event()
                raise yaml.composer.ComposerError(None, None, "references are not read", event.start_mark)
            return super().compose_node(parent, index)

    try:
        return plain(yaml.load(data, Loader))
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        raise ValueError("it cannot be parsed" if mark is None else f"line {mark.line + 1} cannot be parsed") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    # The library lets what its own conversions raise through: `2020-13-45`, `0x`, a number of ten thousand digits.
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def plain(value: Any, finite: bool = True, level: int = 0) -> Any:
    """A value of the kinds that JSON has, with text for names; a ValueError for any other."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a character, which is no text") from None
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > LARGEST:
            raise ValueError(f"it holds a whole number of {value.bit_length()} bits")
        return value
    if isinstance(value, float):
        if finite and not math.isfinite(value):
            raise ValueError("it holds a number that is not finite")
        return value
    if level >= DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(value, list):
        return [plain(item, finite, level + 1) for item in value]
    if isinstance(value, dict):
        return {_name(name): plain(item, finite, level + 1) for name, item in value.items()}
    raise ValueError(f"it holds a {type(value).__name__}, where only text, numbers, lists and names with values can stand")


def _name(value: Any) -> str:
    # YAML reads a bare 1 as a number.
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ValueError(f"it holds the name {value!r}, which is not text")
    return plain(str(value))


def load_json(path: Path, advice: str = "", form: Any = dict[str, Any]) -> dict[str, Any]:
    """The object in a JSON file that must be there; else a `UserError`, which ends with the advice. `form` is that of `misfit`."""
    try:
        found = parse_json(read_bytes(path))
    except UserError as error:
        raise UserError(f"{error}{advice}") from None
    except ValueError as error:
        raise UserError(f"{path} cannot be read: {error}{advice}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path} cannot be read: it holds no JSON object{advice}")
    if problem := misfit(found, form):
        raise UserError(f"{path} cannot be read: {problem}{advice}")
    return found


def read_json(path: Path, form: Any = dict[str, Any]) -> dict[str, Any]:
    """The object in a JSON file; an empty one if the file is missing, broken, or of another form."""
    try:
        return load_json(path, form=form)
    except UserError:
        return {}


def read_json_lines(path: Path, good: Callable[[dict[str, Any]], bool]) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects in a file of one per line, and the numbers of the lines that are broken: cut off, damaged, or not `good`."""
    rows, broken = [], []
    # As bytes and at newlines only: splitlines would also break at separators inside of text and shift all line numbers.
    for number, line in enumerate(read_bytes(path).split(b"\n") if path.exists() else [], 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError:
            row = None
        if isinstance(row, dict) and good(row):
            rows.append(row)
        else:
            broken.append(number)
    return rows, broken


# -- what a file is expected to hold -------------------------------------------------------------------------------------------


def misfit(value: Any, form: Any, where: str = "it") -> str:
    """Where a value has not the form of a type, as part of a sentence; empty if it has.

    Forms are written as types: `dict[str, float | None]`, `list[int]`, `float` for any number. Objects with known names are
    dataclasses or named tuples, which are made from them, or `TypedDict`s, beside whose names others may stand.
    """
    origin, inside = typing.get_origin(form), typing.get_args(form)
    if form is Any:
        return ""
    if origin is typing.Literal:
        return "" if value in inside else f"{where} is none of {', '.join(map(str, inside))}"
    if origin in (typing.Union, types.UnionType):
        problems = [misfit(value, each, where) for each in inside]
        return "" if "" in problems else problems[0]
    if typing.is_typeddict(form) or dataclasses.is_dataclass(form) or hasattr(form, "_fields"):
        return _misfit_names(value, form, where)
    if origin is dict:
        if not isinstance(value, dict):
            return f"{where} is not an object with names"
        return next(filter(None, (misfit(item, inside[1], _at(where, name)) for name, item in value.items())), "")
    if origin is tuple:
        if not isinstance(value, list) or len(value) != len(inside):
            return f"{where} is not a list of {len(inside)}"
        problems = [misfit(item, each, _at(where, number)) for number, (item, each) in enumerate(zip(value, inside, strict=True))]
        return next(filter(None, problems), "")
    if origin is list:
        if not isinstance(value, list):
            return f"{where} is not a list"
        return next(filter(None, (misfit(item, inside[0], _at(where, number)) for number, item in enumerate(value))), "")
    kinds = {float: (int, float), type(None): (type(None),)}.get(form, (form,))
    # `type` and not isinstance: to the latter true is a number.
    words = {float: "a number", int: "a whole number", str: "text", bool: "true or false", type(None): "null"}
    return "" if type(value) in kinds else f"{where} is not {words.get(form, form.__name__)}"


def _misfit_names(value: Any, form: Any, where: str) -> str:
    if isinstance(value, list) and hasattr(form, "_fields"):  # as JSON writes a named tuple
        value = dict(zip(form._fields, value, strict=False))
    if not isinstance(value, dict):
        return f"{where} is not an object with names"
    hints, needed = typing.get_type_hints(form), _needed(form)
    for name, hint in hints.items():
        if name in value and (problem := misfit(value[name], hint, _at(where, name))):
            return problem
        if name not in value and name in needed:
            return f"{where} has no '{name}'"
    unknown = () if typing.is_typeddict(form) else sorted(set(value) - set(hints))
    return f"{where} has an unknown name '{unknown[0]}'" if unknown else ""


def _needed(form: Any) -> Collection[str]:
    """The names that an object of a form must have."""
    if typing.is_typeddict(form):
        return form.__required_keys__
    if not dataclasses.is_dataclass(form):
        return set(form._fields) - set(form._field_defaults)
    nothing = dataclasses.MISSING
    return [field.name for field in dataclasses.fields(form) if field.default is nothing and field.default_factory is nothing]


def _at(where: str, name: Any) -> str:
    return f"'{name}'" if where == "it" else f"{where}[{name!r}]"


@contextmanager
def blamed(what: object, advice: str = "") -> Iterator[None]:
    """Around code that only interprets what was read from files: whatever fails there, their content is to blame."""
    try:
        yield
    except UserError:
        raise
    except DAMAGE as error:
        raise UserError(f"{what} does not hold what rulax writes there ({type(error).__name__}: {error}){advice}") from error
