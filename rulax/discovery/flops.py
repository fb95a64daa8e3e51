"""Counts the work of a program before it is compiled. The compiler's own count counts the body of a loop once."""

from __future__ import annotations

import math
from typing import Any


def matrix_flops(jaxpr: Any) -> float:
    """Floating-point operations of all matrix products of a traced program, those in scans as often as they run."""
    total = 0.0
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
        times = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += times * sum(matrix_flops(inner) for inner in programs_in(equation))
    return total


def programs_in(equation: Any) -> list[Any]:
    """The programs that an equation runs: bodies of loops, functions that it calls."""
    found = []
    for value in equation.params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if hasattr(one, "eqns") or hasattr(getattr(one, "jaxpr", None), "eqns"):
                found.append(one)
    return found
