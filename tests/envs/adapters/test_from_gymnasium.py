"""Gymnasium environments that Python hands over: trained end to end, and refusals that name the way."""

import numpy as np
import pytest

import rulax
from rulax.envs.adapters.gymnasium import from_gymnasium, make
from tests.envs.adapters import host

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces
SMALL = {"rule": "actor_critic", "streams": 2, "unroll": 4, "hidden": (8,), "quiet": True}


class Rooms(gymnasium.Env):
    """Nobody registered it: a room of four, from 3 on, and a step to the right; without an end of its own."""

    action_space = spaces.Discrete(2, start=1)
    observation_space = spaces.Discrete(4, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room = 3
        return self.room, {}

    def step(self, action):
        self.room = min(6, self.room + action - 1)
        return self.room, float(self.room == 6), False, False, {}


def test_an_environment_of_your_own_is_trained_end_to_end(tmp_path):
    environment = from_gymnasium(Rooms, max_episode_steps=5)
    run = rulax.train(environment, steps=64, out=tmp_path / "run", **SMALL)
    assert run.finished
    assert np.isfinite(run.metrics["loss"]).all()
    assert run.summary()["env"] == "Rooms"
    observation, _ = Rooms().reset()
    assert run.agent.act(observation) in (1, 2)  # as the environment counts them
    next_episode = rulax.load(tmp_path / "run", env=from_gymnasium(Rooms))
    assert next_episode.agent.act(observation) == run.agent.act(observation)
    longer = rulax.train(environment, resume=tmp_path / "run", steps=128, quiet=True)
    assert longer.steps[-1] == 128


def test_it_is_what_its_id_would_give():
    actions = np.random.default_rng(0).integers(0, 2, (40, 3))
    ours = host.live(from_gymnasium(lambda: gymnasium.make("CartPole-v1", max_episode_steps=15)), actions)
    named = host.live(make("CartPole-v1", max_episode_steps=15), actions)
    limited = host.live(from_gymnasium(lambda: gymnasium.make("CartPole-v1").unwrapped, max_episode_steps=15), actions)
    for other in (named, limited):
        np.testing.assert_array_equal(ours.observation, other.observation)
        np.testing.assert_array_equal(ours.valid, other.valid)
        np.testing.assert_array_equal(ours.discount, other.discount)


def test_options_are_those_of_make():
    blackjack = from_gymnasium(lambda: gymnasium.make("Blackjack-v1"), flatten=True, name="cards")
    assert (blackjack.name, blackjack.observation.shape) == ("cards", (45,))
    assert from_gymnasium(lambda: gymnasium.make("Pendulum-v1"), bins=5).num_actions == 5


def test_what_cannot_be_an_environment_is_refused():
    for given in (3, lambda: 3, [Rooms]):
        with pytest.raises(
            rulax.UserError, match=r"must be an Environment, a gymnasium.Env, its class, or a function that makes one"
        ):
            rulax.train(given, steps=64)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (gymnasium.make("CartPole-v1"), r"needs a function that makes an environment, as in from_gymnasium\(lambda: MyEnv\(\)\)"),
        (lambda: 3, "must make a gymnasium.Env, not 3"),
        (lambda size: Rooms(), "cannot make an environment: .*missing 1 required positional argument"),
    ],
)
def test_what_makes_no_environment_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        from_gymnasium(given)


def test_one_environment_is_not_enough_for_all_streams():
    shared = Rooms()
    environment = from_gymnasium(lambda: shared)
    with pytest.raises(ValueError, match="must make a new environment at each call, not hand over the same again"):
        environment.open(2)


def test_what_breaks_the_interface_is_refused():
    class Old(Rooms):
        def step(self, action):
            return 3, 0.0, False, {}

    with pytest.raises(ValueError, match=r"'Old': step must return 5 values \(.*\) as Gymnasium has it, not 4 values"):
        from_gymnasium(Old)
