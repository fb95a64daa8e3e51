"""The Gymnasium adapter: exact sequences of all ways to reset on a tiny environment, then the contract on real environments."""

import numpy as np
import pytest

from rulax.envs import adapters
from rulax.envs.adapters import gymnasium as adapter
from rulax.types import Level

gymnasium = pytest.importorskip("gymnasium")


class Three(gymnasium.Env):
    """Counts 1, 2, 3 and terminates; rewards 1, 2, 3. Action 6 makes the reward NaN; actions and observations start at 5."""

    def __init__(self, kind: str = "box"):
        self.action_space = gymnasium.spaces.Discrete(2, start=5)
        self.kind = kind
        box = gymnasium.spaces.Box(0, 3, (1,), np.uint8 if kind == "uint8" else np.float64)
        self.observation_space = gymnasium.spaces.Discrete(4, start=5) if kind == "discrete" else box
        self.count = 0

    def observe(self):
        return self.count + 5 if self.kind == "discrete" else np.array([self.count], self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observe(), {}

    def step(self, action):
        self.count += 1
        return self.observe(), float("nan") if action == 6 else float(self.count), self.count == 3, False, {}


gymnasium.register("RulaxThree-v0", Three)


SPACES = {
    "multi": gymnasium.spaces.MultiDiscrete([2, 4], start=[0, 7]),
    "binary": gymnasium.spaces.MultiBinary(2),
    "box": gymnasium.spaces.Box(np.array([-1, 0], np.float32), np.array([1, 4], np.float32)),
    "endless": gymnasium.spaces.Box(-np.inf, np.inf, (2,)),
    "text": gymnasium.spaces.Text(3),
}


class Two(gymnasium.Env):
    """An action of several parts; the observation is what arrived, which must be in the space."""

    def __init__(self, kind: str = "multi"):
        self.action_space = SPACES[kind]
        self.observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return np.asarray(action, np.float32), 0.0, False, False, {}


gymnasium.register("RulaxTwo-v0", Two)


WAYS = (None, "next_step", "same_step")  # to reset: ours, and the two of Gymnasium


def live(environment, actions, num_streams=2, seed=0):
    """Timesteps, each field stacked to [T+1, B, ...]; `actions` is [T], [T, B] or [T, B, D]."""
    streams = environment.open(num_streams)
    try:
        timesteps = [streams.start(seed)]
        for action in actions:
            timesteps.append(streams.step(np.broadcast_to(action, (num_streams, *np.shape(action)[1:]))))
    finally:
        streams.close()
    return stack(timesteps)


def stack(timesteps):
    if isinstance(timesteps[0], tuple):
        return type(timesteps[0])(*(stack([step[i] for step in timesteps]) for i in range(len(timesteps[0]))))
    return np.stack(timesteps)


def assert_stream(timesteps, *, observation, first, reward, discount, valid, ended, total, length):
    """Stream 0 is as written by hand, and stream 1 is the same; statistics only where an episode ended."""
    for stream in range(2):
        np.testing.assert_array_equal(timesteps.observation[:, stream, 0], observation)
        np.testing.assert_array_equal(timesteps.first[:, stream], [Level.LIFE, *first[1:]])
        np.testing.assert_array_equal(timesteps.reward[:, stream], reward)
        np.testing.assert_array_equal(timesteps.discount[:, stream], discount)
        np.testing.assert_array_equal(timesteps.valid[:, stream], np.array(valid, bool))
        where = timesteps.episode.ended[:, stream]
        np.testing.assert_array_equal(np.flatnonzero(where), ended)
        np.testing.assert_array_equal(timesteps.episode.total[where, stream], total)
        np.testing.assert_array_equal(timesteps.episode.length[where, stream], length)
    assert timesteps.observation.dtype == timesteps.reward.dtype == timesteps.discount.dtype == np.float32
    assert timesteps.first.dtype == np.int8
    assert timesteps.valid.dtype == timesteps.episode.ended.dtype == bool
    assert timesteps.episode.total.dtype == np.float32
    assert timesteps.episode.length.dtype == np.int32


def test_next_step_terminated():
    assert_stream(
        live(adapter.make("RulaxThree-v0", autoreset="next_step"), [0] * 8),
        observation=[0, 1, 2, 3, 0, 1, 2, 3, 0],
        first=[1, 0, 0, 0, 1, 0, 0, 0, 1],
        reward=[0, 1, 2, 3, 0, 1, 2, 3, 0],
        discount=[1, 1, 1, 0, 1, 1, 1, 0, 1],
        valid=[1, 1, 1, 1, 0, 1, 1, 1, 0],
        ended=[3, 7],
        total=[6, 6],
        length=[3, 3],
    )


@pytest.mark.parametrize("autoreset", [None, "next_step"])
def test_a_truncated_episode_shows_where_it_ended(autoreset):
    assert_stream(
        live(adapter.make("RulaxThree-v0", autoreset=autoreset, max_episode_steps=2), [0] * 6),
        observation=[0, 1, 2, 0, 1, 2, 0],
        first=[1, 0, 0, 1, 0, 0, 1],
        reward=[0, 1, 2, 0, 1, 2, 0],
        discount=[1, 1, 1, 1, 1, 1, 1],
        valid=[1, 1, 1, 0, 1, 1, 0],
        ended=[2, 5],
        total=[3, 3],
        length=[2, 2],
    )


@pytest.mark.parametrize("autoreset", [None, "same_step"])
def test_a_terminated_episode_loses_nothing(autoreset):
    assert_stream(
        live(adapter.make("RulaxThree-v0", autoreset=autoreset), [0] * 7),
        observation=[0, 1, 2, 0, 1, 2, 0, 1],
        first=[1, 0, 0, 1, 0, 0, 1, 0],
        reward=[0, 1, 2, 3, 1, 2, 3, 1],
        discount=[1, 1, 1, 0, 1, 1, 0, 1],
        valid=[1, 1, 1, 1, 1, 1, 1, 1],
        ended=[3, 6],
        total=[6, 6],
        length=[3, 3],
    )


def test_same_step_truncated():
    assert_stream(
        live(adapter.make("RulaxThree-v0", autoreset="same_step", max_episode_steps=2), [0] * 5),
        observation=[0, 1, 0, 1, 0, 1],
        first=[1, 0, 1, 0, 1, 0],
        reward=[0, 1, 2, 1, 2, 1],
        discount=[1, 1, 1, 1, 1, 1],
        valid=[1, 1, 0, 1, 0, 1],
        ended=[2, 4],
        total=[3, 3],
        length=[2, 2],
    )


@pytest.mark.parametrize("autoreset", WAYS)
def test_a_time_limit_on_the_terminating_step_is_a_termination(autoreset):
    timesteps = live(adapter.make("RulaxThree-v0", autoreset=autoreset, max_episode_steps=3), [0] * 3)
    assert (timesteps.discount[3] == 0).all()
    assert timesteps.valid.all()


@pytest.mark.filterwarnings("ignore:.*NaN")
def test_nan_rewards_pass_through():
    """NaN is for the trainer to find: it stays in the stream and in the episode where it happened."""
    timesteps = live(adapter.make("RulaxThree-v0"), np.array([[0, 1]] + [[0, 0]] * 6))
    assert np.isnan(timesteps.reward[1, 1])
    assert np.isfinite(timesteps.reward).sum() == timesteps.reward.size - 1
    np.testing.assert_array_equal(timesteps.episode.total[3], [6, np.nan])
    np.testing.assert_array_equal(timesteps.episode.total[6], [6, 6])


def test_all_ways_see_the_same_episodes():
    returns = []
    for autoreset in WAYS:
        for limit in (None, 2):
            options = {} if limit is None else {"max_episode_steps": limit}
            timesteps = live(adapter.make("RulaxThree-v0", autoreset=autoreset, **options), [0] * 20)
            returns.append(timesteps.episode.total[timesteps.episode.ended][:6].tolist())
    assert returns[0] == returns[2] == returns[4] == [6.0] * 6
    assert returns[1] == returns[3] == returns[5] == [3.0] * 6


def test_all_ways_see_the_same_cartpole():
    """Constant actions and one seed: returns and lengths agree, whatever the number of dummy steps between the episodes."""
    seen = []
    for autoreset in WAYS:
        timesteps = live(adapter.make("CartPole-v1", autoreset=autoreset), [1] * 60, num_streams=1, seed=3)
        seen.append(timesteps.episode.total[timesteps.episode.ended][:4].tolist())
    assert len(seen[0]) == 4
    assert seen[0] == seen[1] == seen[2]


def test_cartpole_contract():
    environment = adapter.make("CartPole-v1", max_episode_steps=15)
    assert (environment.num_actions, environment.observation.shape) == (2, (4,))
    actions = np.random.default_rng(0).integers(0, 2, (80, 3))
    timesteps = live(environment, actions, num_streams=3)
    ended = timesteps.episode.ended
    terminated, truncated = ended & (timesteps.discount == 0), ended & (timesteps.discount == 1)
    np.testing.assert_array_equal(timesteps.first[1:], terminated[1:] | truncated[:-1])
    np.testing.assert_array_equal(~timesteps.valid[1:], truncated[:-1])
    assert (timesteps.episode.total[ended] == timesteps.episode.length[ended]).all()
    assert truncated.any()
    assert (timesteps.episode.length[truncated] == 15).all()
    assert terminated.any()


def test_mountain_car_is_truncated():
    timesteps = live(adapter.make("MountainCar-v0"), [1] * 201, num_streams=1)
    assert (timesteps.discount == 1).all()
    np.testing.assert_array_equal(np.flatnonzero(timesteps.episode.ended), [200])
    assert timesteps.episode.total[200, 0] == -200
    assert not timesteps.valid[201, 0]


def test_same_seed_same_stream():
    environment = adapter.make("CartPole-v1")
    actions = np.random.default_rng(1).integers(0, 2, (50, 2))
    one, next_episode, other = (live(environment, actions, seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(one.observation, next_episode.observation)
    assert (one.observation[0] != other.observation[0]).any(-1).all()
    assert (one.observation[0, 0] != one.observation[0, 1]).any()
    assert (one.observation[0, 1] != other.observation[0, 0]).any()  # neighbouring seeds share no stream


@pytest.mark.parametrize("autoreset", WAYS)
def test_restart_forgets(autoreset):
    """A second start in the middle of an episode, or just before a dummy step, is like the first."""
    streams = adapter.make("RulaxThree-v0", autoreset=autoreset).open(2)
    for steps in (1, 3):
        streams.start(0)
        for _ in range(steps):
            streams.step(np.zeros(2, np.int32))
    assert streams.start(0).first.all()
    for _ in range(3):
        timestep = streams.step(np.zeros(2, np.int32))
        assert timestep.valid.all()
    assert (timestep.episode.total == 6).all()
    streams.close()
    streams.close()  # closing twice is harmless
    with pytest.raises(ValueError, match="these streams are closed"):
        streams.step(np.zeros(2, np.int32))
    with pytest.raises(ValueError, match="these streams are closed"):
        streams.start(0)


def test_observations():
    lake = adapter.make("FrozenLake-v1", is_slippery=False)
    assert (lake.observation.shape, lake.observation.dtype) == ((16,), np.float32)
    timesteps = live(lake, [2, 1])
    np.testing.assert_array_equal(timesteps.observation[:, 0], np.eye(16)[[0, 1, 0]])  # a hole: back to the start
    taxi = max(id for id in adapter.ids() if id.startswith("Taxi-"))  # its number depends on the version of Gymnasium
    assert adapter.make(taxi).observation.shape == (500,)
    shifted = live(adapter.make("RulaxThree-v0", kind="discrete"), [0, 0])
    np.testing.assert_array_equal(shifted.observation[:, 0], np.eye(4)[[0, 1, 2]])
    image = adapter.make("RulaxThree-v0", kind="uint8")
    assert image.observation.dtype == live(image, [0]).observation.dtype == np.uint8


@pytest.mark.parametrize(
    ("kind", "number", "arrived"),
    [("multi", 4, [[0, 7], [0, 8], [1, 10]]), ("binary", 2, [[0, 0], [0, 1], [1, 1]]), ("box", 11, [[-1, 0], [-1, 0.4], [1, 4]])],
)
def test_actions_of_several_dimensions(kind, number, arrived):
    environment = adapter.make("RulaxTwo-v0", kind=kind)
    assert (environment.num_actions, environment.action_dimensions) == (number, 2)
    streams = environment.open(3)
    streams.start(0)
    shown = streams.step(np.array([[0, 0], [0, 1], [number - 1, number - 1]])).observation
    streams.close()
    np.testing.assert_allclose(shown, arrived, rtol=1e-6)


def test_pendulum_by_bins_is_pendulum():
    """The same torques, given to Gymnasium's environment directly, give the same rewards and observations."""
    environment = adapter.make("Pendulum-v1", bins=5)
    assert (environment.num_actions, environment.action_dimensions) == (5, 0)
    chosen = np.random.default_rng(0).integers(0, 5, 20)
    ours = live(environment, chosen, num_streams=1, seed=3)
    direct = gymnasium.make("Pendulum-v1")
    (seed,) = np.random.SeedSequence(3).generate_state(1)
    observation, _ = direct.reset(seed=int(seed))
    np.testing.assert_allclose(ours.observation[0, 0], observation)
    for step, choice in enumerate(chosen):
        observation, reward, *_ = direct.step(np.array([choice - 2.0], np.float32))
        np.testing.assert_allclose(ours.observation[step + 1, 0], observation, rtol=1e-6)
        np.testing.assert_allclose(ours.reward[step + 1, 0], reward, rtol=1e-6)


def test_pendulum_takes_real_numbers():
    """In units of its bounds, which are -2 and 2, and clipped there."""
    environment = adapter.make("Pendulum-v1")
    assert (environment.num_actions, environment.real_dimensions) == (11, 1)
    said = np.random.default_rng(0).normal(size=(20, 1, 1)).astype(np.float32)
    assert (np.abs(said) > 1).any()
    ours = live(environment, said, num_streams=1, seed=3)
    direct = gymnasium.make("Pendulum-v1")
    (seed,) = np.random.SeedSequence(3).generate_state(1)
    direct.reset(seed=int(seed))
    for step, share in enumerate(said):
        observation, reward, *_ = direct.step(2 * np.clip(share[0], -1, 1))
        np.testing.assert_allclose(ours.observation[step + 1, 0], observation, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(ours.reward[step + 1, 0], reward, rtol=1e-5)
    for wrong in (adapter.make("Pendulum-v1", bins=5), adapter.make("CartPole-v1")):
        streams = wrong.open(1)
        streams.start(0)
        with pytest.raises(ValueError, match="an action must be 1 numbers from 0 to"):
            streams.step(said[0])
        streams.close()


def test_flatten():
    with pytest.raises(
        ValueError, match=r"'Blackjack-v1' has observations of kind Tuple, .*; flatten=True turns all of it into one vector"
    ):
        adapter.make("Blackjack-v1")
    environment = adapter.make("Blackjack-v1", flatten=True)
    assert environment.observation.shape == (32 + 11 + 2,)
    timesteps = live(environment, [1] * 5)
    assert timesteps.observation.shape == (6, 2, 45)
    assert (timesteps.observation.sum(-1) == 3).all()


def test_errors_say_what_to_do(monkeypatch):
    with pytest.raises(ValueError, match=r"'RulaxTwo-v0' has actions of kind Box: .* finite low and high"):
        adapter.make("RulaxTwo-v0", kind="endless")
    with pytest.raises(ValueError, match=r"'RulaxTwo-v0' has actions of kind Text, which no agent chooses from"):
        adapter.make("RulaxTwo-v0", kind="text")
    with pytest.raises(ValueError, match=r"'CartPole-v1' has actions of kind Discrete, which need no bins"):
        adapter.make("CartPole-v1", bins=3)
    with pytest.raises(ValueError, match=r"'Pendulum-v1' .*: bins must be a whole number of at least 2, not 1"):
        adapter.make("Pendulum-v1", bins=1)
    with pytest.raises(ValueError, match=r"unknown Gymnasium environment 'Cartpol-v1'; did you mean 'CartPole-v1'"):
        adapter.make("Cartpol-v1")
    with pytest.raises(ValueError, match=r"unknown Gymnasium environment 'XYZ/Qqqqqqq-v5'; no id .* 'package:Id-v0'"):
        adapter.make("XYZ/Qqqqqqq-v5")
    with pytest.raises(ValueError, match=r"'CartPole-v1' cannot be made: .*gravty"):
        adapter.make("CartPole-v1", gravty=1)
    with pytest.raises(ValueError, match="unknown autoreset 'never'; known: next_step, same_step"):
        adapter.make("CartPole-v1", autoreset="never")
    assert {"CartPole-v1", "RulaxThree-v0"} <= set(adapter.ids())

    def missing(module):
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr(adapters.importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"pip install 'rulax\[gymnasium\]'"):
        adapter.make("CartPole-v1")
