"""An upper bound of the memory that a traced program needs, in seconds instead of the minutes that compiling takes.

The compiler gives every value of a program at most one buffer, and runs a loop's body in the same buffers at every turn; what a
loop stacks is among its own outputs. So all values together, each once, bound what is alive at any time; loops may copy what they
carry, hence twice. Fusion and reuse make the real number many times smaller: a bound can say that something fits, never that it
does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

COPIES = 2


def bound_of(jaxpr: Any) -> int:
    """Bytes that the values of a (closed) jaxpr take at most."""
    return COPIES * bytes_of_values(getattr(jaxpr, "jaxpr", jaxpr))


def bytes_of_values(jaxpr: Any) -> int:
    """Bytes of all values that a jaxpr computes, those of inner programs included, each once."""
    total = 0
    for equation in jaxpr.eqns:
        total += sum(size_of(variable.aval) for variable in equation.outvars)
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    total += bytes_of_values(inner)
    return total


def size_of(aval: Any) -> int:
    """Bytes of one value; a random key counts as four words."""
    shape = getattr(aval, "shape", ())
    itemsize = getattr(getattr(aval, "dtype", None), "itemsize", 16) or 16
    return int(np.prod(shape, dtype=np.int64)) * itemsize
