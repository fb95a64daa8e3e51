"""Whether two environments are the same one, however they were written: `CartPole-v1` is `gymnasium/CartPole-v1`.

Held-out scores depend on it, and neither names nor `==` can tell: adapters hold functions and objects of other libraries, which are
compared by identity. So an environment is described by what it is made of: its class and fields, and of a function its code and
what it closes over.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

STEPPING = ("threads", "num_threads", "processes")  # how an environment is stepped, not which one it is
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
PLAIN = (bool, int, float, str, bytes, type(None))


def same(one: Any, other: Any) -> bool:
    """Whether two environments are made of the same parts."""
    return one is other or describe(one) == describe(other)


def describe(thing: Any, inside: tuple[int, ...] = ()) -> str:
    """What something is made of, as text; `inside` are the objects that it was found in, for those that hold each other."""
    if isinstance(thing, PLAIN):
        return repr(thing)
    if id(thing) in inside:
        return "..."
    inside = (*inside, id(thing))
    if hasattr(thing, "processes") and hasattr(thing, "environment"):  # shared out: what is in the processes
        return describe(thing.environment, inside)
    if isinstance(thing, np.ndarray | jax.Array):
        array = np.asarray(thing)
        return f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
    if isinstance(thing, Mapping):
        kept = {str(key): value for key, value in thing.items() if key not in STEPPING}
        return f"{{{_fields(kept, inside)}}}"
    if isinstance(thing, tuple | list | set | frozenset):
        return f"[{_listed(sorted(thing, key=repr) if isinstance(thing, set | frozenset) else thing, inside)}]"
    if isinstance(thing, functools.partial):
        return f"{describe(thing.func, inside)}({_listed(thing.args, inside)}; {_fields(thing.keywords, inside)})"
    if hasattr(thing, "__code__"):
        return _of_function(thing, inside)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        values = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
        return f"{_name(type(thing))}({_fields(values, inside)})"
    # Of an object of another library only what is plain: the rest may be where it is in an episode.
    plain = {name: value for name, value in getattr(thing, "__dict__", {}).items() if isinstance(value, PLAIN)}
    return f"{_name(thing) if isinstance(thing, type) else ADDRESS.sub('', repr(thing))}({_fields(plain, inside)})"


def _of_function(function: Any, inside: tuple[int, ...]) -> str:
    code, cells = function.__code__, function.__closure__ or ()
    # Names and constants as well: the bytes of two lambdas are the same where only these differ.
    constants = [each for each in code.co_consts if isinstance(each, PLAIN)]
    held = [_content(cell) for cell in cells]
    body = f"{code.co_code.hex()}{code.co_names}{constants}"
    return f"{_name(function)}<{hashlib.sha256(body.encode()).hexdigest()[:16]}>({_listed(held, inside)})"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _fields(values: Mapping[str, Any], inside: tuple[int, ...]) -> str:
    return ", ".join(f"{name}={describe(value, inside)}" for name, value in sorted(values.items()))


def _listed(values: Iterable[Any], inside: tuple[int, ...]) -> str:
    return ", ".join(describe(value, inside) for value in values)
