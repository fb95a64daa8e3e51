"""Gymnasium's dictionaries of observations: each part is read by its kind, and an agent learns from all of them."""

import gymnasium
import numpy as np
import pytest

import rulax
from rulax.envs.adapters import gymnasium as adapter
from tests.envs.adapters import host

spaces = gymnasium.spaces
PARTS = {
    "image": spaces.Box(0, 255, (12, 12, 3), np.uint8),
    "speed": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "room": spaces.Discrete(4, start=2),
    "things": spaces.MultiDiscrete([3, 4], start=[1, 0]),
    "seen": spaces.MultiBinary(3),
}


class Parts(gymnasium.Env):
    """Shows a sample of every part; three steps long."""

    action_space = spaces.Discrete(2)

    def __init__(self, **more):
        self.observation_space = spaces.Dict(PARTS | more)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.count += 1
        return self.observation_space.sample(), float(action), self.count == 3, False, {}


gymnasium.register("RulaxParts-v0", Parts)


def test_every_part_is_read_by_its_kind():
    environment = adapter.make("RulaxParts-v0")
    timesteps = host.live(environment, np.zeros((4, 2), int))
    host.assert_declared(environment, timesteps)
    shown = timesteps.observation
    assert {name: part.dtype.name for name, part in shown.items()} == {
        **dict.fromkeys(("speed", "room", "seen"), "float32"),
        "image": "uint8",
        "things": "int32",
    }
    direct = Parts()
    for stream, seed in enumerate(host.seeds(0, 2)):
        raw, _ = direct.reset(seed=seed)
        for name in ("image", "seen"):
            np.testing.assert_array_equal(shown[name][0, stream], raw[name])
        np.testing.assert_allclose(shown["speed"][0, stream], raw["speed"], rtol=1e-6)
        np.testing.assert_array_equal(shown["things"][0, stream], raw["things"] - [1, 0])
        np.testing.assert_array_equal(shown["room"][0, stream], np.arange(2, 6) == raw["room"])


def test_an_agent_learns_from_all_parts():
    settings = {"streams": 2, "unroll": 4, "hidden": (8,), "channels": (2,), "quiet": True}
    run = rulax.train("gymnasium/RulaxParts-v0", "actor_critic", steps=64, **settings)
    assert np.isfinite(run.metrics["loss"]).all()
    assert run.agent.act(Parts().observation_space.sample()) in (0, 1)  # as Gymnasium shows it


def test_a_part_that_nobody_reads_is_named():
    gymnasium.register("RulaxMission-v0", lambda: Parts(mission=spaces.Text(5)))
    with pytest.raises(ValueError, match=r"of kind Text, which no agent reads in 'mission'; flatten=True"):
        adapter.make("RulaxMission-v0")


class Shown(gymnasium.Env):
    """Shows a sample of one space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(action), False, False, {}


gymnasium.register("RulaxShown-v0", Shown, max_episode_steps=3)


def image(*shape, dtype=np.uint8):
    return spaces.Box(0, 255, shape, dtype)


def channels_last(raw):
    return np.moveaxis(raw, -3, -1)


@pytest.mark.parametrize(
    ("space", "shape", "turned"),
    [
        (image(4, 20, 22), (20, 22, 4), channels_last),
        (image(20, 22), (20, 22, 1), lambda raw: raw[..., None]),
        (image(20, 22, 3), (20, 22, 3), np.array),
        (image(20, 22, 40), (20, 22, 40), np.array),  # more than channels
        (image(5, 9), (5, 9), np.array),  # a table
        (image(4, 20, 22, dtype=np.float32), (4, 20, 22), np.array),  # numbers may mean anything
    ],
)
def test_images_get_their_channels_last(space, shape, turned):
    environment = adapter.make("RulaxShown-v0", space=space)
    assert environment.observation.shape == shape
    timesteps = host.live(environment, np.zeros((2, 2), int))
    host.assert_declared(environment, timesteps)
    for stream, seed in enumerate(host.seeds(0, 2)):
        raw, _ = Shown(space).reset(seed=seed)
        np.testing.assert_array_equal(timesteps.observation[0, stream], turned(raw))
        np.testing.assert_array_equal(environment.preprocess(raw), turned(raw))
        np.testing.assert_array_equal(environment.preprocess(turned(raw)), turned(raw))  # what is read already
    batch = np.stack([space.sample() for _ in range(5)])
    np.testing.assert_array_equal(environment.preprocess(batch), turned(batch))


def test_images_in_parts_and_in_stacks_too():
    space = spaces.Dict(eye=image(3, 12, 14), map=image(9, 9), speed=image(2))
    environment = rulax.make("gymnasium/RulaxShown-v0", space=space, stack=2)
    assert {name: part.shape for name, part in environment.observation.items()} == {
        "eye": (12, 14, 6),
        "map": (9, 9, 2),
        "speed": (2,),
    }
    host.assert_declared(environment, host.live(environment, np.zeros((2, 2), int)))
    settings = {"streams": 2, "unroll": 4, "hidden": (8,), "channels": (2,), "quiet": True}
    environment = adapter.make("RulaxShown-v0", space=image(4, 12, 12))
    run = rulax.train(environment, "actor_critic", steps=64, **settings)
    assert run.agent.act(image(4, 12, 12).sample()) in (0, 1)
    run.agent.reset()
    assert run.agent.act(np.stack([image(4, 12, 12).sample()] * 3)).shape == (3,)
    with pytest.raises(ValueError, match=r"an observation has shape \(12, 12, 4\), not \(12, 12\)"):
        run.agent.act(np.zeros((12, 12), np.uint8))


FLAT = {
    "tuple": spaces.Tuple([spaces.Discrete(3, start=2), spaces.Box(-1, 1, (2, 2), np.float32), spaces.Text(4)]),
    "dict": spaces.Dict(a=spaces.MultiBinary(3), b=spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 3])])),
    "text": spaces.Text(4),
    "discrete": spaces.Discrete(5, start=1),
    "image": image(4, 5, 3),
}


@pytest.mark.parametrize("space", FLAT.values(), ids=FLAT)
def test_what_is_flattened_is_seen_as_the_environment_shows_it(space):
    environment = adapter.make("RulaxShown-v0", space=space, flatten=True)
    own = [space.sample() for _ in range(3)]
    flat = np.stack([spaces.flatten(space, each) for each in own])
    for each, expected in zip(own, flat, strict=True):
        np.testing.assert_allclose(environment.preprocess(each), expected)
    utils = gymnasium.vector.utils
    batch = utils.concatenate(space, own, utils.create_empty_array(space, 3))  # as a vector environment shows it
    np.testing.assert_allclose(environment.preprocess(batch), flat)
    if space.shape is None or len(space.shape) > 1:
        np.testing.assert_allclose(environment.preprocess(flat[0]), flat[0])  # what is flat already
        np.testing.assert_allclose(environment.preprocess(flat), flat)


def test_an_agent_of_a_flattened_environment_acts_on_what_that_shows(tmp_path):
    settings = {"streams": 2, "unroll": 4, "hidden": (8,), "quiet": True, "out": tmp_path / "run"}
    rulax.train("Blackjack-v1", "actor_critic", steps=64, env_options={"flatten": True}, **settings)
    agent = rulax.load(tmp_path / "run").agent
    environment = gymnasium.make("Blackjack-v1")
    observation, _ = environment.reset(seed=0)
    assert agent.act(observation) in (0, 1)
    agent.reset()
    several, _ = gymnasium.make_vec("Blackjack-v1", num_envs=3, vectorization_mode="sync").reset(seed=0)
    assert agent.act(several).shape == (3,)
