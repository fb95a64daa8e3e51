"""Gymnasium's boxes of actions keep their numbers: whole ones stay whole, and no end is left by rounding."""

import numpy as np
import pytest

from rulax.envs.adapters import gymnasium as adapter

gymnasium = pytest.importorskip("gymnasium")
Box = gymnasium.spaces.Box


class Conditioned(gymnasium.Env):
    """Shows what it was told, which must be in its space, dtype and all."""

    def __init__(self, space):
        self.action_space = space
        self.observation_space = Box(-np.inf, np.inf, (max(1, int(np.prod(space.shape))),), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return np.ravel(action).astype(np.float64), 0.0, False, False, {}


gymnasium.register("RulaxTold-v0", Conditioned)


@pytest.mark.parametrize(
    ("space", "number", "last"),
    [
        (Box(0, 3, (2,), np.int64), 4, [3, 3]),
        (Box(np.array([-2, 5]), np.array([0, 9]), dtype=np.int32), 5, [0, 9]),
        (Box(0, 255, (2,), np.uint8), 256, [255, 255]),
        (Box(-128, 127, (1, 2), np.int8), 256, [127, 127]),
        (Box(-0.3, 0.7, (2,), np.float64), 11, [0.7, 0.7]),
        (Box(-0.3, 0.7, (2,), np.float32), 11, [0.7, 0.7]),
        (Box(-0.3, 0.7, (2,), np.float16), 11, [0.7, 0.7]),
    ],
)
def test_every_choice_is_in_the_space(space, number, last):
    environment = adapter.make("RulaxTold-v0", space=space)
    assert (environment.num_actions, environment.action_dimensions) == (number, 2)
    for choice in range(number):
        assert space.contains(environment.native_action(np.full(2, choice))), choice
    streams = environment.open(2)
    streams.start(0)
    shown = streams.step(np.array([[0, 0], [number - 1, number - 1]])).observation
    streams.close()
    assert not streams.failed
    np.testing.assert_allclose(shown, [space.low.ravel(), last], rtol=1e-3)
    assert len(np.unique(environment.actions.values[1])) == number


def test_one_whole_number_is_one_choice():
    environment = adapter.make("RulaxTold-v0", space=Box(2, 4, (1,), np.int32))
    assert (environment.num_actions, environment.action_dimensions) == (3, 0)
    np.testing.assert_array_equal(environment.native_action(np.arange(3)), [[2], [3], [4]])


def test_whole_numbers_are_refused_where_there_are_too_many_or_bins():
    with pytest.raises(ValueError, match="'RulaxTold-v0' has actions of kind Box: whole numbers need no bins"):
        adapter.make("RulaxTold-v0", space=Box(0, 3, (2,), np.int64), bins=3)
    for wide in (Box(0, 2**16 - 1, (2,), np.uint16), Box(-np.inf, np.inf, (1,), np.int64), Box(0, 2**64 - 1, (1,), np.uint64)):
        with pytest.raises(ValueError, match="'RulaxTold-v0' has actions of kind Box: 4096 choices in one dimension are the most"):
            adapter.make("RulaxTold-v0", space=wide)
