"""A user's own parts, wherever a name is expected: `module:name` or `file.py:name`, or an object handed over in Python.

A reference such as `rules.py:my_rule` can be written into a run folder and found again. An object cannot: `hold` gives it a name
that is valid in this process only, and a folder that was made with it asks for it again. What only a file has named is not imported
without the user's consent (`consent.py`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NewType

from rulax.errors import UserError, suggestion
from rulax.own import consent

OwnPart = NewType("OwnPart", str)  # in the type of a setting: beside the names listed there, a reference is accepted
JsonFile = NewType("JsonFile", str)  # likewise: the path of a file that ends in .json is accepted
Kind = Literal["env", "rule", "torso", "core", "method"]

REFERENCE = re.compile(r"(?P<where>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")
# From here on a text has options: `mine.py:Corridor:length=5`. Not at the first colon, which references have as well.
OPTIONS = re.compile(r":(?=[A-Za-z_]\w*=)")
MOST_LISTED = 5
MOST_OPTIONS = 40  # characters of options in a title
_held: dict[tuple[str, str], Any] = {}  # by kind and name


# -- references ------------------------------------------------------------------------------------------------------------------


def is_reference(text: str) -> bool:
    """Whether a text is written like `module:name` or `file.py:name`; nothing is imported."""
    return REFERENCE.fullmatch(text) is not None


def shown(name: str) -> str:
    """What tables and pages call it: `rules/mine.py:my_rule` is `my_rule`; other names stay, and so do options at the end.

    Several names may stand beside each other, with commas between them.
    """

    def one(piece: str) -> str:
        found = re.fullmatch(rf"{REFERENCE.pattern}(?P<rest>:.*)?", piece)
        return found["name"] + (found["rest"] or "") if found and found["where"].endswith(".py") else piece

    return ",".join(map(one, name.split(",")))


def shown_with(name: str, options: Mapping[str, Any]) -> str:
    """The same with the options that a user gave, written as the command line takes them: `catch:rows=6`."""
    written = ",".join(f"{key}={value}" for key, value in options.items() if not isinstance(value, Mapping))
    # A title has one line; all options stand in the settings of the page.
    if len(written) > MOST_OPTIONS:
        written = f"{written[:MOST_OPTIONS]}…"
    return f"{shown(name)}:{written}" if written else shown(name)


def without_options(name: str) -> str:
    """What stands before the options of a name: `catch` of `catch:rows=5`, `mine.py:Corridor` of `mine.py:Corridor:length=7`."""
    return OPTIONS.split(name, maxsplit=1)[0]


def find(kind: Kind, reference: str) -> Any:
    """The object that a reference names.

    Args:
        kind: what it is to be, for error messages.
        reference: `module:name` or `file.py:name`; the name may have dots, as in `file.py:Nets.small`.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise UserError(f"{kind}: '{reference}' is not of the form module:name or file.py:name")
    where, name = match["where"], match["name"]
    module = import_file(Path(where)) if where.endswith(".py") else import_module(where)
    thing: Any = module
    for part in name.split("."):
        if not hasattr(thing, part):
            public = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
            raise UserError(f"{kind}: {where} has no '{part}'{suggestion(part, public, _defined(module))}")
        thing = getattr(thing, part)
    return thing


def without_name(file: str) -> str:
    """A sentence about a Python file that stands where `file.py:name` should: what could follow."""
    return f"'{file}' is a Python file: write {file}:NAME; {_defined(import_file(Path(file)))}"


def _defined(module: ModuleType) -> str:
    """What a module itself defines and could be meant, as part of a sentence."""
    public = {each: value for each, value in vars(module).items() if callable(value) and not each.startswith("_")}
    defined = [each for each, value in public.items() if getattr(value, "__module__", None) == module.__name__]
    return f"it defines {', '.join(defined[:MOST_LISTED])}" if defined else "it defines nothing that could be one"


def import_file(path: Path) -> ModuleType:
    """The module in a Python file, imported anew once the file has changed."""
    consent.check(str(path))
    if path.exists() and not path.is_file():
        raise UserError(f"{path} cannot be read: it is not a regular file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    # Not under the file's own name: a file called `random.py` must not take the place of Python's module.
    name = f"_own_{path.stem}_{hashlib.sha256(str(path.resolve()).encode() + content).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    _look_in(path.resolve().parent)  # what it imports may stand beside it
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as Python does: dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, UserError):  # says already what is wrong and what to do, such as which package is missing
            raise
        raise _cannot_import(path, error) from error
    return module


