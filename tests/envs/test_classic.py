"""Classic control against Gymnasium's own code: from equal states, equal steps to the precision of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.classic.acrobot import Acrobot
from rulax.envs.classic.cartpole import CartPole
from rulax.envs.classic.mountain_car import MountainCar
from rulax.envs.classic.pendulum import Pendulum

KEY = jax.random.key(0)
NUM_STATES = 200
# Names, our environment, half-width and centre of the states to start from: beyond where episodes end, so that ends are seen.
CASES = {
    "CartPole-v1": (CartPole(), (2.5, 2.0, 0.22, 2.0), 0.0),
    "MountainCar-v0": (MountainCar(), (0.9, 0.07), (-0.3, 0.0)),
    "Acrobot-v1": (Acrobot(), (np.pi, np.pi, 4.0, 9.0), 0.0),
    "Pendulum-v1": (Pendulum(torques=7), (np.pi, 8.0), 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_equal_gymnasium(name):
    gymnasium = pytest.importorskip("gymnasium")
    environment, width, centre = CASES[name]
    theirs = gymnasium.make(name).unwrapped
    theirs.reset(seed=0)
    random = np.random.default_rng(0)
    states = (random.uniform(-1, 1, (NUM_STATES, len(width))) * width + centre).astype(np.float32)
    actions = random.integers(0, environment.num_actions, NUM_STATES)
    step = jax.vmap(lambda state, action: environment.step(environment.default_task(), state, action, KEY))
    _, ours = jax.jit(step)(jnp.asarray(states), jnp.asarray(actions))
    torques = np.linspace(-2, 2, environment.num_actions)
    ends = []
    for i, (state, action) in enumerate(zip(states.astype(np.float64), actions, strict=True)):
        theirs.state = state.copy()
        theirs.steps_beyond_terminated = None
        chosen = np.array([torques[action]]) if name == "Pendulum-v1" else action
        observation, reward, terminated, *_ = theirs.step(chosen)
        np.testing.assert_allclose(ours.observation[i], observation, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(ours.reward[i], reward, rtol=1e-5, atol=1e-5)
        assert bool(ours.terminated[i]) == terminated
        ends.append(terminated)
    if name != "Pendulum-v1":
        assert 0 < sum(ends) < NUM_STATES


def test_the_car_stops_at_the_left_end():
    environment = MountainCar()
    state, _ = environment.step(environment.default_task(), jnp.array([-1.19, -0.06]), jnp.int32(0), KEY)
    np.testing.assert_allclose(state, [-1.2, 0.0], rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_starts_are_as_wide_as_gymnasiums(name):
    gymnasium = pytest.importorskip("gymnasium")
    environment = CASES[name][0]
    theirs = gymnasium.make(name)
    reset = jax.jit(jax.vmap(lambda key: environment.reset(environment.default_task(), key)[1]))
    ours = np.asarray(reset(jax.random.split(KEY, 500)))
    reference = np.stack([theirs.reset(seed=seed)[0] for seed in range(500)])
    spread = np.ptp(reference, 0)
    np.testing.assert_allclose(ours.min(0), reference.min(0), atol=0.05 * spread.max() + 1e-6)
    np.testing.assert_allclose(ours.max(0), reference.max(0), atol=0.05 * spread.max() + 1e-6)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("cartpole", "CartPole-v1"), ("mountain_car", "MountainCar-v0"), ("acrobot", "Acrobot-v1"), ("pendulum", "Pendulum-v1")],
)
def test_time_limits_equal_gymnasiums(name, theirs):
    gymnasium = pytest.importorskip("gymnasium")
    assert make(name).limit == gymnasium.spec(theirs).max_episode_steps


def test_a_pendulum_needs_two_torques():
    with pytest.raises(ValueError, match="at least 2"):
        make("pendulum", torques=1)
