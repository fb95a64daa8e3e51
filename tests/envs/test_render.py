"""Pictures of environments: every one of ours has one, and what moves in the state moves in the picture."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.catch import Catch, CatchState
from rulax.envs.classic.pendulum import Pendulum
from rulax.envs.registry import list_environments, make
from rulax.envs.render import AMBER, BLUE, GREEN, OWN, RED, inside, picture_of, render


def start(environment, key=0):
    task = environment.default_task()
    state, observation = environment.reset(task, jax.random.key(key))
    return jax.device_get((task, state, observation))


@pytest.mark.parametrize("name", [entry.name for entry in list_environments()])
def test_every_environment_has_a_picture(name):
    environment = make(name)
    task, state, observation = start(environment)
    picture = render(environment, task, state, observation)
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3
    assert 20 <= max(picture.shape) <= 700
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 1


@pytest.mark.parametrize("name", ["cartpole", "mountain_car", "acrobot", "pendulum", "point", "grid/random-small", "chain/short"])
def test_those_that_should_be_drawn_are_drawn(name):
    environment = make(name)
    task, state, _ = start(environment)
    assert type(inside(environment, task, state)[0]) in OWN


def where(picture, colour):
    """Mean row and column of a colour, as shares of the picture."""
    found = np.argwhere((picture == np.array(colour)).all(-1))
    return found.mean(0) / picture.shape[:2]


def test_ball_and_paddle_are_where_the_state_says():
    environment = Catch()
    for row, ball, paddle in ((0, 0, 4), (4, 3, 1)):
        picture = render(environment, (), CatchState(np.int32(row), np.int32(ball), np.int32(paddle)), None)
        np.testing.assert_allclose(where(picture, AMBER), ((row + 0.5) / 10, (ball + 0.5) / 5), atol=0.02)
        np.testing.assert_allclose(where(picture, BLUE), (9.5 / 10, (paddle + 0.5) / 5), atol=0.02)


def test_good_is_green_and_bad_is_red():
    environment = make("grid/tabular-sparse", limit=0)
    task, state, _ = start(environment)
    picture = render(environment, task, state, None)
    for kind, colour in ((0, GREEN), (1, RED)):
        cell = np.array(divmod(int(state.places[kind]), environment.width)) + 0.5
        np.testing.assert_allclose(where(picture, colour), cell / 13, atol=0.02)


def test_an_upright_pendulum_stands():
    picture = render(Pendulum(), Pendulum().default_task(), np.array([0.0, 0.0], np.float32), None)
    row, column = where(picture, BLUE)
    assert row < 0.5  # above the middle
    assert abs(column - 0.5) < 0.02


def test_wrappers_are_looked_through():
    plain, wrapped = make("catch"), make("catch", trial=2)
    picture = render(wrapped, *start(wrapped))
    assert picture.shape == render(plain, *start(plain)).shape


def test_an_environment_may_draw_itself():
    @dataclasses.dataclass(frozen=True)
    class Own(Catch):
        def render(self, task, state):
            return np.full((7, 9, 3), int(state.paddle), np.uint8)

    assert render(Own(), *start(Own())).shape == (7, 9, 3)


@pytest.mark.parametrize(
    ("observation", "frames"),
    [
        (np.zeros((84, 84, 4), np.uint8), 4),
        (np.zeros((64, 64, 3), np.uint8), 1),
        (np.ones((10, 10, 6), np.float32), 1),
        (np.ones((9, 9), np.int32), 1),
        (np.array([1.0, -2.0, np.nan, np.inf], np.float32), 1),
        (np.ones(500, np.float32), 1),
        ({"image": np.zeros((8, 8, 3), np.uint8), "pace": np.ones(2, np.float32)}, 1),
    ],
)
def test_any_observation_can_be_shown(observation, frames):
    picture = picture_of(None, observation, frames)
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3


def test_the_last_of_stacked_frames_is_shown():
    stack = np.zeros((4, 4, 2), np.uint8)
    stack[..., 1] = 255
    assert (picture_of(None, stack, 2) == 255).all()


def test_minatar_shows_each_plane_in_its_colour():
    planes = jnp.zeros((3, 3, 4)).at[0, 0, 0].set(1).at[2, 2, 3].set(1)
    picture = picture_of(None, np.asarray(planes))
    cell = picture.shape[0] // 3
    assert (picture[0, 0] != picture[-1, -1]).any()
    assert (picture[cell + 1, cell + 1] == picture[cell + 1, 1]).all()  # both are ground
