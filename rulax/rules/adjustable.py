"""Constants of a rule as arrays that may change during a life, and differ between the agents of a population.

    rule = adjustable(lambda constants: actor_critic(**constants), {"discount": 0.99, "entropy_cost": 0.01})
    trainer.rule_params = trainer.rule_params | {CONSTANTS: {"discount": [0.9, 0.99], "entropy_cost": [0.01, 0.02]}}

Beside the rule's own parameters, if it has some, stand the constants themselves; `tunable.py` puts log odds there, which a gradient
may move. The rule is made anew from them wherever it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import jax
import jax.numpy as jnp

from rulax.rules.base import UpdateRule
from rulax.types import Array, Batch, Experience, Metrics, Predictions, PyTree

CONSTANTS, OWN = "constants", "own"  # parts of the parameters


def adjustable(make: Callable[[Mapping[str, Array | float]], UpdateRule], begin: Mapping[str, float]) -> UpdateRule:
    """The rule that `make` makes, with its constants in `rule_params`.

    Args:
        make: from constants by name, which may be traced, to a rule.
        begin: the constants, each with the value that `init` gives it.
    """
    plain = make(begin)  # for what does not depend on the constants' values: heads, parameters, and the first state

    def init(key: Array) -> PyTree:
        constants = {name: jnp.asarray(value, jnp.float32) for name, value in begin.items()}
        return {CONSTANTS: constants, OWN: plain.init(key)}

    def targets(rule_params: PyTree, rule_state: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Metrics]:
        with telling(begin):
            return make(rule_params[CONSTANTS]).targets(rule_params[OWN], rule_state, batch)

    def loss(rule_params: PyTree, taken: Predictions, targets: PyTree, experience: Experience) -> tuple[Array, Metrics]:
        with telling(begin):
            return make(rule_params[CONSTANTS]).loss(rule_params[OWN], taken, targets, experience)

    return UpdateRule(plain.heads, init, plain.start, targets, loss, plain.priority)


@contextmanager
def telling(names: Iterable[str]) -> Iterator[None]:
    """Around a rule that asks for the number in an array, which has none while a program is made."""
    try:
        yield
    except jax.errors.ConcretizationTypeError:
        raise ValueError(f"the rule decides by one of {', '.join(names)} what it computes, so that one cannot change") from None
