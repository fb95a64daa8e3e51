"""Every host adapter on its real package: each stream is, in every field, what the bare package gives for its seed and actions.

The oracle is `host.by_hand`, which drives one bare copy in a Python loop. A package that is not installed skips its cases.
"""

import dataclasses
import importlib.util
from collections.abc import Callable

import jax
import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.actions import one_of
from rulax.envs.adapters.envpool import EnvPoolEnvironment
from tests.envs.adapters import host
from tests.envs.adapters.bare import NETHACK, atari, boxoban, catch, crafter, envpool, lab2d, minigrid, nethack, sokoban_planes

STREAMS = 2


@dataclasses.dataclass(frozen=True)
class Case:
    """One environment with a time limit so short that it is met, and the bare package's reset and step for a stream's seed."""

    name: str
    package: str
    bare: Callable
    options: dict = dataclasses.field(default_factory=dict)
    steps: int = 120
    dummy_after: tuple[str, ...] = ("truncated",)
    ends: tuple[str, ...] = ("truncated",)  # the ends that must appear, or nothing was tested

    def __str__(self):
        return self.name + "".join(f"-{key}={value}" for key, value in self.options.items())


BOTH = ("terminated", "truncated")
CASES = [
    Case(
        "atari/Pong",
        "ale_py",
        lambda seed: atari(seed, max_num_frames_per_episode=150),
        {"frames": 150, "threads": 1},
        dummy_after=BOTH,
    ),
    Case(
        "atari/breakout",
        "ale_py",
        lambda seed: atari(seed, "breakout", max_num_frames_per_episode=620, repeat_action_probability=0.25),
        {"frames": 620, "sticky": 0.25, "threads": 1},
        steps=330,
        dummy_after=BOTH,
        ends=BOTH,
    ),
    # Every tenth step Crafter walks through sets of objects, whose order nobody determines: shorter episodes repeat exactly.
    Case("crafter/reward", "crafter", lambda seed: crafter(seed, area=(32, 32), length=9), {"area": (32, 32), "length": 9}, 40),
    Case(
        "nethack/NetHackScore-v0",
        "nle",
        lambda seed: nethack(seed, "NetHackScore-v0", 60),
        {"keys": NETHACK, "max_episode_steps": 60},
        steps=200,
    ),
    Case(
        "nethack/NetHackChallenge-v0",
        "nle",
        lambda seed: nethack(seed, "NetHackChallenge-v0", 90),
        {"keys": NETHACK, "max_episode_steps": 90},
        steps=300,
    ),
    Case(
        "dm_env/tests.envs.adapters.lab2d:PushBox",
        "dmlab2d",
        lambda seed: lab2d(seed, 30),
        {"frames": 30, "key": "WORLD.RGB"},
        ends=("terminated",),
    ),
    Case(
        "dm_env/bsuite.environments.catch:Catch",
        "bsuite",
        lambda seed: catch(seed, rows=6),
        {"rows": 6},
        steps=40,
        ends=("terminated",),
    ),
    Case(
        "envpool/CoinrunEasy-v0",
        "envpool",
        lambda seed: envpool(seed, "CoinrunEasy-v0", num_threads=1),
        {"num_threads": 1},
        steps=1100,
        dummy_after=BOTH,
        ends=("terminated",),
    ),
    Case(  # the limit is ProcGen's own, 500 in this game
        "envpool/MazeHard-v0",
        "envpool",
        lambda seed: envpool(seed, "MazeHard-v0", num_threads=1, num_levels=3),
        {"num_threads": 1, "num_levels": 3},
        steps=700,
        dummy_after=BOTH,
        ends=BOTH,
    ),
    Case(
        "envpool/Pong-v5",
        "envpool",
        lambda seed: envpool(seed, "Pong-v5", max_episode_steps=25, num_threads=1),
        {"max_episode_steps": 25, "num_threads": 1},
        steps=60,
        dummy_after=BOTH,
    ),
    Case(
        "envpool/Sokoban-v0",
        "envpool",
        lambda seed: envpool(seed, "Sokoban-v0", sokoban_planes, base_path=boxoban(), max_episode_steps=20, num_threads=1),
        {"max_episode_steps": 20, "num_threads": 1},
        dummy_after=BOTH,
    ),
    Case(
        "minigrid/MiniGrid-Empty-Random-5x5-v0",
        "minigrid",
        lambda seed: minigrid(seed, "MiniGrid-Empty-Random-5x5-v0", max_steps=30),
        {"max_steps": 30},
        steps=400,
        ends=BOTH,
    ),
]


@pytest.fixture(scope="module", params=CASES, ids=str)
def lived(request):
    case = request.param
    if importlib.util.find_spec(case.package) is None:
        pytest.skip(f"{case.package} is not installed")
    environment = make(case.name, **case.options)
    actions = np.random.default_rng(0).integers(0, environment.num_actions, (case.steps, STREAMS))
    return case, environment, actions, host.live(environment, actions)


def test_observations_are_as_declared(lived):
    _, environment, _, timesteps = lived
    host.assert_declared(environment, timesteps)


def test_streams_are_those_of_the_bare_package(lived):
    case, _, actions, timesteps = lived
    for stream, seed in enumerate(host.seeds(0, STREAMS)):
        reset, step = case.bare(seed)
        host.assert_same(timesteps, stream, host.by_hand(reset, step, actions[:, stream], case.dummy_after))


def test_the_ends_that_were_meant_appear(lived):
    case, _, _, timesteps = lived
    ended = timesteps.episode.ended
    appeared = {"truncated": (ended & (timesteps.discount == 1)).any(), "terminated": (ended & (timesteps.discount == 0)).any()}
    assert case.ends, "a case that names no end would test nothing here"
    assert all(appeared[end] for end in case.ends), appeared  # a misspelt end is a KeyError, not a pass