def import_module(name: str) -> ModuleType:
    """A module that Python finds, or that stands in the current folder."""
    consent.check(name)
    _look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that is there and imports something missing is another mistake than a misspelt name.
        if error.name is not None and name.startswith(error.name):
            raise NoSuchModule(f"there is no module '{name}'; a file is written with its ending, as in {name}.py:name") from error
        raise _cannot_import(name, error) from error
    except UserError:  # says already what is wrong and what to do, such as which package is missing
        raise
    except Exception as error:
        raise _cannot_import(name, error) from error


class NoSuchModule(UserError):
    """The part of a reference before the colon names nothing that can be imported."""


def _cannot_import(source: str | Path, error: BaseException) -> UserError:
    """One sentence about an error in the user's own code, with the line in which it was raised."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    line = error.lineno if isinstance(error, SyntaxError) else None
    if line is None:
        own = [
            frame for frame in traceback.extract_tb(error.__traceback__) if os.path.basename(frame.filename) == Path(source).name
        ]
        line = own[-1].lineno if own else None
    where = f" (line {line})" if line is not None else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return UserError(f"{source} cannot be imported: {type(error).__name__}: {text}{where}")


def _look_in(folder: Path) -> None:
    # At the end, so that nothing of the user's shadows an installed package.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def hashes(*references: str) -> dict[str, str]:
    """The content of the files that references point into, as hashes: a record of which version a run was made with."""
    files = {each: match["where"] for each in references if (match := REFERENCE.match(each)) and match["where"].endswith(".py")}
    found = {each: Path(file) for each, file in files.items()}
    return {each: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for each, path in found.items() if path.is_file()}


# -- objects ---------------------------------------------------------------------------------------------------------------------


def hold(kind: Kind, thing: Any, name: str = "", taken: tuple[str, ...] = ()) -> str:
    """Keep an object under its own name and return that name, which works wherever names of its kind do in this process.

    What was held under the same name before is forgotten: a class that was defined anew in a notebook takes its own place.

    Args:
        kind: what it is.
        thing: the object.
        name: what to call it, instead of what it calls itself.
        taken: names that mean something else.
    """
    name = own_name = re.sub(r"[^\w.-]+", "-", name or name_of(thing)).strip("-") or kind
    number = 2
    while name in taken:
        name, number = f"{own_name}-{number}", number + 1
    _held[kind, name] = thing
    return name


@contextmanager
def holding() -> Iterator[None]:
    """Around one call of a user: objects that are held in it are forgotten afterwards, so that no name changes its meaning.

    Networks stay, because agents that are restored later are built from them again.
    """
    before = dict(_held)
    try:
        yield
    finally:
        networks = {place: thing for place, thing in _held.items() if place[0] in ("torso", "core")}
        _held.clear()
        _held.update(before | networks)


def is_own(name: Any) -> bool:
    """Whether a text names a user's own part of any kind: a reference, or an object that is held."""
    return isinstance(name, str) and (is_reference(name) or any(each == name for _, each in _held))


def get(kind: Kind, name: str) -> Any:
    """The user's own part of that name: the object that is held under it, or what the reference points to."""
    thing = held(kind, name)
    return find(kind, name) if thing is None else thing


def held(kind: Kind, name: str) -> Any:
    """The object of that name, or None."""
    return _held.get((kind, name))


def is_nameless(thing: Any) -> bool:
    """Whether it is a function without a name of its own: `lambda: Corridor(7)`."""
    return getattr(thing, "__name__", None) == "<lambda>"


def name_of(thing: Any) -> str:
    """What an object calls itself: its `name`, a function's or class's own (behind `functools.partial`, too), or its class's."""
    if isinstance(thing, functools.partial):
        return name_of(thing.func)
    own = getattr(thing, "name", None)
    if isinstance(own, str) and own:
        return own
    name = getattr(thing, "__name__", None)
    if isinstance(name, str) and name != "<lambda>":
        return name
    return type(thing).__name__
