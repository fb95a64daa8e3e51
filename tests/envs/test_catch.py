"""Catch: who follows the ball always wins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.catch import Catch, CatchState, CatchTask


def play(environment, task, key, choose):
    step = jax.jit(environment.step)
    state, observation = environment.reset(task, key)
    rewards, observations = [], [observation]
    for t in range(100):
        state, transition = step(task, state, choose(np.asarray(observation)), jax.random.fold_in(key, t))
        observation = transition.observation
        rewards.append(float(transition.reward))
        observations.append(observation)
        if transition.terminated:
            break
    return rewards, observations


def follow(observation):
    board = observation[:, :, 0]
    paddle = int(board[-1].argmax())
    ball = int(board[:-1].sum(0).argmax())
    return 1 + int(np.sign(ball - paddle))


@pytest.mark.parametrize("shape", [(10, 5), (8, 8), (5, 5)])
def test_the_optimal_policy_always_catches(shape):
    environment = Catch(*shape)
    for seed in range(5):
        rewards, observations = play(environment, environment.default_task(), jax.random.key(seed), follow)
        assert rewards == [0.0] * (shape[0] - 2) + [1.0]
        assert all(observation.sum() == 2 for observation in observations[:-1])
        assert observations[-1].sum() == 1  # the ball is on the paddle


def test_a_missed_ball_costs_one():
    environment = Catch(rows=3, columns=5)
    state = CatchState(jnp.int32(0), jnp.int32(4), jnp.int32(2))
    task, key = environment.default_task(), jax.random.key(0)
    state, transition = environment.step(task, state, jnp.int32(0), key)
    assert (float(transition.reward), bool(transition.terminated)) == (0.0, False)
    state, transition = environment.step(task, state, jnp.int32(0), key)
    assert (float(transition.reward), bool(transition.terminated)) == (-1.0, True)
    assert int(state.paddle) == 0


def test_the_paddle_stays_on_the_board_and_starts_in_the_centre():
    environment = Catch(rows=20, columns=5)
    state, observation = environment.reset(environment.default_task(), jax.random.key(0))
    assert observation[-1, 2, 0] == 1
    for _ in range(5):
        state, _ = environment.step(environment.default_task(), state, jnp.int32(0), jax.random.key(0))
    assert int(state.paddle) == 0


@pytest.mark.parametrize(("drift", "moves"), [(0.0, False), (1.0, True)])
def test_drift_moves_the_ball_sideways(drift, moves):
    environment = Catch(rows=5, columns=9)
    state = CatchState(jnp.int32(0), jnp.int32(4), jnp.int32(4))
    after, _ = environment.step(CatchTask(jnp.float32(drift)), state, jnp.int32(1), jax.random.key(0))
    assert (abs(int(after.ball_column) - 4) == 1) is moves


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="at least 2 rows"):
        Catch(rows=1)
