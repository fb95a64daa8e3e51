"""Reads dataclass fields as a user sees them: help texts, types, names of flags, and what a resumed run may change."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
import typing
from typing import Any

from rulax.text import without_none


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstring under each field, which Python itself does not keep."""
    docs = {}
    # Base classes first, so that a subclass that declares a field anew also replaces its text.
    for part in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0].body  # type: ignore[attr-defined]
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                docs[field.target.id] = ast.literal_eval(text.value)
    # Filled in here and not in the shared base class: which settings may change differs from command to command.
    if any("{changeable}" in text for text in docs.values()):
        docs = {name: text.replace("{changeable}", flags_in_words(changeable(cls))) for name, text in docs.items()}
    return docs


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
    """Every field's type, without the `| None` that only says that it may be left out."""
    return {name: without_none(hint) for name, hint in typing.get_type_hints(cls).items()}


def changeable(cls: type) -> list[str]:
    """The settings that a resumed run may change."""
    return [field.name for field in in_order(cls) if field.metadata.get("on_resume")]


def in_order(cls: type) -> list[dataclasses.Field]:
    """The fields as `--help` shows them: the command's own, those that it shares with others, then settings of agents."""
    # Not dataclasses.fields, which also lists what is inherited. `sorted` is stable, so declaration order remains within each kind.
    own = inspect.get_annotations(cls)
    return sorted(dataclasses.fields(cls), key=lambda field: (bool(field.metadata.get("settings")), field.name not in own))


def flag_name(name: str) -> str:
    """`learning_rate` -> `--learning-rate`; `from_` -> `--from`, which Python keeps for itself."""
    return "--" + name.rstrip("_").replace("_", "-")


def flags_in_words(names: list[str]) -> str:
    """`--steps, --platform and --quiet`."""
    *others, last = map(flag_name, names)
    return f"{', '.join(others)} and {last}" if others else last
