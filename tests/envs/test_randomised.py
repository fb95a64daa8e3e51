"""Constants drawn for every episode: where they lie, whom they belong to, and that equal numbers make Gymnasium's dynamics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.classic.acrobot import Acrobot
from rulax.envs.classic.cartpole import CartPole
from rulax.envs.classic.mountain_car import MountainCar
from rulax.envs.classic.pendulum import Pendulum
from rulax.envs.ranges import at, ranges_of, read_ranges, write_ranges
from rulax.envs.tasks import randomised, trial
from rulax.envs.wrappers import streams
from rulax.errors import UserError

# Ours, Gymnasium's, constants with the attributes that they are there and a range, and states to start from.
CASES = {
    "CartPole-v1": (
        CartPole(),
        {"force": (["force_mag"], (1, 20)), "length": (["length"], (0.05, 1)), "mass": (["masspole"], (0.01, 1))},
        (1.0, 2.0, 0.2, 2.0),
    ),
    "MountainCar-v0": (MountainCar(), {"force": (["force"], (1e-4, 0.01)), "mass": (["gravity"], (5e-4, 0.01))}, (0.3, 0.05)),
    "Acrobot-v1": (
        Acrobot(by_angles=True),
        {
            "length": (["LINK_LENGTH_1", "LINK_LENGTH_2"], (0.5, 1.5)),
            "mass": (["LINK_MASS_1", "LINK_MASS_2"], (0.5, 1.5)),
            "inertia": (["LINK_MOI"], (0.5, 1.5)),
        },
        (np.pi, np.pi, 2.0, 2.0),
    ),
    "Pendulum-v1": (Pendulum(torques=3), {"length": (["l"], (0.5, 1.5)), "mass": (["m"], (0.5, 1.5))}, (np.pi, 4.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_drawn_constants_are_those_of_gymnasiums_attributes(name):
    """Step by step from equal states, with what our names mean set by hand, and derived attributes by Gymnasium's own lines."""
    gymnasium = pytest.importorskip("gymnasium")
    environment, constants, width = CASES[name]
    tasks = jax.vmap(randomised(environment, **{key: ends for key, (_, ends) in constants.items()}).sample_task)(
        jax.random.split(jax.random.key(1), 40)
    )
    random = np.random.default_rng(0)
    states = (random.uniform(-1, 1, (40, len(width))) * width).astype(np.float32)
    actions = random.integers(0, environment.num_actions, 40)
    step = jax.jit(jax.vmap(lambda task, state, action: environment.step(task, state, action, jax.random.key(0))))
    _, ours = step(tasks, jnp.asarray(states), jnp.asarray(actions))
    theirs = gymnasium.make(name).unwrapped
    theirs.reset(seed=0)
    for i in range(40):
        for key, (attributes, _) in constants.items():
            field = environment.short_names.get(key, (key,))[0]
            for attribute in attributes:
                setattr(theirs, attribute, float(np.asarray(getattr(tasks, field))[i]))
        if name == "CartPole-v1":
            theirs.total_mass, theirs.polemass_length = theirs.masspole + theirs.masscart, theirs.masspole * theirs.length
        theirs.state, theirs.steps_beyond_terminated = states[i].astype(np.float64), None
        action = np.array([2.0 * (actions[i] - 1)]) if name == "Pendulum-v1" else actions[i]
        observation, reward, terminated, *_ = theirs.step(action)
        np.testing.assert_allclose(ours.observation[i], observation, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(ours.reward[i], reward, rtol=1e-4, atol=1e-4)
        assert bool(ours.terminated[i]) == terminated


def test_every_episode_of_every_stream_draws_its_own():
    environment = make("cartpole", randomise="cartpole.force=1:5|15:20,length=.25:.75", limit=5)
    several = streams(environment, 64)
    task = environment.default_task()
    state, _ = jax.jit(several.start)(task, jax.random.key(0))
    step, forces, ends = jax.jit(several.step), [], []
    for number in range(12):
        drawn = state.stream.env_state.task
        forces.append(np.asarray(drawn.force))
        assert (np.asarray(drawn.gravity) == np.float32(9.8)).all()
        assert ((np.asarray(drawn.half_length) >= 0.25) & (np.asarray(drawn.half_length) <= 0.75)).all()
        state, timestep = step(task, state, jnp.zeros(64, jnp.int32), jax.random.key(number + 1))
        ends.append(np.asarray(timestep.first) > 0)
    forces, ends = np.array(forces), np.array(ends)
    assert (((forces >= 1) & (forces <= 5)) | ((forces >= 15) & (forces <= 20))).all()
    assert len(np.unique(forces[0])) > 60
    changed = forces[1:] != forces[:-1]
    assert (changed == ends[:-1]).all()  # exactly where an episode starts
    assert changed.any(0).all()


@pytest.mark.parametrize("name", ["cartpole", "mountain_car", "acrobot", "pendulum", "pendulum/continuous"])
def test_every_constant_of_classic_control_has_ranges(name):
    """All of them at once, and each short name: drawn within its range, for every episode, and nothing else is touched."""
    default = make(name).default_task()
    # Half of small ones, since a mass or a step of time stays above 0.
    reach = {field: min(0.1, abs(float(value)) / 2) or 0.1 for field, value in default._asdict().items()}
    wide = {field: (float(value) - reach[field], float(value) + reach[field]) for field, value in default._asdict().items()}
    environment = make(name, randomise=wide)
    states, _ = jax.vmap(lambda key: environment.reset(default, key))(jax.random.split(jax.random.key(0), 50))
    for field, (low, high) in wide.items():
        drawn = np.asarray(getattr(states.task, field))
        assert low - 1e-4 * reach[field] <= drawn.min() < drawn.max() <= high + 1e-4 * reach[field]
        assert len(np.unique(drawn)) > 40
    for short, fields in make(name).short_names.items():
        task = randomised(make(name), name, **{short: 0.3}).sample_task(jax.random.key(1))
        changed = [field for field in task._fields if float(getattr(task, field)) != float(getattr(default, field))]
        assert changed == list(fields)


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("Pendulum-v1", "g"), ("MountainCar-v0", "gravity"), ("Acrobot-v1", "LINK_MOI"), ("CartPole-v1", "gravity")],
)
def test_any_gymnasium_environment_draws_its_attributes(name, attribute):
    """Attributes of objects and of classes (Acrobot's), each copy for itself; what is not named stays."""
    pytest.importorskip("gymnasium")
    opened = make(name, randomise={attribute: (3, 4)}).open(3)
    opened.start(5)
    copies = [copy.env.unwrapped for copy in opened.copies]
    drawn = [getattr(copy, attribute) for copy in copies]
    assert all(3 <= each <= 4 for each in drawn)
    assert len(set(drawn)) == 3
    untouched = {"g": "m", "gravity": "force" if name[0] == "M" else "length", "LINK_MOI": "LINK_MASS_1"}[attribute]
    plain = make(name).open(1)
    plain.start(5)
    assert {getattr(copy, untouched) for copy in copies} == {getattr(plain.copies[0].env.unwrapped, untouched)}
    opened.close()
    plain.close()


