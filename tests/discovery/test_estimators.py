"""Estimators on a life that can be computed by hand: theta moves a share eta of the way to a goal in every update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.discovery.estimators import Problem, backprop, displacement, evolution, first_order
from rulax.discovery.memory import Updates
from rulax.discovery.population import Member
from rulax.learning.life import Life
from rulax.learning.update import LearnerState

GOAL, WANTED, START = np.array([1.0, -2.0]), np.array([0.3, 0.7]), np.array([0.2, 0.1])


def one_update(eta, state, experience, key):
    """theta <- theta + eta (goal - theta)."""
    return state._replace(params=state.params + eta * (GOAL - state.params)), {}


def make_member(theta=START):
    learner = LearnerState(jnp.asarray(theta), jnp.zeros(2), (), (), jnp.int32(0))
    return Member(Life(learner, (), (), jax.random.key(0)), None, jnp.int32(0), jnp.int32(9), jnp.int32(1))


def make_problem(times, enter=lambda meta_params, member: (meta_params, member), **noise):
    """The loss is half the squared distance to a wanted theta; the reward is its negative."""

    def loss(theta):
        return 0.5 * jnp.sum(jnp.square(theta - WANTED))

    def live(updates, eta, member):
        learner = member.life.learner_state
        for _ in range(times):
            learner, _ = updates.one(eta, learner, None, None)
        member = member._replace(life=member.life._replace(learner_state=learner), age=member.age + times)
        return member, learner.params, {"validation_reward": -loss(learner.params)}

    def judge(updates, eta, member, window):
        return loss(window), {}

    return Problem(enter, live, judge, Updates(one_update), **noise)


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


def test_evolution_finds_the_direction_of_backprop_and_lives_on_unperturbed():
    """With many pairs the estimate points where the gradient does; the life itself is that of the unperturbed rule."""
    problem = make_problem(3, pairs=512, noise=0.01)
    eta = jnp.array([0.4, 0.2])
    estimated, after, metrics = jax.jit(lambda eta: evolution(problem, eta, make_member()))(eta)
    exact, same, _ = backprop(problem, eta, make_member())
    cosine = jnp.vdot(estimated, exact) / jnp.linalg.norm(estimated) / jnp.linalg.norm(exact)
    assert float(cosine) > 0.99
    np.testing.assert_allclose(after.life.learner_state.params, same.life.learner_state.params, rtol=1e-6)
    assert float(metrics["fitness_spread"]) > 0
    before, later = make_member().life.key, after.life.key
    assert not np.array_equal(jax.random.key_data(before), jax.random.key_data(later))  # other noise in the next window
