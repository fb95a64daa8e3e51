"""Evolution's gradient against evosax's Open_ES with the same noise and fitness, and what must hold for any noise."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from evosax.algorithms import Open_ES
from evosax.core.fitness_shaping import centered_rank_fitness_shaping_fn, identity_fitness_shaping_fn

from rulax.discovery.estimators import centred_ranks, centred_values, draw_noise, evolution_gradient

MEMBERS, SIZE, DEVIATION = 8, 5, 0.3


def fitness_of(kind):
    values = np.random.default_rng(0).normal(size=MEMBERS)
    if kind == "ties":
        values[[1, 4, 6]] = values[0]
    if kind == "a NaN":
        values[3] = np.nan
    return jnp.asarray(values, jnp.float32)


def evosax_gradient(fitness, shaping):
    """Its noise, and the gradient that one step of SGD with rate 1 shows. evosax minimises, so the fitness is negated."""
    strategy = Open_ES(
        MEMBERS,
        jnp.zeros(SIZE),
        optimizer=optax.sgd(1.0),
        std_schedule=optax.constant_schedule(DEVIATION),
        fitness_shaping_fn=shaping,
    )
    mean = jnp.arange(SIZE, dtype=jnp.float32)
    state = strategy.init(jax.random.key(0), mean, strategy.default_params)
    population, state = strategy.ask(jax.random.key(1), state, strategy.default_params)
    after, _ = strategy.tell(jax.random.key(2), population, -fitness, state, strategy.default_params)
    return {"all": (population - mean) / DEVIATION}, mean - after.mean


@pytest.mark.parametrize("kind", ["distinct", "ties", "a NaN"])
def test_ranks_and_gradient_equal_those_of_evosax(kind):
    fitness = fitness_of(kind)
    shaped = centered_rank_fitness_shaping_fn(None, -fitness, None, None)
    np.testing.assert_allclose(centred_ranks(fitness), -shaped, atol=1e-6)
    noise, wanted = evosax_gradient(fitness, centered_rank_fitness_shaping_fn)
    np.testing.assert_allclose(evolution_gradient(fitness, noise, DEVIATION)["all"], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fitness", [[3.0, 1.0, 2.0], [1.0, 1.0, 0.0, 1.0], [np.nan, -np.inf, 0.0, np.inf, np.nan], [2.0, 2.0]])
def test_ranks_count_who_is_below_and_share_ties(fitness):
    """By the definition, all pairs compared; a NaN counts as the worst."""
    worst_first = np.where(np.isnan(fitness), -np.inf, fitness).astype(np.float32)
    below = np.sum(worst_first[:, None] > worst_first, 1)
    equal = np.sum(worst_first[:, None] == worst_first, 1) - 1
    wanted = ((below + 0.5 * equal) / (len(fitness) - 1) - 0.5).astype(np.float32)
    for found in (centred_ranks(jnp.array(fitness)), jax.jit(centred_ranks)(jnp.array(fitness))):
        np.testing.assert_allclose(found, wanted, atol=1e-7)
        assert found.dtype == jnp.array(fitness).dtype


@pytest.mark.parametrize("kind", ["distinct", "ties"])
def test_the_gradient_by_raw_values_equals_that_of_evosax(kind):
    noise, wanted = evosax_gradient(fitness_of(kind), identity_fitness_shaping_fn)
    found = evolution_gradient(fitness_of(kind), noise, DEVIATION, centred_values)["all"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_equal_fitness_gives_no_gradient():
    noise = draw_noise({"w": jnp.zeros((2, 3))}, MEMBERS, jax.random.key(0))
    np.testing.assert_array_equal(evolution_gradient(jnp.full(MEMBERS, 0.7), noise, DEVIATION)["w"], 0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_life_that_went_wrong_has_the_worst_of_the_values(wrong):
    fitness = fitness_of("distinct")
    worst = jnp.delete(fitness, 3).min()
    np.testing.assert_allclose(centred_values(fitness.at[3].set(wrong)), centred_values(fitness.at[3].set(worst)), rtol=1e-6)


def test_what_is_symmetric_gives_no_gradient_and_signs_turn_around():
    """Fitness that is the same for +e and -e says nothing about the direction; swapping the two turns the gradient around."""
    half = jax.random.normal(jax.random.key(0), (MEMBERS // 2, SIZE))
    noise = jnp.concatenate([half, -half])
    even = jnp.tile(jnp.arange(4.0), 2)
    np.testing.assert_allclose(evolution_gradient(even, noise, DEVIATION), 0, atol=1e-6)
    odd = fitness_of("distinct")
    swapped = jnp.roll(odd, MEMBERS // 2)
    ours, turned = evolution_gradient(odd, noise, DEVIATION), evolution_gradient(swapped, noise, DEVIATION)
    np.testing.assert_allclose(ours, -turned, rtol=1e-5)
    assert float(jnp.linalg.norm(ours)) > 0.1


def test_it_descends_a_quadratic():
    at, lowest = jnp.zeros(SIZE), jnp.arange(SIZE, dtype=jnp.float32)

    def step(at, key):
        half = draw_noise(at, 8, key)
        noise = jnp.concatenate([half, -half])
        fitness = -jnp.sum(jnp.square(at + 0.05 * noise - lowest), -1)
        return at - 0.02 * evolution_gradient(fitness, noise, 0.05), None

    after, _ = jax.lax.scan(step, at, jax.random.split(jax.random.key(0), 300))
    assert float(jnp.linalg.norm(after - lowest)) < 0.1 * float(jnp.linalg.norm(lowest))
