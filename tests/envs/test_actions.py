"""What choices mean: tables of the environments' own numbers, the binned point and the factored bandit against closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs import TimeLimit, make
from rulax.envs.actions import evenly_spaced, one_of, several_of
from rulax.envs.point import Point, best_return
from rulax.envs.tasks import trial


def test_one_choice():
    actions = one_of(3, start=5)
    assert (actions.number, actions.dimensions) == (3, 0)
    np.testing.assert_array_equal(actions.native_action(np.array([0, 2])), [5, 7])


def test_smaller_dimensions_share_out_their_choices():
    actions = several_of([2, 6, 3], starts=[0, 10, -1])
    assert (actions.number, actions.dimensions) == (6, 3)
    meant = np.stack([actions.native_action(np.full(3, choice)) for choice in range(6)], -1)
    np.testing.assert_array_equal(meant, [[0, 0, 0, 1, 1, 1], [10, 11, 12, 13, 14, 15], [-1, -1, 0, 0, 1, 1]])
    uneven = several_of([3, 5]).values
    assert set(uneven[0]) == {0, 1, 2}, "every choice of the environment can be made"
    assert np.ptp(np.bincount(uneven[0])) <= 1, "about equally often"


def test_real_numbers_by_bins():
    low, high = np.array([[-2.0, 0.0]], np.float32), np.array([[2.0, 1.0]], np.float32)
    actions = evenly_spaced(low, high, 5)
    assert (actions.number, actions.dimensions) == (5, 2)
    own = actions.native_action(np.array([[0, 4], [2, 1]]))
    np.testing.assert_allclose(own, [[[-2, 1]], [[0, 0.25]]])
    assert own.dtype == np.float32
    np.testing.assert_array_equal(jax.jit(lambda a: actions.native_action(a, jnp))(jnp.array([[0, 4], [2, 1]])), own)
    single = evenly_spaced(low[:, 0], high[:, 0], 3)
    assert single.dimensions == 0, "one real number is one choice"
    np.testing.assert_allclose(single.native_action(np.array([0, 1])), [[-2], [0]])
    for bins in (1, True, 2.5):
        with pytest.raises(ValueError, match="bins must be a whole number of at least 2"):
            evenly_spaced(low, high, bins)
    with pytest.raises(ValueError, match="finite low and high"):
        evenly_spaced(low, np.full_like(high, np.inf))


def test_the_binned_point_walks_as_the_point_does():
    environment, point = make("point", bins=3), Point()
    assert isinstance(environment, TimeLimit)
    assert (environment.num_actions, environment.action_dimensions) == (3, 2)
    task, total = environment.default_task(), 0.0
    state, _ = environment.reset(task, jax.random.key(0))
    ended = False
    while not ended:
        state, transition = environment.step(task, state, jnp.array([2, 2]), jax.random.key(0))
        total, ended = total + float(transition.reward), bool(transition.terminated | transition.truncated)
    np.testing.assert_allclose(total, best_return(point, task), rtol=1e-5)
    np.testing.assert_allclose(total, -np.sqrt(2) * (0.4 + 0.3 + 0.2 + 0.1), rtol=1e-5)
    assert bool(transition.terminated)
    _, moved = environment.step(task, environment.reset(task, jax.random.key(0))[0], jnp.array([0, 1]), jax.random.key(0))
    np.testing.assert_allclose(moved.observation, [-0.1, 0.0], atol=1e-7)
    np.testing.assert_array_equal(environment.native_action(np.array([[0, 2]])), [[-1, 1]])


def test_the_best_of_the_factored_bandit_is_the_best_of_all_joint_actions():
    environment = make("bandit/factored", sizes=(3, 5, 2), noise=0.0)
    for task in (environment.default_task(), environment.sample_task(jax.random.key(1))):
        every = jnp.array(list(itertools.product(range(5), repeat=3)), jnp.int32)
        paid = jax.vmap(lambda action, task=task: environment.step(task, jnp.int32(0), action, jax.random.key(0))[1].reward)(every)
        np.testing.assert_allclose(paid.max(), environment.best_reward(task), rtol=1e-6)
    assert float(environment.best_reward(environment.default_task())) == 1.0
    with pytest.raises(ValueError, match="at least two levers"):
        make("bandit/factored", sizes=(3,))


def test_a_trial_shows_every_dimension_of_the_action_before():
    environment = trial(make("bandit/factored", sizes=(2, 3)), episodes=2)
    assert environment.observation.shape == (1 + 2 * 3 + 2,)
    state, _ = environment.reset((), jax.random.key(0))
    _, transition = environment.step((), state, jnp.array([0, 2]), jax.random.key(1))
    np.testing.assert_array_equal(transition.observation[1:7], [1, 0, 0, 0, 0, 1])


def test_several_games_of_catch_are_those_games():
    """Each board is that of a game of its own, moved by its own choice; catching one ball of two pays nothing."""
    environment, one = make("catch/several"), make("catch", rows=5, columns=5)
    task, key = environment.default_task(), jax.random.key(4)
    state, boards = environment.reset(task, key)
    games = [one.reset(task, each) for each in jax.random.split(key, 2)]
    for moves in ([0, 2], [1, 2], [2, 0], [1, 1]):
        state, shown = environment.step(task, state, jnp.array(moves), key)
        stepped = [one.step(task, game[0], jnp.int32(move), key) for game, move in zip(games, moves, strict=True)]
        games = stepped
        for index, (_, transition) in enumerate(stepped):
            np.testing.assert_array_equal(shown.observation[..., index], transition.observation[..., 0])
        np.testing.assert_allclose(shown.reward, np.mean([each.reward for _, each in stepped]))
        assert bool(shown.terminated) == bool(stepped[0][1].terminated)
    assert bool(shown.terminated)
    assert boards.shape == (5, 5, 2)


def test_real_numbers_between_the_bounds():
    low, high = np.array([[-2.1, 0.0]], np.float32), np.array([[0.7, 1.0]], np.float32)
    actions = evenly_spaced(low, high, real=True)
    assert actions.real_dimensions == 2
    assert evenly_spaced(low, high, 5).real_dimensions == one_of(3).real_dimensions == 0
    given = np.array([[-1.0, 1.0], [0.0, -0.5], [7.0, -7.0], [np.nan, 0.5]], np.float32)
    own = actions.native_action(given)
    assert (own.shape, own.dtype) == ((4, 1, 2), np.float32)
    np.testing.assert_array_equal(own[0], [[low[0, 0], high[0, 1]]], "the bounds are met exactly")
    np.testing.assert_array_equal(own[2], [[high[0, 0], low[0, 1]]], "what is beyond is clipped")
    np.testing.assert_allclose(own[[1, 3]], [[[-0.7, 0.25]], [[-0.7, 0.75]]], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda a: actions.native_action(a, jnp))(given), own, rtol=1e-6)
