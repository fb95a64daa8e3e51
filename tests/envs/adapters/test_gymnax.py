"""The gymnax adapter: the contract of `envs/base.py` on real environments, and both generations of gymnax's interface."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs import adapters
from rulax.envs.adapters import gymnax as adapter
from rulax.envs.base import Timestep
from rulax.envs.wrappers import streams
from rulax.types import Level

gymnax = pytest.importorskip("gymnax")
struct = pytest.importorskip("flax.struct")
CONTINUOUS = {"Pendulum-v1", "MountainCarContinuous-v0", "PointRobot-misc", "Reacher-misc", "Swimmer-misc"}
DOWNLOADS = {"MNISTBandit-bsuite"}


def live(environment, task, num_steps, num_streams=2, action=None) -> Timestep:
    """Timesteps [T+1, B] of `num_steps` steps; random actions unless one is given."""
    batched = streams(environment, num_streams)

    def one(state, key):
        key_act, key_step = jax.random.split(key)
        chosen = jax.random.randint(key_act, (num_streams,), 0, environment.num_actions)
        state, timestep = batched.step(task, state, chosen if action is None else jnp.full_like(chosen, action), key_step)
        return state, timestep

    @jax.jit
    def run():
        state, start = batched.start(task, jax.random.key(1))
        _, rest = jax.lax.scan(one, state, jax.random.split(jax.random.key(2), num_steps))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, rest)

    return jax.tree.map(np.asarray, run())


def assert_contract(timesteps: Timestep, environment) -> None:
    """What `AutoReset` promises, in any stream."""
    assert timesteps.observation.shape[2:] == environment.observation.shape
    assert timesteps.observation.dtype == environment.observation.dtype
    first, discount, valid, ended = timesteps.first, timesteps.discount, timesteps.valid, timesteps.episode.ended
    assert (first[0] == Level.LIFE).all()
    np.testing.assert_array_equal(first[1:], np.where((discount == 0)[1:] | ~valid[1:], Level.EPISODE, Level.NOTHING))
    truncated = ended & (discount == 1)
    np.testing.assert_array_equal(~valid[1:], truncated[:-1])
    assert (timesteps.reward[~valid] == 0).all()


@pytest.mark.parametrize("id", [id for id in gymnax.registered_envs if id not in DOWNLOADS])
def test_every_id_fits_a_scan(id):
    """Shapes and types only: the state of a step has those of a reset, under vmap, scan and traced tasks."""
    environment = adapter.make(id)
    batched = streams(environment, 2)

    def run(task, key):
        state, start = batched.start(task, key)
        actions = jnp.zeros((3, 2, *[environment.action_dimensions] * (environment.action_dimensions > 0)), jnp.int32)
        return start, jax.lax.scan(lambda s, a: batched.step(task, s, a, key), state, actions)[1]

    start, rest = jax.eval_shape(run, environment.default_task(), jax.random.key(0))
    assert start.observation.shape == (2, *environment.observation.shape)
    assert rest.observation.shape == (3, 2, *environment.observation.shape)
    assert start.observation.dtype == rest.observation.dtype == environment.observation.dtype == jnp.float32
    assert rest.reward.dtype == jnp.float32
    space = environment.environment.observation_space(gymnax.make(id)[1])
    assert environment.observation.shape == (tuple(space.shape) or (space.n,))


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("CartPole-v1", {"max_steps_in_episode": 12}),
        ("Breakout-MinAtar", {}),
        ("Catch-bsuite", {"rows": 5}),
        ("DeepSea-bsuite", {"size": 4}),
        ("FrozenLake-misc", {"max_steps_in_episode": 6}),
        ("BernoulliBandit-misc", {"max_steps_in_episode": 5.0}),
    ],
)
def test_contract(id, options):
    environment = adapter.make(id, **options)
    timesteps = live(environment, environment.default_task(), 60)
    assert timesteps.episode.ended.any()
    assert_contract(timesteps, environment)


def test_cartpole_ends_by_falling_and_by_time():
    environment = adapter.make("CartPole-v1", max_steps_in_episode=8)
    falls = live(environment, environment.default_task().replace(max_steps_in_episode=500), 40, action=1)
    assert falls.episode.ended.any()
    assert (falls.discount[falls.episode.ended] == 0).all()
    in_time = live(environment, environment.default_task(), 20, action=None)
    np.testing.assert_array_equal(np.flatnonzero(in_time.episode.ended[:, 0]), [8, 17])  # the ninth step is a dummy
    assert (in_time.discount == 1).all()
    assert (in_time.episode.total[[8, 17]] == 8).all()
    assert (in_time.episode.length[[8, 17]] == 8).all()


@pytest.mark.parametrize(("id", "limit"), [("CartPole-v1", 9), ("DeepSea-bsuite", 8), ("FourRooms-misc", 4)])
def test_agrees_with_the_step_of_gymnax_itself(id, limit):
    """gymnax's own step resets at once, but reports what ended and the observation before the reset."""
    environment = adapter.make(id, max_steps_in_episode=limit)
    task, bare = environment.default_task(), environment.environment
    state, _ = environment.reset(task, jax.random.key(0))
    step = jax.jit(environment.step)
    for key in jax.random.split(jax.random.key(1), limit):
        _, _, reward, terminated, truncated, info = bare.step(key, state, jnp.int32(1), task)
        state, transition = step(task, state, jnp.int32(1), jax.random.split(key)[0])
        np.testing.assert_allclose(transition.observation, info["final_observation"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(transition.reward, reward, rtol=1e-6)
        assert transition.terminated == terminated
        assert transition.truncated == (truncated & ~terminated)
    assert transition.terminated | transition.truncated


def test_deep_sea_ends_by_itself_though_its_time_limit_falls_on_the_same_step():
    environment = adapter.make("DeepSea-bsuite", size=4)
    timesteps = live(environment, environment.default_task(), 12)
    np.testing.assert_array_equal(np.flatnonzero(timesteps.discount[:, 0] == 0), [4, 8, 12])
    assert timesteps.valid.all()


def test_bandit_horizon_is_a_truncation():
    environment = adapter.make("BernoulliBandit-misc", max_steps_in_episode=3.0)
    timesteps = live(environment, environment.default_task(), 8)
    np.testing.assert_array_equal(np.flatnonzero(timesteps.episode.ended[:, 0]), [3, 7])
    assert (timesteps.discount == 1).all()


def test_tasks_batch():
    environment = adapter.make("CartPole-v1")
    task = environment.default_task()
    assert all(isinstance(leaf, jax.Array) and not leaf.weak_type for leaf in jax.tree.leaves(task))
    tasks = jax.tree.map(lambda x: jnp.stack([x, x]), task)
    tasks = tasks.replace(gravity=jnp.array([9.8, 50.0]), max_steps_in_episode=jnp.array([500, 2]))
    state, _ = environment.reset(task, jax.random.key(0))

    def twice(task):
        middle, _ = environment.step(task, state, jnp.int32(1), jax.random.key(1))
        return environment.step(task, middle, jnp.int32(1), jax.random.key(1))[1]

    transition = jax.jit(jax.vmap(twice))(tasks)
    np.testing.assert_array_equal(transition.truncated, [False, True])
    assert transition.observation[0, 3] != transition.observation[1, 3]


def test_sampled_task_is_the_default():
    environment = adapter.make("Acrobot-v1")
    jax.tree.map(np.testing.assert_array_equal, environment.sample_task(jax.random.key(3)), environment.default_task())


def test_discrete_observations_are_one_hot():
    environment = adapter.make("FrozenLake-misc", is_slippery=False)
    assert environment.observation.shape == (16,)
    state, observation = environment.reset(environment.default_task(), jax.random.key(0))
    np.testing.assert_array_equal(observation, np.eye(16)[0])
    _, transition = environment.step(environment.default_task(), state, jnp.int32(2), jax.random.key(0))
    np.testing.assert_array_equal(transition.observation, np.eye(16)[1])


@pytest.mark.parametrize("id", sorted(CONTINUOUS))
def test_continuous_actions_are_chosen_by_bins(id):
    """Every corner of the box is reached, and gymnax is given what it asks for."""
    environment = adapter.make(id, bins=3)
    space = environment.environment.action_space(environment.default_task())
    size = int(np.prod(space.shape))
    assert (environment.num_actions, environment.action_dimensions) == (3, size if size > 1 else 0)
    for choice, end in ((0, space.low), (2, space.high)):
        own = environment.native_action(np.full((1, size) if size > 1 else 1, choice))[0]
        np.testing.assert_allclose(own, np.broadcast_to(end, space.shape))
    task, action = environment.default_task(), jnp.full(size if size > 1 else (), 2)
    state, _ = environment.reset(task, jax.random.key(0))
    _, ours = environment.step(task, state, action, jax.random.key(1))
    direct = environment.environment.step_env(jax.random.key(1), state, jnp.broadcast_to(space.high, space.shape), task)
    np.testing.assert_allclose(ours.observation, direct[0], rtol=1e-5)
    np.testing.assert_allclose(ours.reward, direct[2], rtol=1e-5)
    free = adapter.make(id)
    assert (environment.real_dimensions, free.real_dimensions) == (0, size)
    _, said = free.step(task, state, jnp.full(size, 1.5, jnp.float32), jax.random.key(1))
    np.testing.assert_allclose(said.observation, direct[0], rtol=1e-5)


def test_errors_say_what_to_do(monkeypatch):
    with pytest.raises(ValueError, match=r"unknown gymnax environment 'cartpole-v1'; did you mean 'CartPole-v1'"):
        adapter.make("cartpole-v1")
    with pytest.raises(ValueError, match=r"unknown gymnax environment 'qqqq'; no id looks like it"):
        adapter.make("qqqq")
    with pytest.raises(ValueError, match=r"'CartPole-v1' does not take gravty .*; known: .*gravity"):
        adapter.make("CartPole-v1", gravty=1.0)
    assert "CartPole-v1" in adapter.ids()

    def missing(module):
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr(adapters.importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"pip install 'rulax\[gymnax\]'"):
        adapter.make("CartPole-v1")


def test_failed_download_is_one_sentence(monkeypatch):
    def offline(id):
        raise OSError("no route")

    monkeypatch.setattr(gymnax, "make", offline)
    with pytest.raises(ValueError, match="'MNISTBandit-bsuite' could not load its data: no route"):
        adapter.make("MNISTBandit-bsuite")


@struct.dataclass
class WalkState:
    position: jax.Array
    time: int
    key: jax.Array


@struct.dataclass
class WalkParams:
    goal: int = 3
    max_steps_in_episode: int = 5


@struct.dataclass
class EndlessParams:
    goal: int = 3


@dataclasses.dataclass(eq=False)
class Walk:
    """A corridor with gymnax's methods: action 1 walks on, the goal ends the episode. `step_env` returns so many `values`."""

    values: int

    def reset_env(self, key, params):
        state = WalkState(position=jnp.int32(0), time=0, key=key)
        return state.position > jnp.arange(2), state

    def step_env(self, key, state, action, params):
        state = state.replace(position=state.position + action, time=state.time + 1)
        observation, reward = state.position > jnp.arange(2), state.position
        at_goal = state.position >= params.goal
        if self.values == 6:
            return observation, state, reward, at_goal, state.time >= params.max_steps_in_episode, {}
        out_of_time = state.time >= params.max_steps_in_episode if hasattr(params, "max_steps_in_episode") else False
        return observation, state, reward, at_goal | out_of_time, {}

    def step(self, key, state, action, params):
        return self.step_env(key, state, action, params)

    def action_space(self, params):
        return gymnax.environments.spaces.Discrete(2)

    def observation_space(self, params):
        return gymnax.environments.spaces.Box(0, 1, (2,), jnp.bool_)


def ends(environment, actions) -> tuple[list[bool], list[bool]]:
    """Which of a few steps terminated and which truncated; the episode is not reset between them."""
    task = environment.default_task()
    state, observation = environment.reset(task, jax.random.key(0))
    assert observation.dtype == jnp.float32
    terminated, truncated = [], []
    for action in actions:
        state, transition = environment.step(task, state, jnp.int32(action), jax.random.key(0))
        terminated.append(bool(transition.terminated))
        truncated.append(bool(transition.truncated))
    return terminated, truncated


@pytest.mark.parametrize("values", [5, 6])
def test_both_signatures_tell_the_goal_from_the_time_limit(values):
    environment = adapter.adapt("Walk", Walk(values), WalkParams())
    assert environment.tells_apart == (values == 6)
    assert ends(environment, [1, 1, 1]) == ([False, False, True], [False, False, False])
    assert ends(environment, [1, 0, 0, 0, 0]) == ([False] * 5, [False] * 4 + [True])
    assert ends(environment, [1, 0, 0, 1, 1]) == ([False] * 4 + [True], [False] * 5)  # both ends on one step


def test_five_values_without_a_time_limit_terminate():
    environment = adapter.adapt("Walk", Walk(5), EndlessParams())
    assert ends(environment, [1, 1, 1]) == ([False, False, True], [False, False, False])


def test_five_values_keep_the_contract():
    environment = adapter.adapt("Walk", Walk(5), WalkParams())
    timesteps = live(environment, environment.default_task(), 40)
    assert_contract(timesteps, environment)
    assert (timesteps.discount == 0).any()
    assert not timesteps.valid.all()


def test_unreadable_observations_are_refused():
    walk = Walk(6)
    walk.observation_space = lambda params: gymnax.environments.spaces.Dict({})
    with pytest.raises(ValueError, match="'Walk' has observations of kind Dict, but only Box and Discrete are supported"):
        adapter.adapt("Walk", walk, WalkParams())
