"""Skills on a grid, held against plain NumPy and against log n; and skills in the box, learned."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.point import Box
from rulax.methods.diayn import MOVES, SkillWorld, improve, information, init_skills, occupancy_of
from rulax.methods.experiments import diayn
from rulax.methods.experiments.diayn import BoxRun, BoxSetup, goals_return

WORLD = SkillWorld(size=3, skills=2, horizon=6, sweeps=400)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def transitions(world, policy):
    """[Z, S, S] by walking every action from every cell."""
    matrix = np.zeros((world.skills, world.size**2, world.size**2))
    for cell in range(world.size**2):
        for action, (down, right) in enumerate(MOVES):
            row, column = cell // world.size + down, cell % world.size + right
            inside = 0 <= row < world.size and 0 <= column < world.size
            # In both axes apart: none of these moves is diagonal, so a step into a wall stays.
            there = row * world.size + column if inside else cell
            matrix[:, cell, there] += policy[:, cell, action]
    return matrix


def test_occupancy_is_the_mean_over_the_second_half():
    policy = jax.random.normal(jax.random.key(0), (2, 9, len(MOVES)))
    matrix = transitions(WORLD, softmax(np.asarray(policy, np.float64)))
    here, visited = np.zeros((2, 9)), []
    here[:, 4] = 1
    for _ in range(6):
        here = np.einsum("zs,zst->zt", here, matrix)
        visited.append(here)
    np.testing.assert_allclose(occupancy_of(WORLD, policy), np.mean(visited[3:], 0), rtol=1e-5)


def test_information_is_the_entropy_of_skills_that_states_take_away():
    joint = np.random.default_rng(0).dirichlet(np.ones(9), 4) / 4  # p(z, s)
    given = joint / joint.sum(0)
    left = -(joint.sum(0) * (given * np.log(given)).sum(0)).sum()
    np.testing.assert_allclose(information(jnp.asarray(4 * joint)), math.log(4) - left, rtol=1e-4)
    np.testing.assert_allclose(information(jnp.eye(5)), math.log(5), rtol=1e-5)
    np.testing.assert_allclose(information(jnp.ones((5, 9)) / 9), 0, atol=1e-6)


def test_policies_are_the_soft_optimal_ones():
    """pi = exp((Q - V) / temperature), with Q and V from NumPy's own soft value iteration, to the fixed point."""
    state = init_skills(WORLD, jax.random.key(1))
    found = softmax(np.asarray(improve(WORLD, state).policy, np.float64))
    rho = np.asarray(state.occupancy, np.float64)
    reward = np.log(rho / rho.sum(0)) + math.log(2)
    always = [np.broadcast_to(row, (2, 9, len(MOVES))) for row in np.eye(len(MOVES))]
    successors = np.stack([transitions(WORLD, policy)[0].argmax(-1) for policy in always], 1)
    value = np.zeros((2, 9))
    for _ in range(2000):
        q = (reward + WORLD.discount * value)[:, successors]
        value = WORLD.temperature * np.log(np.exp((q - q.max()) / WORLD.temperature).sum(-1)) + q.max()
    np.testing.assert_allclose(found, softmax(q / WORLD.temperature), atol=1e-4)


@pytest.mark.parametrize("skills", [2, 4])
def test_skills_come_apart(skills):
    run = diayn.GridRun(SkillWorld(skills=skills), {"quick": 25, "full": 25}, "quick", 0)
    assert run.untrained < 0.05
    while not run.done():
        run.advance()
    tested = run.test()
    assert tested.values[0] >= 0.95 * math.log(skills)
    assert tested.values[0] <= tested.reference.value + 1e-5
    assert tested.reference.value == pytest.approx(math.log(skills))


@pytest.mark.parametrize(("skills", "words"), [(1, "at least 2 skills"), (10, "at most 9 skills apart, not 10")])
def test_numbers_of_skills_that_cannot_be_told_apart_are_refused(skills, words):
    with pytest.raises(ValueError, match=words):
        SkillWorld(size=3, skills=skills)


def test_walls_stop_the_point():
    box = Box()
    state, task = jnp.array([0.45, -0.2]), box.default_task()
    state, transition = box.step(task, state, jnp.array([3.0, -0.5]), jax.random.key(0))
    np.testing.assert_allclose(state, [0.5, -0.25], rtol=1e-6)
    np.testing.assert_allclose(transition.reward, -0.75, rtol=1e-6)
    # At the goal itself as well: nothing but time ends an episode.
    assert not box.step(task, task.goal, jnp.zeros(2), jax.random.key(0))[1].terminated


@pytest.mark.learning
def test_skills_in_the_box_are_recognised():
    run = BoxRun({"quick": BoxSetup(6, 60_000), "full": BoxSetup(6, 60_000)}, "quick", 0)
    assert abs(run.untrained) < 0.1
    while not run.done():
        run.advance()
    tested = run.test()
    assert tested.values.mean() > 0.6 * math.log(6)
    judged = run._judged(jax.random.key(1))
    # The best of skills that go to all sides is nearer to goals than any that stays where it starts.
    line = np.linspace(-0.4, 0.4, 5)
    stays = -50 * 2 * np.mean(line**2)
    assert goals_return(judged) > stays