def test_a_union_is_uniform_over_its_length():
    share = (np.arange(10_000) + 0.5) / 10_000
    drawn = at(((1.0, 5.0), (15.0, 20.0)), share, np)
    np.testing.assert_allclose(np.mean(drawn < 10), 4 / 9, atol=1e-3)
    np.testing.assert_allclose(np.sort(drawn), drawn)
    assert set(at(((1.0, 1.0), (3.0, 3.0)), share, np)) == {1.0, 3.0}
    np.testing.assert_allclose(at(((1.0, 5.0), (15.0, 20.0)), jnp.asarray(share, jnp.float32), jnp), drawn, rtol=1e-5)


def test_three_ways_to_write_ranges_are_one():
    read = read_ranges("randomise", "cartpole.force=1:5|15:20,length=.5")
    assert read == {"cartpole": {"force": ((1, 5), (15, 20)), "length": ((0.5, 0.5),)}}
    assert read_ranges("randomise", {"cartpole.force": [(15, 20), (1, 5)], "length": 0.5}) == read
    # On the command line everything after the first = is the value of the first name.
    assert read_ranges("randomise", {"cartpole.force": "1:5|15:20,length=.5"}) == read
    ranges = ranges_of("cartpole", "randomise", read_ranges("", "force=1:5")[""])
    assert ranges_of("cartpole", "randomise", write_ranges(ranges)) == ranges


