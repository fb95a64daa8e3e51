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


# Kept per precision: what a test in float64 made first would otherwise be given to those in float32 as well.
def population(agents: int = 2):
    """Fresh members of `make_family()`, [K]; nobody changes them."""
    return made_population(agents, jax.config.jax_enable_x64)


def member(index: int = 0):
    return jax.tree.map(lambda x: x[index], population())


def rule_params():
    return made_rule_params(jax.config.jax_enable_x64)


@functools.cache
def made_population(agents: int, x64: bool):
    # Also inside of a function that is being compiled: cached tracers would leak into the next test.
    with jax.ensure_compile_time_eval():
        return jax.jit(lambda key: init_population(make_family(agents=agents), key))(jax.random.key(0))


@functools.cache
def made_rule_params(x64: bool):
    with jax.ensure_compile_time_eval():
        return jax.jit(smooth_rule().init)(jax.random.key(1))
