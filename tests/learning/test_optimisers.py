"""Optimisers: equal to optax's, to the reference's recorded steps, and constant in the denominator to outer gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.learning.optimisers import adam_direction, make_optimiser
from rulax.settings import Learning
from tests.shared import golden


def test_adam_equals_optax():
    rng = np.random.default_rng(0)
    params = {"a": jnp.asarray(rng.normal(size=(3, 2)), jnp.float32)}
    ours, theirs = make_optimiser(Learning(learning_rate=0.1, clip_gradient=0.5)), None
    theirs = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.1))
    state, state_theirs = ours.init(params), theirs.init(params)
    for _ in range(5):
        grads = {"a": jnp.asarray(rng.normal(size=(3, 2)), jnp.float32)}
        updates, state = ours.update(grads, state, params)
        expected, state_theirs = theirs.update(grads, state_theirs, params)
        np.testing.assert_allclose(updates["a"], expected["a"], rtol=1e-5)


@pytest.mark.parametrize(("schedule", "expected"), [("constant", [1, 1, 1]), ("linear", [1, 0.5, 0]), ("cosine", [1, 0.5, 0])])
def test_schedules_and_warm_up(schedule, expected):
    learning = Learning(learning_rate=1.0, schedule=schedule, warmup_updates=4)
    from rulax.learning.optimisers import learning_rate

    rate = learning_rate(learning, 14)
    np.testing.assert_allclose([rate(0), rate(2)], [0.0, 0.5], atol=1e-6)
    np.testing.assert_allclose([rate(4), rate(9), rate(14)], expected, atol=1e-6)


def test_steps_and_outer_gradient_equal_the_reference():
    data = golden("4_optimizer.npz")
    names = [key.removeprefix("in/params/") for key in data if key.startswith("in/params/")]
    params = {name: jnp.asarray(data[f"in/params/{name}"]) for name in names}
    grads = {name: jnp.asarray(data[f"in/grads/{name}"]) for name in names}
    number = next(iter(grads.values())).shape[0]
    optimiser = make_optimiser(Learning(learning_rate=0.01, clip_update=1.0))
    state = optimiser.init(params)
    for step in range(number):
        updates, state = optimiser.update(jax.tree.map(lambda g, i=step: g[i], grads), state, params)
        params = optax.apply_updates(params, updates)
        for name in names:
            expected = data[f"out/step{step + 1}/params/{name}"]
            np.testing.assert_allclose(params[name], expected, atol=1e-5 * np.abs(expected).max())

    def weighted(grads):
        adam = adam_direction()
        state, total = adam.init(jax.tree.map(lambda g: g[0], grads)), 0.0
        for step in range(number):
            direction, state = adam.update(jax.tree.map(lambda g, i=step: g[i], grads), state)
            total += sum(jnp.sum(direction[name] * data[f"in/ct/{name}"][step]) for name in names)
        return total

    outer = jax.grad(weighted)(grads)
    for name in names:
        expected = data[f"out/vjp_grads/{name}"]
        np.testing.assert_allclose(outer[name], expected, atol=2e-5 * np.abs(expected).max())
