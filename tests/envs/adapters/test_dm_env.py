"""The dm_env adapter on a small environment of the real dm_env package: both ends, shifted actions, a dictionary of
observations."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.adapters.dm_env import from_dm_env
from tests.envs.adapters import host

dm_env = pytest.importorskip("dm_env")


class Count(dm_env.Environment):
    """Counts to 3 and terminates, or is cut off after 2 steps; pays the action. Its actions are 5 and 6."""

    def __init__(self, seed, cut=False, parts=False):
        self.start, self.last_count, self.cut, self.parts = seed % 100, 2 if cut else 3, cut, parts

    def observation_spec(self):
        count = dm_env.specs.Array((1,), np.int64, "count")
        return {"count": count, "half": dm_env.specs.Array((), np.float64, "half")} if self.parts else count

    def action_spec(self):
        return dm_env.specs.BoundedArray((), np.int32, 5, 6)

    def observe(self):
        count = np.array([self.start + self.count])
        return {"count": count, "half": self.count / 2} if self.parts else count

    def reset(self):
        self.count = 0
        return dm_env.restart(self.observe())

    def step(self, action):
        self.count += 1
        if self.count == self.last_count:
            return (dm_env.truncation if self.cut else dm_env.termination)(float(action), self.observe())
        return dm_env.transition(float(action), self.observe())


class Acted(Count):
    """Shows as its reward what it was told to do."""

    def __init__(self, seed, spec):
        super().__init__(seed)
        self.spec = spec

    def action_spec(self):
        return self.spec

    def step(self, action):
        assert np.asarray(action).dtype == self.spec.dtype
        assert np.shape(action) == self.spec.shape
        return dm_env.transition(float(np.sum(action * np.array([1, 100]))), self.observe())


def Endless(seed):
    return Acted(seed, dm_env.specs.BoundedArray((2,), np.float32, -1, np.inf))


def Unbounded(seed):
    return Acted(seed, dm_env.specs.Array((2,), np.float32))


NAME = f"dm_env/{__name__}:Count"
ACTIONS = np.array([[0], [1], [1], [0], [0], [1], [0]])


def test_a_termination_shows_the_next_episode_at_once():
    timesteps = host.live(make(NAME), ACTIONS)
    start = host.seeds(0, 1)[0] % 100
    np.testing.assert_array_equal(timesteps.observation[:, 0, 0] - start, [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(timesteps.reward[:, 0], [0, 5, 6, 6, 5, 5, 6, 5])
    np.testing.assert_array_equal(timesteps.discount[:, 0], [1, 1, 1, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(timesteps.first[:, 0], [3, 0, 0, 1, 0, 0, 1, 0])
    assert timesteps.valid.all()
    np.testing.assert_array_equal(timesteps.episode.total[timesteps.episode.ended], [17, 16])


def test_a_truncation_is_followed_by_a_dummy():
    timesteps = host.live(make(NAME, cut=True), ACTIONS)
    start = host.seeds(0, 1)[0] % 100
    np.testing.assert_array_equal(timesteps.observation[:, 0, 0] - start, [0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal(timesteps.reward[:, 0], [0, 5, 6, 0, 5, 5, 0, 5])
    np.testing.assert_array_equal(timesteps.valid[:, 0], [1, 1, 1, 0, 1, 1, 0, 1])
    np.testing.assert_array_equal(timesteps.first[:, 0], [3, 0, 0, 1, 0, 0, 1, 0])
    assert (timesteps.discount == 1).all()
    np.testing.assert_array_equal(timesteps.episode.total[timesteps.episode.ended], [11, 10])
    np.testing.assert_array_equal(timesteps.episode.length[timesteps.episode.ended], [2, 2])


def test_dictionaries_keep_whole_numbers():
    environment = from_dm_env(lambda seed: Count(seed, parts=True))
    timesteps = host.live(environment, ACTIONS)
    host.assert_declared(environment, timesteps)
    assert timesteps.observation["count"].dtype == np.int64
    np.testing.assert_array_equal(timesteps.observation["half"][:, 0], np.float32([0, 0.5, 1, 0, 0.5, 1, 0, 0.5]))
    assert make(NAME, parts=True, key="half").observation.shape == ()


def test_real_numbers_by_bins_and_several_choices():
    real = from_dm_env(lambda seed: Acted(seed, dm_env.specs.BoundedArray((2,), np.float64, [-1, 0], 1)), bins=5)
    assert (real.num_actions, real.action_dimensions) == (5, 2)
    timesteps = host.live(real, np.array([[[0, 4]], [[3, 1]]]))
    np.testing.assert_allclose(timesteps.reward[1:, 0], [-1 + 100, 0.5 + 25])
    free = from_dm_env(lambda seed: Acted(seed, dm_env.specs.BoundedArray((2,), np.float64, [-1, 0], 1)))
    assert free.real_dimensions == 2
    timesteps = host.live(free, np.float32([[[-1, 1]], [[0.5, -0.5]], [[9, -9]]]))
    np.testing.assert_allclose(timesteps.reward[1:, 0], [-1 + 100, 0.5 + 25, 1 + 0])
    whole = from_dm_env(lambda seed: Acted(seed, dm_env.specs.BoundedArray((2,), np.int32, [2, -1], [3, 2])))
    assert (whole.num_actions, whole.action_dimensions) == (4, 2)  # the first has two choices, of which each means the same twice
    np.testing.assert_allclose(host.live(whole, np.array([[[1, 3]], [[2, 0]]])).reward[1:, 0], [2 + 200, 3 - 100])
    small = from_dm_env(lambda seed: Acted(seed, dm_env.specs.BoundedArray((2,), np.int8, -128, 127)))
    assert (small.num_actions, small.action_dimensions) == (256, 2)
    both = from_dm_env(lambda seed: Acted(seed, dm_env.specs.BoundedArray((2,), np.bool_, False, True)))
    assert (both.num_actions, both.action_dimensions) == (2, 2)
    with pytest.raises(ValueError, match="4096 choices in one dimension are the most"):
        from_dm_env(lambda seed: Acted(seed, dm_env.specs.BoundedArray((2,), np.int32, -(2**31), 2**31 - 1)))
    with pytest.raises(ValueError, match="need no bins"):
        from_dm_env(lambda seed: Count(seed), bins=3)


class Broken(Count):
    """Shows and pays what it is told to."""

    def __init__(self, seed, shown=(0,), reward=0.0, timestep=None):
        super().__init__(seed)
        self.shown, self.reward, self.timestep = np.array(shown), reward, timestep

    def observe(self):
        return self.shown

    def step(self, action):
        if isinstance(self.timestep, Exception):
            raise self.timestep
        return self.timestep or dm_env.transition(self.reward, self.observe())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timestep": (0, 0.0, False, {})}, "reset and step must return a dm_env.TimeStep, not a tuple"),
        ({"shown": (0, 0)}, r"shows an observation of shape \(2,\), but its space says \(1,\)"),
        ({"reward": np.zeros(2)}, r"a reward must be one number, not an array of shape \(2,\)"),
    ],
)
def test_what_breaks_the_interface_is_refused_and_what_raises_is_not(options, message):
    with pytest.raises(ValueError, match=message):
        from_dm_env(lambda seed: Broken(seed, **options))
    assert from_dm_env(lambda seed: Broken(seed, timestep=OSError("it fell over"))).num_actions == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dm_env/nothing", "must be dm_env/module:function"),
        ("dm_env/no_such_module:f", "cannot be imported: No module named 'no_such_module'"),
        (f"dm_env/{__name__}:Missing", "cannot be imported"),
        (f"dm_env/{__name__}:host", "is not a function"),
        (f"dm_env/{__name__}:stack_without_seed", "needs an argument 'seed'"),
        (f"dm_env/{__name__}:Endless", "actions .*finite low and high"),
        (f"dm_env/{__name__}:Unbounded", "which no agent chooses from"),
    ],
)
def test_errors(name, message):
    with pytest.raises(ValueError, match=message):
        make(name)


def stack_without_seed():
    return Count(0)


class StandInLab:
    """DeepMind Lab as its documentation has it: strings in its config, whole numbers of C, nothing shown after the end."""

    def __init__(self, level, observations, config):
        assert level == "contributed/dmlab30/explore_goal_locations_small"
        assert all(isinstance(value, str) for value in config.values())
        self.names, self.shape, self.frame = observations, (int(config["height"]), int(config["width"]), 3), None

    def reset(self, seed):
        assert type(seed) is int
        self.frame = 0

    def step(self, action, num_steps):
        assert (action.shape, action.dtype) == ((7,), np.intc)
        assert num_steps == 4
        self.frame += num_steps
        return float(action @ [1, 0, 1000, 100, 10_000, 0, 0])

    def is_running(self):
        return self.frame < 12

    def observations(self):
        if not self.is_running():
            raise RuntimeError("environment is not running")
        return {name: np.full(self.shape, self.frame, np.uint8) for name in self.names}

    def close(self):
        pass


def test_the_module_for_deepmind_lab_that_the_documentation_shows(monkeypatch):
    page = Path(__file__).parents[3] / "docs" / "adapters" / "dm_env.md"
    code = re.search(r"# dm_env, and DMLab-30.*?```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S).group(1)
    monkeypatch.setitem(sys.modules, "deepmind_lab", types.SimpleNamespace(Lab=StandInLab))
    module = types.ModuleType("my_lab")
    exec(code, module.__dict__)
    monkeypatch.setitem(sys.modules, "my_lab", module)
    environment = make("dm_env/my_lab:Lab", level="explore_goal_locations_small")
    assert (environment.num_actions, environment.observation.shape) == (9, (72, 96, 3))
    timesteps = host.live(environment, np.array([[0], [1], [2], [7], [8]]))
    host.assert_declared(environment, timesteps)
    np.testing.assert_array_equal(timesteps.reward[:, 0], [0, 100, -100, -1000, 120, 10_000])
    np.testing.assert_array_equal(timesteps.observation[:, 0, 0, 0, 0], [0, 4, 8, 0, 4, 8])
    np.testing.assert_array_equal(timesteps.discount[:, 0], [1, 1, 1, 0, 1, 1])
