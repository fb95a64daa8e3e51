"""Whose words name code: what a file names is imported only if the user names it too, or trusts the file.

To import a module is to run it. A preset, a `config.json` or an agent file may come from anybody, and what they name may lie in the
folder that they came with. So their readers say what the files hold (`doubt`), and before anything is imported by name (`check`),
it must stand among the user's own words, or in no file that was read.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

from rulax.errors import UserError

P = ParamSpec("P")
R = TypeVar("R")
FLAG = "--trust"
NAMES = re.compile(r"[\w./~-]+\.py\b|[\w./~-]+(?=:)")  # what is named as code: a Python file, or a module before its colon
_doubted: dict[str, str] = {}  # texts of files, each with the file
_named: set[str] = set()  # words of the user
_trusting = False
_depth = 0  # of calls from Python inside of each other


def begin(words: Iterable[str] = (), trusting: bool = False) -> None:
    """A new command, of these words; whatever was read before is forgotten."""
    global _trusting
    _doubted.clear()
    _named.clear()
    _trusting = trusting
    name(list(words))


def name(value: Any) -> None:
    """What the user has written, in whatever lists and mappings it stands."""
    for text in texts(value):
        _named.update(NAMES.findall(text))


def trust(*sources: str) -> None:
    """Let files name this code: `rulax.trust("mine.py")`, or a module. It holds until Python ends."""
    _named.update(sources)


def doubt(value: Any, source: object) -> None:
    """What a file says, which may name code."""
    _doubted.update(dict.fromkeys(naming_code(value), str(source)))


def naming_code(value: Any) -> list[str]:
    """The texts in a value that could lead to an import: every reference has a colon, or is a Python file."""
    return sorted({text for text in texts(value) if ":" in text or ".py" in text})


def check(module: str) -> None:
    """Refuse to import a module, or a Python file, that only a file has named."""
    source = next((source for text, source in _doubted.items() if module in text), "")
    if source and not _trusting and not any(_same(module, each) for each in _named):
        raise UserError(
            f"{source} names code to import, '{module}', which would run with your rights: if you trust it, give {FLAG}, or name "
            f"{module} on the command line yourself (from Python: rulax.trust('{module}'))"
        )


def from_python(function: Callable[P, R]) -> Callable[P, R]:
    """Around what Python users call: their arguments are their own words, and files read by an earlier call are forgotten."""

    @functools.wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> R:
        global _depth
        if not _depth:
            _doubted.clear()
            name([*arguments, *keywords.values()])
        _depth += 1
        try:
            return function(*arguments, **keywords)
        finally:
            _depth -= 1

    return called


def texts(value: Any) -> Iterator[str]:
    """Every text in lists and mappings, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from texts(item)


def _same(module: str, word: str) -> bool:
    if module in (word, word.partition("/")[2]):  # `gymnasium/mine:Id-v0`
        return True
    return module.endswith(".py") and word.endswith(".py") and os.path.realpath(module) == os.path.realpath(word)
