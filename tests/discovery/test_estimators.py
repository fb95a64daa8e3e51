"""Estimators on a life that can be computed by hand (theta moves a share eta of the way to a goal in every update), and each on
every problem for which it makes sense."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from rulax.discovery.discover import Discoverer
from rulax.discovery.estimators import ESTIMATORS, Problem, backprop, displacement, draw_noise, evolution, first_order
from rulax.discovery.memory import STRATEGIES, Updated, Updates
from rulax.discovery.population import Member
from rulax.learning.life import Life
from rulax.learning.update import LearnerState
from tests.discovery.families import make_family
from tests.discovery.problems import PROBLEMS, RATE, SENSIBLE, Seed, slope, split_seed

GOAL, WANTED, START = np.array([1.0, -2.0]), np.array([0.3, 0.7]), np.array([0.2, 0.1])


def one_update(eta, state, experience, key):
    """theta <- theta + eta (goal - theta)."""
    return Updated(state._replace(params=state.params + eta * (GOAL - state.params)), {})


def make_member(theta=START):
    learner = LearnerState(jnp.asarray(theta), jnp.zeros(2), (), (), jnp.int32(0))
    return Member(Life(learner, (), (), jax.random.key(0)), None, jnp.int32(0), jnp.int32(9), jnp.int32(1))


def make_problem(times, enter=lambda meta_params, member: (meta_params, member)):
    """The loss is half the squared distance to a wanted theta; the fitness is its negative."""

    def loss(theta):
        return 0.5 * jnp.sum(jnp.square(theta - WANTED))

    def live(updates, eta, member):
        learner = member.life.learner_state
        for _ in range(times):
            learner = updates.one(eta, learner, None, None).state
        member = member._replace(life=member.life._replace(learner_state=learner), age=member.age + times)
        return member, learner.params, {}

    def judge(updates, eta, member, window):
        return loss(window), {}

    return Problem(
        enter,
        live,
        Updates(one_update),
        judge,
        fitness=lambda member, window, metrics: -loss(window),
        end_params=lambda member: member.life.learner_state.params,
    )


def by_hand(eta, updates, passes_through):
    """d loss / d eta, with d theta / d eta = through * that of the update before + (goal - theta)."""
    theta, slope = START, np.zeros(2)
    for _ in range(updates):
        slope = passes_through * slope + GOAL - theta
        theta = theta + eta * (GOAL - theta)
    return (theta - WANTED) @ slope, theta


@pytest.mark.parametrize("updates", [1, 3])
def test_backprop_passes_through_every_update_and_first_order_adds_them_up(updates):
    eta, problem = 0.4, make_problem(updates)
    whole, after, metrics = backprop(problem, jnp.float32(eta), make_member())
    sums, same, _ = first_order(problem, jnp.float32(eta), make_member())
    wanted, theta = by_hand(eta, updates, 1 - eta)
    np.testing.assert_allclose(whole, wanted, rtol=1e-5)
    np.testing.assert_allclose(sums, by_hand(eta, updates, 1.0)[0], rtol=1e-5)
    for member in (after, same):
        np.testing.assert_allclose(member.life.learner_state.params, theta, rtol=1e-6)
    np.testing.assert_allclose(metrics["outer_loss"], 0.5 * np.sum((theta - WANTED) ** 2), rtol=1e-5)
    if updates == 1:
        np.testing.assert_allclose(whole, sums, rtol=1e-6)  # nothing to pass through
    else:
        assert abs(float(whole / sums) - 1) > 0.1


def test_displacement_is_where_life_began_minus_where_it_ended():
    def enter(theta, member):
        learner = member.life.learner_state._replace(params=theta)
        return 0.25, member._replace(life=member.life._replace(learner_state=learner))

    start = jnp.array([3.0, 5.0])
    grads, after, _ = displacement(make_problem(3, enter), start, make_member())
    np.testing.assert_allclose(grads, (np.array([3.0, 5.0]) - GOAL) * (1 - 0.75**3), rtol=1e-5)
    np.testing.assert_allclose(start - grads, after.life.learner_state.params, rtol=1e-5)


@pytest.mark.parametrize("shaping", ["ranks", "values"])
def test_evolution_finds_the_direction_of_backprop_and_lives_on_unperturbed(shaping):
    """With many pairs the estimate points where the gradient does; the life itself is that of the unperturbed rule."""
    problem, eta = make_problem(3), jnp.array([0.4, 0.2])
    estimate = functools.partial(evolution, pairs=512, noise=0.01, shaping=shaping)
    estimated, after, metrics = jax.jit(lambda eta: estimate(problem, eta, make_member()))(eta)
    exact, same, _ = backprop(problem, eta, make_member())
    cosine = jnp.vdot(estimated, exact) / jnp.linalg.norm(estimated) / jnp.linalg.norm(exact)
    assert float(cosine) > 0.99
    np.testing.assert_allclose(after.life.learner_state.params, same.life.learner_state.params, rtol=1e-6)
    assert float(metrics["fitness_spread"]) > 0
    before, later = make_member().life.key, after.life.key
    assert not np.array_equal(jax.random.key_data(before), jax.random.key_data(later))  # other noise in the next window


# -- each estimator on each problem ------------------------------------------------------------------------------------------

# Each of these takes some twenty seconds to compile; test_window.py differentiates the same problem of discovery in every run.
SLOW = {("discovery", "backprop"), ("discovery", "first_order"), ("meta_gradient", "first_order"), ("meta_gradient", "evolution")}
TABLE = [
    pytest.param(name, estimator, marks=[pytest.mark.slow] * ((name, estimator) in SLOW))
    for name, sensible in SENSIBLE.items()
    for estimator in sensible
]


@functools.cache
def estimated(name, estimator):
    """Gradient, member and metrics; where noise decides, with enough of it to see something."""
    problem, meta_params, member = PROBLEMS[name]()
    estimate = functools.partial(evolution, noise=0.3) if estimator == "evolution" else ESTIMATORS[estimator]
    return jax.jit(lambda params, member: estimate(problem, params, member))(meta_params, member)


@pytest.mark.parametrize(("name", "estimator"), TABLE)
def test_an_estimator_gives_a_gradient_and_a_member_to_go_on_with(name, estimator):
    _, meta_params, member = PROBLEMS[name]()
    grads, after, metrics = estimated(name, estimator)
    for ours, like in ((grads, meta_params), (after, member)):
        assert jax.tree.structure(ours) == jax.tree.structure(like)
        assert [x.shape for x in jax.tree.leaves(ours)] == [x.shape for x in jax.tree.leaves(like)]
    assert 0 < float(optax.global_norm(grads)) < np.inf
    assert ("outer_loss" in metrics) == (name != "whole_lives")
    assert all(jnp.ndim(value) == 0 for value in metrics.values())


@pytest.mark.parametrize(("name", "estimator"), [(n, e) for n in SENSIBLE for e in ESTIMATORS if e not in SENSIBLE[n]])
def test_an_estimator_says_what_a_problem_lacks(name, estimator):
    missing = {"displacement": "end_params", "backprop": "judge", "first_order": "judge"}[estimator]
    with pytest.raises(ValueError, match=f"no '{missing}'"):
        ESTIMATORS[estimator](*PROBLEMS[name]())


def test_estimates_of_a_quadratic_are_known():
    exact = slope(np.array([1.5, 0.4]))
    np.testing.assert_allclose(estimated("quadratic", "backprop")[0], exact, rtol=1e-6)
    np.testing.assert_allclose(estimated("quadratic", "first_order")[0], exact, rtol=1e-6)
    np.testing.assert_allclose(estimated("quadratic", "displacement")[0], RATE * exact, rtol=1e-5)


def test_raw_evolution_of_a_quadratic_is_its_gradient_in_expectation():
    """For antithetic noise it is the mean of (g . e) e, exactly: with mean g and variance (|g|^2 + g_i^2) / pairs."""
    pairs = 20_000
    with jax.enable_x64(True):
        problem, _, member = PROBLEMS["quadratic"]()
        at = jnp.array([1.5, 0.4], jnp.float64)
        found, _, _ = jax.jit(lambda x: evolution(problem, x, member, pairs=pairs, noise=0.5, shaping="values"))(at)
        noise, found = np.asarray(draw_noise(at, pairs, problem.split_key(member)[1])), np.asarray(found)
    exact = slope(np.asarray(at))
    np.testing.assert_allclose(found, np.mean((noise @ exact)[:, None] * noise, 0), rtol=1e-9)
    error = np.sqrt((exact @ exact + exact**2) / pairs)
    assert np.all(np.abs(found - exact) < 4 * error)
    assert np.all(np.abs(exact) > 8 * error)  # so a zero, or the other sign, would not pass


def test_raw_evolution_of_an_initialisation_is_its_meta_gradient():
    """A method's problem, which has none of discovery's metrics. 512 pairs in 35 dimensions: a cosine of 0.97 on average."""
    problem, agent, trial = PROBLEMS["initialisation"]()
    estimate = functools.partial(evolution, pairs=512, noise=0.01, shaping="values")
    found = ravel_pytree(jax.jit(lambda agent: estimate(problem, agent, trial)[0])(agent))[0]
    exact = ravel_pytree(estimated("initialisation", "backprop")[0])[0]
    assert float(jnp.vdot(found, exact) / jnp.linalg.norm(found) / jnp.linalg.norm(exact)) > 0.9
    assert float(jnp.vdot(found, exact) / jnp.vdot(exact, exact)) == pytest.approx(1, abs=0.25)  # its size, too


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
def test_pairs_in_groups_give_what_all_at_once_give(at_once):
    """Five pairs: groups that divide them and groups that do not, and one that holds them all."""
    problem, at, member = PROBLEMS["quadratic"]()
    estimate = functools.partial(evolution, problem, pairs=5, noise=0.5)
    for shaping in ("ranks", "values"):
        wanted, _, said = estimate(at, member, shaping=shaping)
        found, _, metrics = estimate(at, member, shaping=shaping, at_once=at_once)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        np.testing.assert_allclose(metrics["fitness"], said["fitness"], rtol=1e-6)
    assert float(jnp.abs(wanted).max()) > 0.1


def test_where_nothing_fits_agents_and_then_pairs_take_turns(monkeypatch):
    discoverer = Discoverer([make_family(estimator="evolution", agents=3, pairs=4, memory="plain")], 1)
    tried = []

    def predict(family, plan):
        tried.append((plan.at_once, plan.pairs_at_once))
        return (plan.at_once or 3) * (plan.pairs_at_once or 4)

    monkeypatch.setattr(discoverer, "predict", predict)
    sizes = {"counter": dict.fromkeys(STRATEGIES, 12)}
    assert discoverer.choose(2, sizes)["counter"][1:] == (1, 2)
    assert tried == [(1, 0), (1, 2)]
    assert discoverer.choose(12, sizes)["counter"] == ("plain", 0, 0)
    differentiating = Discoverer([make_family(agents=3)], 1)
    monkeypatch.setattr(differentiating, "predict", predict)
    assert differentiating.choose(1, sizes)["counter"][1:] == (1, 0)  # pairs mean nothing to backprop


def test_perturbed_lives_share_their_random_numbers():
    """Fitness that is luck alone is the same luck for all, so there is no gradient; another window has other luck."""

    def live(updates, rule_params, seed):
        return Seed(jax.random.split(seed.key)[0]), jax.random.normal(seed.key), {}

    problem = Problem(
        lambda x, seed: (x, seed), live, Updates(one_update), fitness=lambda seed, luck, metrics: luck, split_key=split_seed
    )
    seed, lucks = Seed(jax.random.key(0)), []
    for _ in range(2):
        grads, seed, metrics = evolution(problem, jnp.ones(3), seed, pairs=8, noise=0.1)
        np.testing.assert_array_equal(grads, 0)
        assert float(metrics["fitness_spread"]) < 1e-6
        lucks.append(float(metrics["fitness"]))
    assert lucks[0] != lucks[1]
