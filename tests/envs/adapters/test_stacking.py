"""`stack=` on any host environment: the frames that an agent would have seen one by one, black before an episode's first."""

import jax
import numpy as np
import pytest

import rulax
from rulax.envs import make
from rulax.envs.catalogue import adapter_families
from rulax.learning.frames import fold, unfold
from tests.envs.adapters import host

gymnasium = pytest.importorskip("gymnasium")


class Slides(gymnasium.Env):
    """Two colours that say how far the episode is; five steps long, the seed's own shade."""

    observation_space = gymnasium.spaces.Dict(
        {"picture": gymnasium.spaces.Box(0, 255, (8, 8, 2), np.uint8), "count": gymnasium.spaces.Box(0, 9, (1,), np.float32)}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def show(self):
        picture = np.full((8, 8, 2), 10 + self.count, np.uint8)
        picture[..., 1] += 100
        return {"picture": picture, "count": np.array([self.count], np.float32)}

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self.show(), {}

    def step(self, action):
        self.count += 1
        return self.show(), 0.0, False, self.count == 5, {}  # truncated, so that the last picture is shown


gymnasium.register("RulaxSlides-v0", Slides)


def test_the_last_frames_are_shown_and_an_episode_starts_in_the_dark():
    environment = make("gymnasium/RulaxSlides-v0", stack=3)
    assert environment.observation["picture"].shape == (8, 8, 6)
    assert (environment.frames, environment.num_actions) == (3, 2)
    timesteps = host.live(environment, np.zeros((8, 1), int))
    host.assert_declared(environment, timesteps)
    counts, shown = timesteps.observation["count"][:, 0, 0], timesteps.observation["picture"][:, 0, 0, 0]
    np.testing.assert_array_equal(counts, [0, 1, 2, 3, 4, 5, 0, 1, 2])
    np.testing.assert_array_equal(shown[:, ::2], [
        [0, 0, 10], [0, 10, 11], [10, 11, 12], [11, 12, 13], [12, 13, 14], [13, 14, 15], [0, 0, 10], [0, 10, 11], [10, 11, 12],
    ])  # fmt: skip
    np.testing.assert_array_equal(shown[:, 1::2], np.where(shown[:, ::2] > 0, shown[:, ::2] + 100, 0))


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("atari/Breakout", {"frames": 800, "threads": 1}, (84, 84, 4)),
        ("envpool/Breakout-v5", {"episodic_life": True, "num_threads": 1}, (84, 84, 4)),
        ("envpool/Breakout-v5", {"stack_num": 3, "gray_scale": False, "max_episode_steps": 60, "num_threads": 1}, (84, 84, 9)),
    ],
)
def test_environments_that_stack_their_frames_themselves_have_each_stored_once(name, options, shape):
    """Their own stacks, over several starts of episodes, come back bit by bit from one copy of every frame."""
    pytest.importorskip(adapter_families()[name.split("/")[0]].package)
    environment = make(name, **options)
    assert environment.observation.shape == shape
    assert environment.frames == options.get("stack_num", 4)
    timesteps = host.live(environment, np.random.default_rng(0).integers(0, environment.num_actions, (240, 2)))
    assert timesteps.first.sum() > 2  # both streams have started again
    folded = fold(np.moveaxis(timesteps.observation, 0, 1), environment.frames)
    assert folded.frames.shape[1] == 240 + environment.frames
    np.testing.assert_array_equal(unfold(jax.tree.map(lambda x: np.moveaxis(x, 0, 1), folded)), timesteps.observation)


@pytest.mark.parametrize(
    ("name", "frames", "message"),
    [
        ("gymnasium/CartPole-v1", 4, "shows neither images"),
        ("gymnasium/RulaxSlides-v0", 0, "at least 1, not 0"),
        ("gymnax/Breakout-MinAtar", 4, "runs inside of JAX"),
        ("atari/Pong", 4, "shows stacks of 4 frames already"),
        ("envpool/Pong-v5", 4, "shows stacks of 4 frames already"),
    ],
)
def test_what_cannot_be_stacked(name, frames, message):
    pytest.importorskip(adapter_families()[name.split("/")[0]].package)
    with pytest.raises(ValueError, match=message):
        make(name, stack=frames)


def test_a_trained_agent_is_shown_one_frame_after_the_other():
    """Trained with replay, which stores frames once; then its handle sees what training showed."""
    settings = {"streams": 2, "unroll": 4, "batch": 2, "replay": 0.5, "capacity": 8, "warmup": 2, "hidden": (8,), "channels": (2,)}
    options = {"env_options": {"stack": 3}, "quiet": True}
    run = rulax.train("gymnasium/RulaxSlides-v0", "actor_critic", steps=64, **settings, **options)
    assert np.isfinite(run.metrics["loss"][-1])
    agent, slides = run.agent, Slides()
    observation, _ = slides.reset()
    agent.act(observation)
    agent.act(slides.step(0)[0])
    np.testing.assert_array_equal(agent.frames["picture"][0, 0, ::2], [0, 10, 11])
    agent.reset()
    agent.act(observation)
    np.testing.assert_array_equal(agent.frames["picture"][0, 0, ::2], [0, 0, 10])
