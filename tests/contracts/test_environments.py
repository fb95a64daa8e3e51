"""Every jittable environment keeps the contract of `envs/base.py`: one compiled run of random actions per environment, then plain
numpy.

Each environment is cut off after LIMIT steps, so that termination and truncation both appear where the environment allows it.
"""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs import TimeLimit, list_environments, make, streams
from rulax.types import Array, Level

TASKS, STREAMS, STEPS, LIMIT = 2, 2, 200, 35
# Thirty programs that each run for milliseconds: compiling them less well takes a third of the time.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

# Of Gymnax, one environment in every run; its adapter has tests of its own.
GYMNAX = ("gymnax/CartPole-v1", "gymnax/Catch-bsuite", "gymnax/Breakout-MinAtar")
HAS_GYMNAX = importlib.util.find_spec("gymnax") and importlib.util.find_spec("rulax.envs.adapters.gymnax")
# Of other libraries, those that are installed; Craftax takes a minute to compile.
OTHERS = {"jumanji/Sokoban": "jumanji", "jumanji/Snake": "jumanji", "xland/MiniGrid-EmptyRandom-5x5": "xminigrid"}
SLOW_OTHERS = {"craftax/Craftax-Classic-Symbolic-v1": "craftax"}
OWN = tuple(entry.name for entry in list_environments())
# These differ from an environment before them only in numbers: they are traced in every run, but lived in only by the slow tests.
TWINS = {
    *(f"grid/tabular-{each}" for each in ("sparse", "long-horizon", "longer-horizon", "long-dense")),
    *(f"grid/random-{each}" for each in ("long-horizon", "small", "small-sparse", "very-dense")),
    *("chain/short-noisy", "chain/long", "chain/long-noisy", *GYMNAX[1:], *SLOW_OTHERS),
    *("grid/tabular-dense", "grid/tiny-sparse", "grid/tiny-dense", "grid/step-cost", "chain/distractor", "jumanji/Snake"),
    *("pendulum/continuous", "bandit/gaussian", "bandit/dependent", "bandit/informative", "mdp/ten-steps"),
}
INSTALLED = [name for name, package in {**OTHERS, **SLOW_OTHERS}.items() if importlib.util.find_spec(package)]
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in TWINS else name
    for name in (*OWN, *(GYMNAX if HAS_GYMNAX else ()), *INSTALLED)
]


def live(environment, key: Array):
    """Random actions in random tasks: the tasks [N], and timesteps [N, T+1, B] of which the first is the start."""
    key_task, key_live = jax.random.split(key)
    batched = streams(environment, STREAMS)

    def one(task, key):
        key_start, key_steps = jax.random.split(key)

        def step(state, key):
            key_action, key_step = jax.random.split(key)
            shape = (STREAMS, environment.action_dimensions) if environment.action_dimensions else (STREAMS,)
            action = jax.random.randint(key_action, shape, 0, environment.num_actions)
            return batched.step(task, state, action, key_step)

        state, start = batched.start(task, key_start)
        _, rest = jax.lax.scan(step, state, jax.random.split(key_steps, STEPS))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, rest)

    tasks = jax.vmap(environment.sample_task)(jax.random.split(key_task, TASKS))
    return tasks, jax.vmap(one)(tasks, jax.random.split(key_live, TASKS))


def forms(observation, lead=0):
    """Shapes, without `lead` axes in front, and dtypes of an observation, which may be a dictionary."""
    return jax.tree.map(lambda leaf: (leaf.shape[lead:], np.dtype(leaf.dtype)), observation)


@pytest.fixture(scope="module", params=NAMES)
def run(request):
    """The environment, what gives its life for a key, and a life: tasks and timesteps."""
    environment = TimeLimit(make(request.param), LIMIT)
    compiled = jax.jit(live, static_argnums=0, compiler_options=QUICKLY)

    def live_again():
        return jax.tree.map(np.asarray, compiled(environment, jax.random.key(1)))

    return environment, live_again, *live_again()


def test_observations_match_the_specification(run):
    environment, _, _, timestep = run
    assert forms(timestep.observation, 3) == forms(environment.observation)
    for leaf in jax.tree.leaves(timestep.observation):
        assert leaf.shape[:3] == (TASKS, STEPS + 1, STREAMS)
        assert np.isfinite(leaf).all()


def test_rewards_and_flags_have_the_right_types(run):
    _, _, _, timestep = run
    assert timestep.reward.dtype == timestep.discount.dtype == np.float32
    assert timestep.first.dtype == np.int8
    assert timestep.valid.dtype == timestep.episode.ended.dtype == bool
    assert np.isfinite(timestep.reward).all()
    assert set(np.unique(timestep.discount)) <= {0.0, 1.0}


def test_a_stream_starts_and_restarts(run):
    _, _, _, timestep = run
    assert (timestep.first[:, 0] == Level.LIFE).all()
    assert timestep.first[:, 1:].any(), "no episode ended, so nothing was tested"
    terminated = timestep.discount == 0
    dummy = ~timestep.valid
    # The observation after a terminated step or a dummy starts an episode, and no other does.
    np.testing.assert_array_equal(timestep.first[:, 1:], np.where((terminated | dummy)[:, 1:], Level.EPISODE, Level.NOTHING))
    assert not (terminated & dummy).any()


def test_a_truncated_step_is_followed_by_a_dummy(run):
    _, _, _, timestep = run
    truncated = timestep.episode.ended & (timestep.discount == 1)
    dummy = ~timestep.valid
    np.testing.assert_array_equal(dummy[:, 1:], truncated[:, :-1])
    assert not timestep.first[truncated].any()
    assert (timestep.reward[dummy] == 0).all()
    assert (timestep.discount[dummy] == 1).all()


def test_statistics_equal_the_sum_by_hand(run):
    _, _, _, timestep = run
    for task in range(TASKS):
        for stream in range(STREAMS):
            total, length = 0.0, 0
            for t in range(1, STEPS + 1):
                at = (task, t, stream)
                total, length = total + timestep.reward[at], length + int(timestep.valid[at])
                if timestep.episode.ended[at]:
                    np.testing.assert_allclose(timestep.episode.total[at], total, rtol=1e-4, atol=1e-4)
                    assert timestep.episode.length[at] == length <= LIMIT
                    total, length = 0.0, 0


def test_a_key_determines_everything(run):
    _, live_again, *life = run
    jax.tree.map(np.testing.assert_array_equal, tuple(life), live_again())


def test_tasks_differ(run):
    environment, _, tasks, _ = run
    if environment.one_task:
        pytest.skip("other libraries have no distribution of tasks, and some of ours draw them inside")
    assert not all(jax.tree.leaves(jax.tree.map(lambda x: (x[0] == x[1]).all(), tasks)))


@pytest.mark.parametrize("name", OWN)
def test_tasks_have_equal_structure(name):
    environment = make(name)
    default = jax.eval_shape(environment.default_task)
    sampled = jax.eval_shape(environment.sample_task, jax.random.key(0))
    assert jax.tree.leaves(default) or environment.one_task, "tasks without numbers cannot differ"
    assert default == sampled


@pytest.mark.parametrize("name", OWN)
def test_types_do_not_change_in_double_precision(name):
    """Gradient checks run in float64; environments stay float32, or a scan over them would not compile."""
    environment = make(name)
    with jax.enable_x64(True):
        _, timestep = jax.eval_shape(lambda key: live(environment, key), jax.random.key(0))
    assert forms(timestep.observation, 3) == forms(environment.observation)
    assert timestep.reward.dtype == np.float32
