"""Gymnasium environments that break its interface are refused in one sentence; those that raise are not."""

import numpy as np
import pytest

from rulax.envs.adapters import gymnasium as adapter
from rulax.envs.adapters.restart import RestartingStreams

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces


class Broken(gymnasium.Env):
    """Returns what it is told to."""

    def __init__(self, reset=None, step=None, shown=None):
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32) if shown is None else shown
        self.returned, self.stepped = reset, step

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return (np.zeros(2, np.float32), {}) if self.returned is None else self.returned

    def step(self, action):
        if isinstance(self.stepped, Exception):
            raise self.stepped
        return (np.zeros(2, np.float32), 0.0, False, False, {}) if self.stepped is None else self.stepped


ZEROS = np.zeros(2, np.float32)
gymnasium.register("RulaxBroken-v0", Broken)
gymnasium.register("RulaxBrokenLimited-v0", Broken, max_episode_steps=5)


@pytest.mark.parametrize("name", ["RulaxBroken-v0", "RulaxBrokenLimited-v0"])  # TimeLimit itself cannot unpack four values
@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"step": (ZEROS, 0.0, False, {})},
            r"step must return 5 values \(observation, .*, info\) as .*, not 4 values",
        ),
        ({"step": ZEROS}, "step must return 5 values .* not one ndarray"),
        ({"step": (ZEROS, 0.0, False, {}, {})}, "step must return True or False as truncated, not a dict"),
        (
            {"step": (ZEROS, 0.0, np.array([False]), False, {})},
            "step must return True or False as terminated, not an array of",
        ),
        ({"step": (ZEROS, np.ones(1), False, False, {})}, r"a reward must be one number, not an array of shape \(1,\)"),
        ({"step": (ZEROS, None, False, False, {})}, "a reward must be one number, not a NoneType"),
        ({"reset": ZEROS}, r"reset must return 2 values \(observation, info\) .* not one ndarray"),
    ],
)
def test_what_breaks_the_interface_is_refused(name, flatten, options, message):
    with pytest.raises(ValueError, match=f"^Gymnasium environment '{name}': {message}"):
        adapter.make(name, flatten=flatten, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset": (np.zeros(3), {})}, r"shows an observation of shape \(3,\), but its space says \(2,\)"),
        ({"step": (np.zeros((1, 2)), 0.0, False, False, {})}, r"of shape \(1, 2\), but its space says \(2,\)"),
        ({"shown": spaces.Discrete(3), "reset": (7, {})}, "not in its own space: ValueError: an observation is one of 3 indices"),
        ({"shown": spaces.Dict(a=spaces.Discrete(3)), "reset": ({"b": 1}, {})}, "not in its own space: KeyError: 'a'"),
        ({"shown": 3}, "has no observation_space of Gymnasium's: set it in __init__"),
    ],
)
def test_what_leaves_its_own_space_is_refused(options, message):
    with pytest.raises(ValueError, match=f"^Gymnasium environment 'RulaxBroken-v0' .*{message}"):
        adapter.make("RulaxBroken-v0", **options)


def test_a_wrapper_that_shows_something_else_is_refused():
    def longer(bare):
        return gymnasium.wrappers.TransformObservation(bare, lambda shown: np.append(shown, 0), bare.observation_space)

    with pytest.raises(ValueError, match=r"of shape \(3,\), but its space says \(2,\)"):
        adapter.make("RulaxBroken-v0", wrappers=[longer])


def test_what_raises_is_not_refused():
    environment = adapter.make("RulaxBroken-v0", step=OSError("the emulator fell over"))
    streams = RestartingStreams(environment, 1, most=1)
    streams.start(0)
    assert not streams.step(np.zeros(1, int)).valid.any()
    streams.close()


def test_one_reset_and_one_step_are_all_that_is_looked_at():
    asked = []

    class Counted(Broken):
        def reset(self, **options):
            asked.append("reset")
            return super().reset(**options)

        def step(self, action):
            asked.append("step")
            return super().step(action)

        def close(self):
            asked.append("close")

    gymnasium.register("RulaxCounted-v0", Counted)
    adapter.make("RulaxCounted-v0")
    assert asked == ["reset", "step", "close"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_episode_steps": "abc"}, "max_episode_steps expects a whole number such as 50000, 1e6 or 200k, not 'abc'"),
        ({"max_episode_steps": 2.5}, "max_episode_steps expects a whole number such as 50000, 1e6 or 200k, not 2.5"),
        ({"max_episode_steps": True}, "max_episode_steps expects a whole number such as 50000, 1e6 or 200k, not True"),
        ({"max_episode_steps": 0}, "max_episode_steps must be at least 1, or -1 for no limit, not 0"),
        ({"flatten": 5}, "flatten expects true or false, not 5"),
    ],
)
def test_options_are_read(options, message):
    with pytest.raises(ValueError, match=f"^'CartPole-v1': {message}$"):
        adapter.make("CartPole-v1", **options)


def test_a_time_limit_may_be_written_as_a_float():
    streams = adapter.make("CartPole-v1", max_episode_steps=2.0).open(1)
    streams.start(0)
    ended = [bool(streams.step(np.zeros(1, int)).episode.ended[0]) for _ in range(2)]
    streams.close()
    assert ended == [False, True]
    assert adapter.make("CartPole-v1", max_episode_steps=-1).num_actions == 2
