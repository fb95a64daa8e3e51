"""The environments of the gradient-based methods against closed forms and a linear programme."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from rulax.envs import point, velocity
from rulax.envs.regression import Quadratic, Sinusoid


def run(environment, task, actions):
    """Rewards and terminations of a sequence of actions."""

    def step(state, action):
        state, transition = environment.step(task, state, action, jax.random.key(0))
        return state, (transition.reward, transition.terminated)

    state, _ = environment.reset(task, jax.random.key(0))
    return jax.lax.scan(step, state, actions)[1]


def test_a_point_that_stands_still_gets_what_the_geometry_says():
    """The mean distance from the centre of a unit square is (sqrt 2 + asinh 1) / 6 = 0.3826: -38.3 in a hundred steps."""
    environment = point.Point()
    tasks = jax.vmap(environment.sample_task)(jax.random.split(jax.random.key(0), 4000))
    rewards, _ = jax.jit(jax.vmap(lambda task: run(environment, task, jnp.zeros((100, 2)))))(tasks)
    returns = rewards.sum(1)
    np.testing.assert_allclose(returns.mean(), -100 * (2**0.5 + np.arcsinh(1)) / 6, atol=4 * returns.std() / 4000**0.5)
    best = jax.jit(jax.vmap(lambda task: point.best_return(environment, task)))(tasks)
    np.testing.assert_allclose(best.mean(), -0.51, atol=0.02)


@pytest.mark.parametrize("goal", [(0.5, -0.5), (0.33, 0.04), (-0.08, 0.24)])
def test_the_best_way_of_a_point_is_full_steps(goal):
    environment, task = point.Point(), point.PointTask(jnp.array(goal, jnp.float32))
    left, actions = np.array(goal), []
    for _ in range(100):
        actions.append(np.clip(left / 0.1, -1, 1))
        left = left - 0.1 * actions[-1]
    rewards, terminated = run(environment, task, jnp.asarray(np.array(actions), jnp.float32))
    np.testing.assert_allclose(rewards.sum(), point.best_return(environment, task), atol=1e-4)
    assert int(jnp.argmax(terminated)) == np.ceil(np.abs(goal).max() / 0.1 - 1e-6) - 1
    # Actions beyond one are clipped: going much too far along both axes is a full step.
    rewards, _ = run(environment, task, jnp.array([[7.0, -9.0]]))
    np.testing.assert_allclose(rewards[0], -np.hypot(0.1 - goal[0], -0.1 - goal[1]), rtol=1e-5)


def test_a_goal_on_the_half_circle_pays_only_near_it():
    """Straight ahead it is paid from the ninth step on; the mean of the best returns is 13.38."""
    environment, angles = point.HalfCircle(), np.linspace(0, np.pi, 4001)
    ahead = jnp.tile(jnp.array([0.0, 0.95]), (12, 1)).at[10:].set(0.0)  # never at a distance of 0.2
    for dense in (False, True):
        same = dataclasses.replace(environment, dense=dense)
        rewards, terminated = run(same, same.default_task(), ahead)
        distance = 1 - 0.095 * np.minimum(np.arange(1, 13), 10)
        np.testing.assert_allclose(rewards, -distance if dense else (1 - distance) * (distance < 0.2), atol=1e-5)
        assert not terminated.any()
    # In NumPy: full strides along both axes until there.
    goals, place, wanted = np.stack([np.cos(angles), np.sin(angles)], -1), 0.0, 0.0
    for _ in range(20):
        place = place + np.clip(goals - place, -0.1, 0.1)
        distance = np.linalg.norm(goals - place, axis=-1)
        wanted = wanted + np.where(distance < 0.2, 1 - distance, 0)
    best = jax.jit(jax.vmap(lambda angle: point.best_sparse_return(environment, environment.task_at(angle))))(jnp.asarray(angles))
    np.testing.assert_allclose(best.mean(), wanted.mean(), atol=2e-3)
    np.testing.assert_allclose(wanted.mean(), 13.38, atol=5e-3)
    tasks = jax.vmap(environment.sample_task)(jax.random.split(jax.random.key(0), 2000))
    np.testing.assert_allclose(np.linalg.norm(tasks.goal, axis=-1), 1.0, rtol=1e-5)
    # A random ray of the half circle passes within 0.2 of a random goal with probability 2w/pi - (w/pi)², w = asin 0.2: 0.124.
    found = np.arctan2(*np.asarray(tasks.goal).T[::-1])
    near = np.abs(found[:1000] - found[1000:]) < np.arcsin(0.2)
    assert abs(near.mean() - 0.124) < 0.04


def test_a_constant_force_gives_the_speed_of_the_recursion():
    environment = velocity.Velocity()
    rewards, terminated = run(environment, velocity.VelocityTask(jnp.float32(0.5)), jnp.full((200, 1), 0.6))
    push = 0.6 * (1 - 0.7 ** np.arange(1, 201))
    speed = np.array([sum(0.05 * 3 * push[s] * 0.95 ** (t - s) for s in range(t + 1)) for t in range(200)])
    np.testing.assert_allclose(rewards, -np.abs(speed - 0.5) - 0.05 * 0.36, atol=1e-5)
    np.testing.assert_allclose(speed[-1], 3 * 0.6, rtol=1e-3)
    assert not terminated.any()


@dataclasses.dataclass(frozen=True)
class Brief(velocity.Velocity):
    horizon = 40


@pytest.mark.parametrize("speed", [0.4, 1.7])
def test_the_best_return_is_that_of_a_linear_programme_where_effort_is_free(speed):
    environment = Brief(effort=0.0)
    steps = environment.horizon
    push, moved, matrix = np.zeros(steps), np.zeros(steps), []
    for t in range(steps):  # rows of the map from actions to speeds, straight from the equations
        push = push + 0.3 * (np.eye(steps)[t] - push)
        moved = moved + 0.05 * (3 * push - moved)
        matrix.append(moved)
    matrix, identity = np.array(matrix), np.eye(steps)
    sides = np.block([[matrix, -identity], [-matrix, -identity]])
    limits = np.r_[np.full(steps, speed), np.full(steps, -speed)]
    bounds = [(-1, 1)] * steps + [(0, None)] * steps
    wanted = -linprog(np.r_[np.zeros(steps), np.ones(steps)], sides, limits, bounds=bounds).fun
    np.testing.assert_allclose(velocity.best_return(environment, speed), wanted, atol=2e-3)
    assert velocity.best_return(dataclasses.replace(environment, effort=0.05), speed) < wanted


def test_waves_and_parabolas():
    wave = Sinusoid()
    task = wave.sample_task(jax.random.key(0))
    x, y = wave.examples(task, jax.random.key(1), 50)
    assert x.shape == (50, 1)
    assert y.shape == (50,)
    assert float(jnp.abs(x).max()) <= 5
    np.testing.assert_allclose(y, task.amplitude * np.sin(np.asarray(x[:, 0]) - float(task.phase)), atol=1e-5)
    fixed, _ = Sinusoid(points=50).examples(task, jax.random.key(1), 10)
    assert len(set(np.round(np.asarray(fixed[:, 0] + 5) * 4.9).astype(int))) == 10  # ten different ones of fifty places
    np.testing.assert_allclose(fixed[:, 0], -5 + 10 / 49 * np.round((np.asarray(fixed[:, 0]) + 5) * 4.9), atol=1e-5)
    family = Quadratic()
    tasks = jax.vmap(family.sample_task)(jax.random.split(jax.random.key(2), 20_000))
    x, y = jax.vmap(lambda task, key: family.examples(task, key, 1))(tasks, jax.random.split(jax.random.key(3), 20_000))
    np.testing.assert_allclose(jnp.var(y), (2 / 5 + 1 / 9 + 2 / 3 + 1) / 3, rtol=0.04)  # the sum of the features' mean squares
    a, b, c, d, e, f = np.asarray(tasks.coefficients[0])
    one, two = np.asarray(x[0, 0])
    np.testing.assert_allclose(y[0, 0], a * one**2 + b * two**2 + c * one * two + d * one + e * two + f, atol=1e-5)
