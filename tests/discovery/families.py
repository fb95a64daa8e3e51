"""Families small enough to compile a whole meta-gradient in seconds: an environment that counts, and a rule without a
meta-network."""

import dataclasses
import functools

import jax

from rulax.discovery.population import Family, init_population
from rulax.rules.base import Recipe
from rulax.settings import Learning
from tests.discovery.environments import ACTIONS, NETWORK, SETTINGS, smooth_rule
from tests.learning.environments import Counter

LEARNING = Learning(streams=2, unroll=3, replay=0.5, capacity=4, learning_rate=0.05)


def make_family(learning: Learning = LEARNING, **settings) -> Family:
    """Agents that count and learn by the smooth rule; half of what they learn from is replayed."""
    chosen = dataclasses.replace(SETTINGS, **settings)
    return Family("counter", Counter(num_actions=ACTIONS), Recipe(smooth_rule(), learning, NETWORK), chosen)


@functools.cache
def population(agents: int = 2):
    """Fresh members of `make_family()`, [K]; nobody changes them."""
    # Also inside of a function that is being compiled: cached tracers would leak into the next test.
    with jax.ensure_compile_time_eval():
        return jax.jit(lambda key: init_population(make_family(agents=agents), key))(jax.random.key(0))


def member(index: int = 0):
    return jax.tree.map(lambda x: x[index], population())


@functools.cache
def rule_params():
    with jax.ensure_compile_time_eval():
        return jax.jit(smooth_rule().init)(jax.random.key(1))
