"""A rule whose loss is a network (the one that docs/rules.md shows): its meta-gradient against finite differences, and discovery.

The rule's parameters enter nothing but the loss, so that every derivative measured here passes through it.
"""

import dataclasses
import itertools

import jax
import numpy as np
import optax
import pytest

from rulax.discovery.discover import Discoverer
from rulax.discovery.memory import STRATEGIES
from rulax.discovery.population import Family
from rulax.rules.base import Recipe
from rulax.settings import Learning, Network
from rulax.values.two_hot import Bins
from tests.discovery.environments import ACTIONS, SETTINGS, jitted_record, make_learner
from tests.discovery.test_memory import assert_derivative, outcome_of
from tests.learning.environments import Counter
from tests.rules.test_docs import example

RULE = example("A loss that is learned")["learned_surrogate"](hidden=3, bins=Bins(5, 4.0))
IN_EVERY_RUN = (("mixed", 1), ("remat", 2))  # the gradient with a derivative of its own, and several passes over a batch
CASES = [(strategy, 1) for strategy in STRATEGIES] + [(strategy, 2) for strategy in ("plain", "remat", "segments")]


@pytest.mark.parametrize(
    ("strategy", "epochs"), [case if case in IN_EVERY_RUN else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]
)
def test_the_meta_gradient_is_that_of_finite_differences(strategy, epochs):
    """Smooth activations and an Adam whose denominator is differentiated; two epochs make two steps of one stream each."""
    with jax.enable_x64(True):
        learner = make_learner(RULE, optax.adam(0.1, eps=1e-2, eps_root=1e-4))._replace(epochs=epochs, minibatches=epochs)
        compiled = outcome_of(learner, strategy, jitted_record(learner, 2))
        params = jax.jit(RULE.init)(jax.random.key(0))
        grads = compiled(params)[1]
        assert all(np.abs(leaf).max() > 1e-9 for leaf in jax.tree.leaves(grads)[:-1])  # but for the last bias: a constant loss
        assert_derivative(lambda p: compiled(p)[0], params, grads)


@pytest.mark.parametrize("estimator", ["backprop", "evolution"])
def test_it_is_discovered(estimator):
    """A few meta-steps of the real thing: no agent is lost, and every weight of the loss is moved by its gradient."""
    settings = dataclasses.replace(SETTINGS, estimator=estimator, memory="remat", noise=0.3, meta_optimiser="mean")
    learning = Learning(streams=2, unroll=3, epochs=2, minibatches=2, learning_rate=0.3)
    recipe = Recipe(RULE, learning, Network(torso="mlp", hidden=(4,), activation="tanh"))
    discoverer = Discoverer([Family("counter", Counter(num_actions=ACTIONS), recipe, settings)], 3)
    state = discoverer.init(jax.random.key(0))
    paths = [jax.tree.map(np.asarray, state.meta_params)]
    while not discoverer.done(state):
        state, metrics = discoverer.advance(state)
        paths.append(jax.tree.map(np.asarray, state.meta_params))
        assert metrics[""]["bad_agents"] == 0
    for before, after in itertools.pairwise(paths):
        weights, moved = (jax.tree.leaves(each)[0] for each in (before, after))
        assert np.isfinite(moved).all()
        assert np.abs(moved - weights).min() > 0
