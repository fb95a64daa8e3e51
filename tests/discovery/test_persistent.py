"""Persistent evolution on a life whose every derivative is known: s <- a s + eta, one step per window, fitness -s^2.

By hand: after t windows ds/deta = 1 + a + ... + a^(t-1). Evolution that begins every window with an unperturbed agent knows only
the last step, whose share of this is 1: that is its bias.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.discovery.discover import Discoverer
from rulax.discovery.estimators import Problem, draw_noise, evolution
from rulax.discovery.memory import Updates
from rulax.discovery.meta_step import estimate, rule_problem
from rulax.discovery.persistent import Particles, begin_particles, pes
from rulax.discovery.population import init_population
from tests.discovery.families import make_family, rule_params

A, ETA, NOISE, WINDOWS = 0.9, 0.5, 0.3, 6


class Chain(NamedTuple):
    at: jax.Array
    key: jax.Array


def chain():
    def live(updates, eta, member):
        after = member._replace(at=A * member.at + eta)
        return after, after.at, {}

    def split(member):
        key, drawn = jax.random.split(member.key)
        return member._replace(key=key), drawn

    keep = lambda eta, member: (eta, member)  # noqa: E731
    return Problem(keep, live, Updates(lambda *_: None), fitness=lambda member, at, metrics: -jnp.square(at), split_key=split)


def lives(estimate, state, windows=WINDOWS):
    """The estimates of a life, window by window."""
    found = []
    for _ in range(windows):
        grads, state, metrics = estimate(jnp.asarray(ETA), state)
        found.append(float(grads))
    return np.array(found), state, metrics


def exact(t):
    """The state after t windows and its derivative; the loss of window t is its square."""
    share = (1 - A**t) / (1 - A)
    return ETA * share, share


@pytest.mark.parametrize("at_once", [0, 3])
def test_every_window_is_credited_to_all_perturbations_before_it(at_once):
    """Exactly, from the noise that was drawn: the difference of a pair is 4 s n sum_k a^(t-k) e_k, its weight sum_k e_k."""
    with jax.enable_x64(True):
        pairs = 8
        member = Chain(jnp.zeros(()), jax.random.key(0))
        problem = chain()
        estimate = functools.partial(pes, problem, noise=NOISE, at_once=at_once)
        found, after, _ = lives(estimate, begin_particles(member, jnp.asarray(ETA), pairs))
        drawn, walker = [], member
        for _ in range(WINDOWS):
            walker, key = problem.split_key(walker)
            drawn.append(np.asarray(draw_noise(jnp.asarray(ETA), pairs, key)))
        for t in range(1, WINDOWS + 1):
            moved = sum(A ** (t - 1 - k) * drawn[k] for k in range(t))
            wanted = np.mean(2 * exact(t)[0] * moved * sum(drawn[:t]))
            np.testing.assert_allclose(found[t - 1], wanted, rtol=1e-9)
        np.testing.assert_allclose(after.sums, sum(drawn), rtol=1e-12)
        np.testing.assert_allclose(after.perturbed.at[:, 0] - after.perturbed.at[:, 1], 2 * NOISE * moved, rtol=1e-9)
        np.testing.assert_allclose(after.member.at, exact(WINDOWS)[0], rtol=1e-12)


def test_it_is_unbiased_where_evolution_of_single_windows_is_not():
    """Over a whole life the first is the gradient of its loss, within four standard errors; the second is far from it."""
    pairs = 20_000
    member = Chain(jnp.zeros(()), jax.random.key(1))
    particles = begin_particles(member, jnp.asarray(ETA), pairs)
    persistent, _, _ = lives(jax.jit(functools.partial(pes, chain(), noise=NOISE)), particles)
    single, _, _ = lives(jax.jit(functools.partial(evolution, chain(), pairs=pairs, noise=NOISE, shaping="values")), member)
    right, short, error = (np.zeros(WINDOWS) for _ in range(3))
    for t in range(1, WINDOWS + 1):
        state, share = exact(t)
        right[t - 1], short[t - 1] = 2 * state * share, 2 * state
        # Of the product of two normal variables: moved, of variance `spread`, and their sum, of variance t; covariance `share`.
        spread = (1 - A ** (2 * t)) / (1 - A**2)
        error[t - 1] = 2 * state * np.sqrt((spread * t + share**2) / pairs)
    assert np.all(np.abs(persistent - right) < 4 * error)
    assert np.all(np.abs(single - short) < 4 * 2 * exact(WINDOWS)[0] * np.sqrt(2 / pairs))
    assert np.all(np.abs(right - short)[1:] > 8 * error[1:])  # so neither would pass for the other
    loss = lambda eta: sum((eta * exact(t)[1]) ** 2 for t in range(1, WINDOWS + 1))  # noqa: E731
    np.testing.assert_allclose(right.sum(), (loss(ETA + 1e-6) - loss(ETA - 1e-6)) / 2e-6, rtol=1e-6)


def test_the_first_window_is_that_of_evolution():
    member = Chain(jnp.asarray(0.7), jax.random.key(2))
    ours, _, _ = pes(chain(), jnp.asarray(ETA), begin_particles(member, jnp.asarray(ETA), 5), noise=NOISE, shaping="ranks")
    theirs, _, _ = evolution(chain(), jnp.asarray(ETA), member, pairs=5, noise=NOISE)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert float(jnp.abs(ours)) > 0.01


FAMILY = functools.partial(make_family, estimator="pes", pairs=2, noise=0.3, lifetimes=(4,), fitness_shaping="values", agents=2)


def test_in_discovery_a_member_carries_its_particles():
    """Traced, not run: after a window a member has the form that it had before, with two pairs of lives and as many sums."""
    family = FAMILY()
    members = jax.eval_shape(lambda key: init_population(family, key), jax.random.key(0))
    grads, after, metrics = jax.eval_shape(estimate(family, rule_problem(family, "plain")), rule_params(), members)
    assert jax.tree.structure(after) == jax.tree.structure(members)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(after)] == [(x.shape, x.dtype) for x in jax.tree.leaves(members)]
    perturbed, sums = after.estimator
    assert perturbed.age.shape == (2, 2, 2)  # agents, pairs, signs
    assert {x.shape[:2] for x in jax.tree.leaves(sums)} == {(2, 2)}
    assert jax.tree.structure(grads) == jax.tree.structure(rule_params())
    assert {"fitness", "fitness_spread", "episodes"} <= metrics.keys()


@pytest.mark.slow  # compiles a whole meta-step and the making of a population
def test_in_discovery_perturbed_lives_go_on_and_begin_anew_with_the_agent():
    """Two windows of two updates, then the agent's life is over: copies of the fresh one take the place of all its particles."""
    discoverer = Discoverer([FAMILY()], 3)
    state = discoverer.init(jax.random.key(0), rule_params())
    sizes, spreads = [], []
    for _ in range(3):
        state, metrics = discoverer.advance(state)
        (members,) = state.members
        particles = Particles(members, *members.estimator)
        np.testing.assert_array_equal(particles.perturbed.age, np.broadcast_to(members.age[:, None, None], (2, 2, 2)))
        sizes.append(float(optax.global_norm(particles.sums)))
        params = particles.perturbed.life.learner_state.params
        spreads.append(max(float(jnp.std(leaf, axis=(1, 2)).max()) for leaf in jax.tree.leaves(params)))
        assert metrics[""]["bad_agents"] == 0
        assert np.isfinite(metrics["counter"]["fitness"]).all()
    np.testing.assert_array_equal(members.resets, 2)
    np.testing.assert_array_equal(members.age, 2)
    count = 2 * 2 * sum(leaf.size for leaf in jax.tree.leaves(rule_params()))  # agents, pairs, numbers
    # Sums of one, two and again one standard normal number each.
    np.testing.assert_allclose(np.square(sizes) / count, [1, 2, 1], rtol=0.5)
    assert all(spread > 0 for spread in spreads)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fitness": "lifetime"}, "fitness lifetime needs estimator evolution: estimator pes lives a window, not a whole life"),
        ({"collection": "before_window"}, "estimator pes compares what agents earn after their updates"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        make_family(estimator="pes", **settings)
