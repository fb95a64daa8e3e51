"""Problems for estimators: a quadratic, the discovery of a rule, whole lives, an initialisation (MAML), and meta-gradient RL.

Each is a function that returns a `Given`; `SENSIBLE` names the estimators that make sense for each.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.agents import make_agent
from rulax.discovery.estimators import ESTIMATORS, Problem
from rulax.discovery.memory import Updates
from rulax.discovery.meta_step import rule_problem
from rulax.discovery.whole_life import whole_life_problem
from rulax.envs.choice import DelayedChoice
from rulax.envs.regression import Sinusoid
from rulax.learning.update import Learner
from rulax.methods.adaptation import adapt, regression_tasks
from rulax.methods.maml import outer_problem
from rulax.methods.meta_gradient import MetaGradient, init_online_state, online_problem
from rulax.rules.regression import regression
from rulax.settings import Learning, Network
from tests.discovery.families import LEARNING, make_family, member, rule_params

DIFFERENTIABLE = ("backprop", "first_order")


class Given(NamedTuple):
    problem: Problem
    meta_params: Any
    member: Any


class Seed(NamedTuple):
    """A member that is nothing but randomness."""

    key: jax.Array


def split_seed(seed):
    key, drawn = jax.random.split(seed.key)
    return Seed(key), drawn


CURVATURE, LOWEST, RATE = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.3, -0.7]), 0.1


def slope(x):
    """The gradient of the quadratic."""
    return CURVATURE @ (x - LOWEST)


class Arrived(NamedTuple):
    """A member of the quadratic: where it is, and its randomness."""

    at: jax.Array
    key: jax.Array


def quadratic():
    """Half of (x - b)^T A (x - b) where a life begins; the life is one step of gradient descent."""

    def live(updates, rule_params, arrived):
        return arrived._replace(at=arrived.at - RATE * slope(arrived.at)), arrived.at, {}

    def loss(x):
        return 0.5 * (x - LOWEST) @ slope(x)

    problem = Problem(
        enter=lambda x, arrived: ({}, arrived._replace(at=x)),
        live=live,
        updates=Updates(lambda *_: None),
        judge=lambda updates, rule_params, arrived, window: (loss(window), {}),
        fitness=lambda arrived, window, metrics: -loss(window),
        end_params=lambda arrived: arrived.at,
        split_key=lambda arrived: (arrived._replace(key=jax.random.split(arrived.key)[0]), jax.random.split(arrived.key)[1]),
    )
    return Given(problem, jnp.array([1.5, 0.4]), Arrived(jnp.zeros(2), jax.random.key(0)))


def discovery():
    """A rule is discovered: what a life changes is not the rule, so there is nothing for `displacement`."""
    return Given(rule_problem(make_family(), "plain"), rule_params(), member())


def whole_lives():
    """An agent lives from its first update to its last. Nothing of it is differentiated, so there is no loss."""
    family = make_family(dataclasses.replace(LEARNING, learning_rate=0.5), estimator="evolution", fitness="lifetime")
    return Given(whole_life_problem(family), rule_params(), member())


def initialisation():
    """MAML on one wave: an agent's initial parameters are learned."""
    rule, learner = regression(), Learner(regression(), optax.sgd(0.1))
    network = Network(hidden=(4, 3), activation="tanh", torso="mlp")

    @jax.jit
    def make():
        agent = make_agent(jax.random.key(0), jax.ShapeDtypeStruct((1,), jnp.float32), 1, rule.heads(1), network)
        return agent, adapt(regression_tasks(Sinusoid(), 5, 7), learner, agent, jax.random.key(1), 2)

    return Given(outer_problem(learner, rule), *make())


def meta_gradient():
    """The discount and trace of an agent are learned within its life."""
    method = MetaGradient(
        DelayedChoice(longest=4),
        updates=2,
        learning=Learning(streams=3, unroll=4, learning_rate=0.01),
        network=Network(hidden=(6,), activation="tanh"),
    )
    state = jax.jit(functools.partial(init_online_state, method))(jax.random.key(0))
    return Given(online_problem(method), state.meta_params, state.online)


PROBLEMS = {each.__name__: functools.cache(each) for each in (quadratic, discovery, whole_lives, initialisation, meta_gradient)}
SENSIBLE = {
    "quadratic": tuple(ESTIMATORS),
    "discovery": (*DIFFERENTIABLE, "evolution"),
    "whole_lives": ("evolution",),
    "initialisation": tuple(ESTIMATORS),
    "meta_gradient": (*DIFFERENTIABLE, "evolution"),
}
