"""The meta-optimiser against a loop over agents with optax, and what becomes of gradients that are no numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.discovery.meta_optimiser import make_meta_optimiser
from rulax.discovery.meta_step import optimise
from rulax.discovery.settings import Discovery

AGENTS, STEPS, CLIP, RATE = 3, 4, 0.8, 0.01
SETTINGS = Discovery(meta_learning_rate=RATE, meta_clip=CLIP)
PARAMS = {"w": jnp.array([[1.0, -2.0], [0.5, 0.0]]), "b": jnp.array([0.1, 0.2])}


def gradients(step):
    """Every agent's, [K]; their scales differ, so that it matters who is normalised before the mean."""
    rng, scale = np.random.default_rng(step), np.array([10.0, 0.1, 1.0])[:AGENTS]
    drawn = {name: rng.normal(size=(AGENTS, *leaf.shape)) for name, leaf in PARAMS.items()}
    return {name: jnp.asarray(x * scale.reshape(-1, *(1,) * (x.ndim - 1)), jnp.float32) for name, x in drawn.items()}


def one(tree, agent):
    return jax.tree.map(lambda x: x[agent], tree)


def run(settings, change=lambda step, grads: grads, total=STEPS):
    optimiser = make_meta_optimiser(settings, total)
    params, state = PARAMS, optimiser.init(PARAMS, AGENTS)
    step, metrics = jax.jit(optimiser.step), []
    for number in range(STEPS):
        params, state, shown = step(params, state, change(number, gradients(number)))
        metrics.append(shown)
    return params, state, metrics


def loop(rates, left_out=()):
    """One optax chain per agent, then the mean of the steps of those who are not left out at this step."""
    adam = optax.chain(optax.clip_by_global_norm(CLIP), optax.scale_by_adam())
    params, states = PARAMS, [adam.init(PARAMS) for _ in range(AGENTS)]
    for number, rate in enumerate(rates):
        steps = []
        for agent in range(AGENTS):
            if (number, agent) not in left_out:
                direction, states[agent] = adam.update(one(gradients(number), agent), states[agent])
                steps.append(direction)
        mean = jax.tree.map(lambda *parts: sum(parts) / len(parts), *steps)
        params = jax.tree.map(lambda p, d, rate=rate: p - rate * d, params, mean)
    return params, states


def assert_same(ours, wanted, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), ours, wanted)


def spoil(step, agent, value=jnp.nan):
    def change(number, grads):
        return grads if number != step else grads | {"b": grads["b"].at[agent, 1].set(value)}

    return change


def test_one_adam_per_agent_then_the_mean():
    params, _, metrics = run(SETTINGS)
    assert_same(params, loop([RATE] * STEPS)[0], rtol=1e-5)
    norms = jax.vmap(optax.global_norm)(gradients(0))
    np.testing.assert_allclose(metrics[0]["meta_gradient_mean_of_norms"], jnp.mean(norms), rtol=1e-5)
    mean = jax.tree.map(lambda x: jnp.mean(x, 0), gradients(0))
    np.testing.assert_allclose(metrics[0]["meta_gradient_norm_of_mean"], optax.global_norm(mean), rtol=1e-5)
    assert float(metrics[0]["meta_gradient_norm_of_mean"]) < 0.99 * float(metrics[0]["meta_gradient_mean_of_norms"])
    assert [int(shown["bad_agents"]) for shown in metrics] == [0] * STEPS


def test_each_family_has_its_own_norm_of_the_mean():
    """Two families, the first of which has an agent without a gradient."""
    optimiser, grads = make_meta_optimiser(SETTINGS, STEPS), spoil(0, 0)(0, gradients(0))
    families = jax.tree.map(lambda x: x[:2], grads), jax.tree.map(lambda x: x[2:], grads)
    params, _, (first, second, both) = optimise(optimiser)(PARAMS, optimiser.init(PARAMS, AGENTS), families)
    assert_same(params, optimiser.step(PARAMS, optimiser.init(PARAMS, AGENTS), grads)[0], rtol=1e-6)
    for found, agent in ((first, 1), (second, 2)):
        np.testing.assert_allclose(found["meta_gradient_norm_of_mean"], optax.global_norm(one(grads, agent)), rtol=1e-5)
    mean = jax.tree.map(lambda x: jnp.mean(x[1:], 0), grads)
    np.testing.assert_allclose(both["meta_gradient_norm_of_mean"], optax.global_norm(mean), rtol=1e-5)


def test_one_adam_on_the_mean_gradient():
    params, _, _ = run(dataclasses.replace(SETTINGS, meta_optimiser="mean", meta_clip=0.0))
    adam, wanted = optax.adam(RATE), PARAMS
    state = adam.init(PARAMS)
    for number in range(STEPS):
        updates, state = adam.update(jax.tree.map(lambda x: jnp.mean(x, 0), gradients(number)), state)
        wanted = optax.apply_updates(wanted, updates)
    assert_same(params, wanted, rtol=1e-5)


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
def test_an_agent_without_a_gradient_is_left_out_of_mean_and_memory(value):
    params, state, metrics = run(SETTINGS, spoil(1, 0, value))
    wanted, states = loop([RATE] * STEPS, left_out=[(1, 0)])
    assert_same(params, wanted, rtol=1e-5)
    for agent in range(AGENTS):
        for ours, theirs in zip(jax.tree.leaves(one(state.adam, agent)), jax.tree.leaves(states[agent]), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert [int(shown["bad_agents"]) for shown in metrics] == [0, 1, 0, 0]
    others = jax.tree.map(lambda x: x[1:], gradients(1))
    np.testing.assert_allclose(
        [metrics[1]["meta_gradient_mean_of_norms"], metrics[1]["meta_gradient_norm_of_mean"]],
        [jnp.mean(jax.vmap(optax.global_norm)(others)), optax.global_norm(jax.tree.map(lambda x: jnp.mean(x, 0), others))],
        rtol=1e-5,
    )


@pytest.mark.parametrize("kind", ["per_agent", "mean"])
def test_if_all_are_bad_nothing_moves(kind):
    optimiser = make_meta_optimiser(dataclasses.replace(SETTINGS, meta_optimiser=kind), STEPS)
    good = gradients(0)
    params, state, _ = optimiser.step(PARAMS, optimiser.init(PARAMS, AGENTS), good)
    bad = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), good)
    same, after, metrics = optimiser.step(params, state, bad)
    jax.tree.map(np.testing.assert_array_equal, same, params)
    jax.tree.map(np.testing.assert_array_equal, after.adam, state.adam)
    assert int(metrics["bad_agents"]) == AGENTS
    assert float(metrics["meta_update_norm"]) == 0


def test_the_learning_rate_falls_as_the_schedule_says():
    params, _, metrics = run(dataclasses.replace(SETTINGS, meta_schedule="linear"), total=STEPS)
    assert_same(params, loop([RATE * (1 - step / STEPS) for step in range(STEPS)])[0], rtol=1e-5)
    assert float(metrics[-1]["meta_update_norm"]) < float(metrics[0]["meta_update_norm"])