def test_with_trials_one_draw_lasts_for_a_trial():
    environment = make("cartpole", randomise="force=1:20", trial=3, limit=2)
    state, _ = jax.jit(environment.reset)(environment.default_task(), jax.random.key(0))
    force, step = float(state.task.force), jax.jit(environment.step)
    for number in range(5):
        state, _ = step((), state, jnp.int32(0), jax.random.key(number))
        assert float(state.task.force) == force


@pytest.mark.parametrize(
    ("env", "ranges", "words"),
    [
        ("cartpole", "forse=5:15", "has no constant 'forse'; did you mean 'force'? (it has gravity, "),
        ("cartpole", "force=15:5", "force begins with its lowest number: 5:15, not 15:5"),
        ("cartpole", "force=a:5", "force expects a number, not 'a'"),
        ("cartpole", "force=1:2:3", "expects a lowest and a highest number"),
        ("cartpole", "force=nan:2", "expects a finite number"),
        ("cartpole", "force", "expects NAME=LOW:HIGH"),
        ("cartpole", "force=1:5|4:6", "intervals that overlap"),
        ("cartpole", "length=-1:1", "length of 'cartpole' must be above 0, not -1:1"),
        ("pendulum", "mass=0", "mass of 'pendulum' must be above 0, not 0"),
        ("acrobot", "inertia=1:2|-2:-1", "inertia of 'acrobot' must be above 0"),
        ("cartpole", "force=1|4:6", "a single number beside an interval"),
        ("cartpole", "force=1:2,force=3:4", "names force twice"),
        ("cartpole", "length=1:2,half_length=1:2", "two ranges for half_length"),
        ("cartpole", "pendulum.length=1:2", "names the environment 'pendulum'"),
        ("two_step", "x=1:2", "has no constant 'x'"),
        ("FrozenLake-v1", "x=1:2", "'FrozenLake-v1' has nothing to randomise"),
        ("CartPole-v1", "forcemag=1:2", "no real-valued attribute 'forcemag'; did you mean 'force_mag'?"),
        ("CartPole-v1", "x_threshold=1:2", "its observation_space is made from it"),
        ("CartPole-v1", "total_mass=1:2,masspole=1:2", "total_mass is computed from other attributes"),
        ("CartPole-v1", "length=-1:1", "length of 'CartPole-v1' must be above 0, not -1:1"),
        ("CartPole-v1", "tau=0", "tau of 'CartPole-v1' must be above 0, not 0"),
        ("Acrobot-v1", "LINK_MASS_2=-2:-1|1:2", "LINK_MASS_2 of 'Acrobot-v1' must be above 0"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(env, ranges, words):
    if env[0].isupper():
        pytest.importorskip("gymnasium")
    with pytest.raises(UserError) as caught:
        make(env, randomise=ranges)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_without_constants_is_one_sentence():
    with pytest.raises(UserError, match="'trials' has nothing to randomise"):
        randomised(trial(CartPole()), "trials", force=(1, 2))


# -- attributes of Gymnasium's objects -----------------------------------------------------------------------------------------


def attributes(streams):
    """What each copy has now, [B, 5]."""
    found = [copy.env.unwrapped for copy in streams.copies]
    return np.array([[env.masspole, env.length, env.force_mag, env.total_mass, env.polemass_length] for env in found])


def test_what_gymnasium_derives_is_derived_again():
    pytest.importorskip("gymnasium")
    environment = make("CartPole-v1", randomise="masspole=.5:1,length=1:2,force_mag=1:5")
    opened = environment.open(3)
    seen = []
    for _ in range(2):
        opened.start(7)
        first = attributes(opened)
        for _ in range(60):
            timestep = opened.step(np.ones(3, np.int64))
        seen.append((first, attributes(opened)))
        for mass, length, force, total, product in (*first, *seen[-1][1]):
            assert 0.5 <= mass <= 1
            assert 1 <= length <= 2
            assert 1 <= force <= 5
            np.testing.assert_allclose([total, product], [mass + 1.0, mass * length])
        assert timestep.observation.shape == (3, 4)
    (first, last), again = seen
    assert (first != last).any(1).all()  # after an episode or more
    np.testing.assert_array_equal(again, seen[0])  # the seed decides
    assert len(np.unique(first[:, 0])) == 3
    opened.close()


def test_attributes_that_hang_on_arguments_are_refused():
    gymnasium = pytest.importorskip("gymnasium")

    class Walker(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, gravity=9.8, mass=1.0):
            self.gravity, self.friction = 0.0, 0.5
            self.gravity = gravity
            self.weight = gravity * 2
            self.mass = mass
            self.twice = 2 * self.mass
            self.twice += self.mass

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 0.0, False, False, {}

    from rulax.envs.own import environment_of

    with pytest.raises(UserError, match="gravity cannot be randomised, because weight is computed from it"):
        environment_of(Walker, "Walker", {"randomise": {"gravity": (8, 12)}})
    opened = environment_of(Walker, "Walker", {"randomise": {"mass": (3, 3)}}).open(1)
    opened.start(0)
    assert opened.copies[0].env.unwrapped.twice == 9.0


def test_what_reset_makes_anew_need_not_be_computed_again():
    """As in LunarLander: its world is made from an argument, and again by every reset, from the attribute."""
    gymnasium = pytest.importorskip("gymnasium")

    class Lander(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, gravity=-10.0, wind=1.0, drag=1.0):
            self.gravity, self.wind, self.drag = 0.0, 0.0, 0.0
            self.gravity = gravity
            self.world = {"gravity": gravity}
            self.wind = wind
            self.weather = [wind]
            self.forecast = [self.weather]  # made of the old weather for ever
            self.drag = drag
            self.chute = drag

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.world = {"gravity": self.gravity}
            self.weather = [self.wind]
            self.chute = self.chute + 1
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 0.0, False, False, {}

    from rulax.envs.own import environment_of

    opened = environment_of(Lander, "Lander", {"randomise": {"gravity": (-3, -2)}}).open(1)
    opened.start(0)
    lander = opened.copies[0].env.unwrapped
    assert -3 <= lander.gravity == lander.world["gravity"] <= -2
    for attribute, stale in (("wind", "forecast"), ("drag", "chute")):
        with pytest.raises(UserError, match=f"{attribute} cannot be randomised, because {stale} is computed from it"):
            environment_of(Lander, "Lander", {"randomise": {attribute: (1, 2)}})


def test_a_property_with_a_setter_reaches_what_lies_deeper():
    gymnasium = pytest.importorskip("gymnasium")

    class Deep(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self):
            self.model = np.ones(3)

        @property
        def friction(self):
            return float(self.model[0])

        @friction.setter
        def friction(self, value):
            self.model[:] = value

        @property
        def total(self):
            return float(self.model.sum())

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 0.0, False, False, {}

    from rulax.envs.own import environment_of

    opened = environment_of(Deep, "Deep", {"randomise": {"friction": (2, 3)}}).open(2)
    opened.start(0)
    models = np.array([copy.env.unwrapped.model for copy in opened.copies])
    assert ((models >= 2) & (models <= 3) & (models == models[:, :1])).all()
    assert models[0, 0] != models[1, 0]
    with pytest.raises(UserError, match=r"no real-valued attribute 'total' \(it has friction\)"):
        environment_of(Deep, "Deep", {"randomise": {"total": (2, 3)}})


def test_the_lander_falls_in_the_gravity_that_was_drawn():
    pytest.importorskip("Box2D")
    opened = make("LunarLander-v3", randomise={"gravity": [(-2, -2), (-11, -11)], "wind_power": (5, 15)}).open(8)
    opened.start(3)
    gravity = np.array([copy.env.unwrapped.gravity for copy in opened.copies])
    assert set(gravity) == {-2.0, -11.0}
    for _ in range(30):
        speed = opened.step(np.zeros(8, np.int64)).observation[:, 3]
    assert speed[gravity == -11].max() < speed[gravity == -2].min() < 0
    opened.close()
