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
