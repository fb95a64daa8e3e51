"""Constants of a hand-designed rule as parameters to be learned: meta-gradient reinforcement learning (Xu et al. 2018).

    rule = tunable(actor_critic, "discount", "trace", start={"discount": 0.6})
    rule_params = {"discount": logit(0.6), "trace": logit(0.95)}

Each chosen constant is the sigmoid of a parameter, so that it cannot leave (0, 1), or a limit times it where 1 is not the largest
value that makes sense. The rule is made anew from its parameters wherever it is called, so that its targets and its loss are
differentiable functions of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Metrics, Predictions, PyTree

UP_TO_1: Mapping[str, float] = MappingProxyType({})  # no constant has a limit of its own


def tunable(
    make: Callable[..., UpdateRule],
    *names: str,
    start: Mapping[str, float] | None = None,
    limits: Mapping[str, float] = UP_TO_1,
    **fixed: Any,
) -> UpdateRule:
    """The rule that `make(**fixed)` makes, with some of its constants in `rule_params`.

    Args:
        make: a function that makes a hand-designed rule from keyword arguments.
        names: the constants to learn, arguments of `make` that default to a float.
        start: initial values of some of them, each between 0 and its limit; the others start at their defaults.
        limits: what constants stay below, if not 1.
        fixed: other arguments of `make`.
    """
    begin = starting_values(make, names, start or {}, fixed, limits)
    # Only for its heads and its first state, which do not depend on the constants' values.
    plain = make(**fixed, **begin)

    def rule_with(rule_params: PyTree) -> UpdateRule:
        return make(**fixed, **constants_of(rule_params, limits))

    def init(key: Array) -> dict[str, Array]:
        del key
        return parameters_of(begin, limits)

    def targets(rule_params: PyTree, rule_state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        made, rule_state, metrics = rule_with(rule_params).targets({}, rule_state, batch)
        return made, rule_state, metrics | constants_of(rule_params, limits)

    def loss(rule_params: PyTree, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        return rule_with(rule_params).loss({}, taken, targets, experience)

    return UpdateRule(plain.heads, init, plain.start, targets, loss, plain.priority)


def parameters_of(constants: Mapping[str, float | np.ndarray], limits: Mapping[str, float] = UP_TO_1) -> dict[str, Array]:
    """The parameters that stand for the given constants: scalars, or [K] for arrays with one constant per agent."""
    # In float64, because 1 - share cancels for constants close to their limit, such as a discount.
    shares = {name: np.asarray(value, np.float64) / limits.get(name, 1.0) for name, value in constants.items()}
    return {name: jnp.asarray(np.log(share / (1 - share)), jnp.float32) for name, share in shares.items()}


def constants_of(rule_params: Mapping[str, Array], limits: Mapping[str, float] = UP_TO_1) -> dict[str, Array]:
    """The constants that a tunable rule's parameters stand for; of the same shapes, [] or [K]."""
    return {name: limits.get(name, 1.0) * jax.nn.sigmoid(value) for name, value in rule_params.items()}


def starting_values(
    make: Callable[..., UpdateRule],
    names: tuple[str, ...],
    start: Mapping[str, float],
    fixed: Mapping[str, Any],
    limits: Mapping[str, float],
) -> dict[str, float]:
    """The initial value of each constant; a ValueError if one of them cannot be tuned."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(make).parameters.items()}
    numbers = [name for name, default in defaults.items() if isinstance(default, float)]
    known = f"its constants are {', '.join(numbers)}"
    for name in (*names, *start):
        if name not in numbers:
            raise ValueError(f"{make.__name__} has no constant '{name}' to tune; {known}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"name the constants of {make.__name__} to tune, each once; {known}")
    for name in limits:
        if name not in names:
            raise ValueError(f"'{name}' has a limit but is not tuned: name it too")
    for name in (*start, *fixed):
        # What has a start must be tuned; what is fixed must not be.
        if (name in start) != (name in names):
            raise ValueError(f"'{name}' is either tuned or fixed, not both: name it, or give its value as an argument")
    begin = {name: float(start.get(name, defaults[name])) for name in names}
    for name, value in begin.items():
        most = limits.get(name, 1.0)
        if not 0 < value < most:
            bounds = f"{make.__name__}: a tuned {name} lies between 0 and {most:g}"
            raise ValueError(f"{bounds}, so it cannot begin at {value:g}; give a start, or a limit")
    return begin