def test_a_seed_determines_everything(lived):
    _, environment, actions, timesteps = lived
    actions = actions[:30]
    next_episode, other = (host.live(environment, actions, seed) for seed in (0, 1))
    flat = [np.concatenate([leaf.reshape(31, -1) for leaf in leaves(x.observation)], 1) for x in (timesteps, next_episode, other)]
    np.testing.assert_array_equal(flat[0], flat[1])
    assert (flat[1] != flat[2]).any()


def test_closed_streams_say_so(lived):
    _, environment, _, _ = lived
    streams = environment.open(1)
    streams.start(0)
    with pytest.raises(ValueError, match="an action must be 1 numbers from 0 to"):
        streams.step(np.array([environment.num_actions]))
    streams.close()
    streams.close()
    with pytest.raises(ValueError, match="these streams are closed"):
        streams.step(np.zeros(1, np.int32))


def test_procgen_without_qt_says_what_to_install():
    from rulax.envs.adapters.envpool import _say_what_is_missing

    def fails():
        raise ImportError("libQt5Gui.so.5: cannot open shared object file")

    with pytest.raises(ValueError, match=r"needs the system.s Qt 5 .*apt-get install libqt5gui5 libqt5core5a"):
        _say_what_is_missing(fails)


def test_where_envpool_says_both_a_termination_wins():
    class Pool:
        def step(self, action):
            flags = np.array([[True, True], [True, False], [False, True], [False, False]]).T
            return np.zeros((4, 1), np.float32), np.ones(4, np.float32), *flags, {}

    observation = jax.ShapeDtypeStruct((1,), np.float32)
    streams = EnvPoolEnvironment("Any-v0", one_of(2), np.dtype(np.int32), observation, False, False, {}).open(4)
    streams.pool = Pool()
    timestep = streams.step(np.zeros(4, int))
    np.testing.assert_array_equal(timestep.discount, [0, 0, 1, 1])
    np.testing.assert_array_equal(timestep.episode.ended, [True, True, True, False])


def leaves(observation):
    parts = observation.values() if isinstance(observation, dict) else [observation]
    return [np.asarray(part)[:31] for part in parts]


@pytest.mark.parametrize("bins", [5, None])
def test_envpools_real_actions_are_its_own(bins):
    """HalfCheetah's six torques, said or chosen from five each, are what the bare pool is given."""
    envpool = pytest.importorskip("envpool")
    environment = make("envpool/HalfCheetah-v4", bins=bins, num_threads=1)
    assert (environment.action_dimensions, environment.real_dimensions) == (6, 0 if bins else 6)
    actions = np.random.default_rng(0).integers(0, 5, (20, 1, 6))
    timesteps = host.live(environment, actions if bins else (actions / 2 - 1).astype(np.float32))
    bare = envpool.make("HalfCheetah-v4", env_type="gymnasium", num_envs=1, seed=[host.seeds(0, 1)[0] % 2**31])
    np.testing.assert_allclose(timesteps.observation[0], bare.reset()[0], rtol=1e-6)
    for step, action in enumerate(actions):
        observation, reward, *_ = bare.step(action / 2 - 1)
        np.testing.assert_allclose(timesteps.observation[step + 1], observation, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(timesteps.reward[step + 1], reward, rtol=1e-5, atol=1e-6)


def test_death_in_crafter_is_the_end():
    """Nothing else is known to kill within a test's time, so the player's health is taken away."""
    pytest.importorskip("crafter")
    streams = make("crafter/reward", area=(32, 32)).open(2)
    streams.start(0)
    streams.step(np.zeros(2, int))
    streams.copies[1].environment._player.health = 0
    timestep = streams.step(np.zeros(2, int))
    streams.close()
    assert timestep.episode.ended.tolist() == [False, True]
    assert timestep.episode.length[1] == 2
    assert timestep.discount.tolist() == [1, 0]
    assert timestep.first.tolist() == [False, True]
    assert timestep.valid.all()


def test_an_agent_can_be_shown_what_minigrid_shows():
    """The dictionary of its bare environment, the codes in it, one or a batch: the same as what the streams show."""
    pytest.importorskip("minigrid")
    import gymnasium

    environment = make("minigrid/MiniGrid-DoorKey-5x5-v0")
    shown = environment.open(1).start(0).observation
    own = gymnasium.make("MiniGrid-DoorKey-5x5-v0").reset(seed=int(host.seeds(0, 1)[0]))[0]
    for observation in (own, own["image"], environment.preprocess(own)):
        np.testing.assert_array_equal(environment.preprocess(observation), shown[0])
    np.testing.assert_array_equal(environment.preprocess({"image": own["image"][None]}), shown)
    codes = make("minigrid/MiniGrid-DoorKey-5x5-v0", view="codes")
    np.testing.assert_array_equal(codes.preprocess(own), own["image"])
    flat = make("minigrid/MiniGrid-DoorKey-5x5-v0", flatten=True)
    for observation in (own, flat.preprocess(own)):
        np.testing.assert_array_equal(flat.preprocess(observation), shown[0].ravel())


def test_an_agent_can_be_shown_frames_with_channels_first():
    pytest.importorskip("ale_py")
    environment = make("atari/Pong", threads=1)
    shown = environment.open(1).start(0).observation
    np.testing.assert_array_equal(environment.preprocess(np.moveaxis(shown, -1, 1)), shown)
    np.testing.assert_array_equal(environment.preprocess(np.moveaxis(shown, -1, 1)[0]), shown[0])
    np.testing.assert_array_equal(environment.preprocess(shown), shown)
