"""Ranges of an environment's constants, as a user writes them: `force=5:15,length=.25:.75`, or a union, `force=1:5|15:20`.

Numbers are uniform over all intervals of a union together, so that a longer one is met more often. Nothing here imports JAX: the
command line reads ranges before it is needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from rulax.errors import UserError
from rulax.text import to_float

Interval = tuple[float, float]
Union = tuple[Interval, ...]  # one interval or several, in ascending order
Ranges = dict[str, Union]  # by the name of the constant

EXAMPLE = "NAME=LOW:HIGH, for example force=5:15 or force=1:5|15:20"


def read_ranges(label: str, value: Any) -> dict[str, Ranges]:
    """Ranges by environment; under "" are those in front of which no environment is named.

    Args:
        label: what an error calls the setting.
        value: text, a list of texts, or a mapping: `{"force": (5, 15), "length": [(0.05, 0.25), (0.75, 1)], "mass": "0.1:0.5"}`.
            An environment in front of a name (`cartpole.force`) is meant for the names after it too. None, "" and "none" are none.
    """
    found: dict[str, Ranges] = {}
    env = ""
    for name, text in _pieces(label, value):
        # The last dot: a name of an environment may have dots as well, as in `mine.py:Corridor`.
        named, dot, constant = name.rpartition(".")
        env = named if dot else env
        if constant in found.setdefault(env, {}):
            raise UserError(f"{label} names {constant} twice; the intervals of one constant are written {constant}=1:2|3:4")
        found[env][constant] = _union(f"{label}: {constant}", text)
    return found


def ranges_of(env: str, label: str, value: Any) -> Ranges:
    """The ranges for one environment; to name another one is an error."""
    found = read_ranges(label, value)
    other = [each for each in found if each not in ("", env)]
    if other:
        raise UserError(f"{label} names the environment '{other[0]}', but this one is '{env}'")
    return {name: union for ranges in found.values() for name, union in ranges.items()}


def write_ranges(ranges: Mapping[str, Union]) -> str:
    """The same as text, for records and tables; `read_ranges` reads it."""
    return ",".join(f"{name}={write_union(union)}" for name, union in ranges.items())


def write_union(union: Union) -> str:
    """`1:5|15:20`."""
    return "|".join(map(_written, union))


def fold_ranges(given: dict[str, Any], env: str) -> dict[str, Any]:
    """Settings in which `randomise` has become the option of that name of the environment, which is what is recorded."""
    ranges = ranges_of(env, "randomise", given.get("randomise"))
    rest = {name: value for name, value in given.items() if name != "randomise"}
    return rest | {"env_options": {**given.get("env_options", {}), "randomise": write_ranges(ranges)}} if ranges else rest


def at(union: Union, share: Any, xp: Any = None) -> Any:
    """The number that lies at this share of a union's length, 0 at its lowest end and 1 at its highest; arrays too.

    `xp` is jax.numpy, or None for numpy. Where all intervals are single numbers, each has an equal share.
    """
    import numpy as np  # here, because `--help` reads this file and should not wait

    xp = xp or np
    low, high = np.array(union, np.float64).T
    length = high - low if np.any(high > low) else np.ones(len(low))
    ends = np.cumsum(length)
    place = share * ends[-1]
    index = xp.minimum(xp.searchsorted(xp.asarray(ends), place, side="right"), len(union) - 1)
    # Clipped, because rounding may carry a number a little beyond its interval.
    value = xp.asarray(low)[index] + place - xp.asarray(ends - length)[index]
    return xp.clip(value, xp.asarray(low)[index], xp.asarray(high)[index])


def _pieces(label: str, value: Any) -> list[tuple[str, Any]]:
    """Names with what was written for them."""
    if value is None or value == "" or value == "none":
        return []
    if isinstance(value, Mapping):
        # `a=1:2,b=3:4` on the command line arrives as {"a": "1:2,b=3:4"}.
        texts = [(f"{name}={each}", None) if isinstance(each, str) else (str(name), each) for name, each in value.items()]
    else:
        texts = [(str(each), None) for each in (value if isinstance(value, list | tuple) else [value])]
    found: list[tuple[str, Any]] = []
    for text, given in texts:
        if given is not None:
            found.append((text, given))
            continue
        for piece in text.strip("() ").split(","):
            name, equals, union = piece.strip().partition("=")
            if not equals or not name:
                raise UserError(f"{label} expects {EXAMPLE}, not '{piece.strip()}'")
            found.append((name, union))
    return found


def _union(label: str, value: Any) -> Union:
    if isinstance(value, str):
        intervals = [_interval(label, each.split(":")) for each in value.split("|")]
    elif isinstance(value, list | tuple) and value and all(isinstance(each, list | tuple) for each in value):
        intervals = [_interval(label, each) for each in value]
    else:
        intervals = [_interval(label, value if isinstance(value, list | tuple) else [value])]
    intervals.sort()
    if any(second[0] < first[1] for first, second in itertools.pairwise(intervals)):
        raise UserError(f"{label} has intervals that overlap: {write_union(tuple(intervals))}")
    if len({low == high for low, high in intervals}) > 1:
        raise UserError(f"{label} has a single number beside an interval, of which it would never be drawn; give one or the other")
    return tuple(intervals)


def _interval(label: str, ends: Any) -> Interval:
    numbers = [to_float(label, each) for each in ends]
    if len(numbers) == 1:  # a number that does not vary
        return numbers[0], numbers[0]
    if len(numbers) != 2:
        raise UserError(f"{label} expects a lowest and a highest number, such as 5:15, not {':'.join(map(str, ends))}")
    if numbers[0] > numbers[1]:
        raise UserError(
            f"{label} begins with its lowest number: {_written((numbers[1], numbers[0]))}, not {_written(tuple(numbers))}"
        )
    return numbers[0], numbers[1]


def _written(interval: Any) -> str:
    low, high = interval
    return f"{low:.12g}" if low == high else f"{low:.12g}:{high:.12g}"
