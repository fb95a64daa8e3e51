"""Noise and skills that last: drawn where something of their level starts and nowhere else, and part of the experience."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.distributions import sample_choice
from rulax.envs import TimeLimit, make, streams
from rulax.envs.actions import one_of
from rulax.envs.adapters.stacking import stack
from rulax.envs.adapters.streams import CopiedEnvironment
from rulax.envs.bandit import BernoulliBandit
from rulax.envs.lasting import with_noise, with_skill
from rulax.envs.tasks import recurring, trial
from rulax.learning.rollout import act, begin
from rulax.learning.train import TrainerConfig, make_trainer
from rulax.records.checkpoint import Checkpoint, pack, unpack
from rulax.types import Level, now
from tests.learning.environments import Counter
from tests.learning.test_train import finish, recipe, same

LEVELS = [Level.EPISODE, Level.TRIAL, Level.LIFE]


def live(environment, steps, number=3, seed=0):
    """Timesteps [T+1, B] in which the first action is always taken."""
    endless, task = streams(environment, number), environment.default_task()

    def step(state, key):
        return endless.step(task, state, jnp.zeros(number, jnp.int32), key)

    state, start = endless.start(task, jax.random.key(seed))
    _, rest = jax.lax.scan(step, state, jax.random.split(jax.random.key(seed + 1), steps))
    return jax.tree.map(lambda a, b: np.concatenate([np.asarray(a)[None], b]), start, rest)


class Short:
    """A copy of a host environment: episodes of 3 steps, every other one cut off."""

    def reset(self, seed):
        self.episodes, self.steps = (0 if seed is not None else self.episodes + 1), 0
        return np.zeros((2, 2, 1), np.uint8)

    def step(self, action):
        self.steps += 1
        end, cut = self.steps == 3, self.episodes % 2 == 1
        return np.full((2, 2, 1), self.steps, np.uint8), 1.0, end and not cut, end and cut

    def close(self):
        pass


SHORT = CopiedEnvironment("short", one_of(2), jax.ShapeDtypeStruct((2, 2, 1), np.uint8), Short)


def live_on_host(environment, steps, number=3, seed=0):
    """The same in a host environment."""
    opened = environment.open(number)
    timesteps = [opened.start(seed)] + [opened.step(np.zeros(number, int)) for _ in range(steps)]
    opened.close()
    return jax.tree.map(lambda *parts: np.stack(parts), *timesteps)


def assert_drawn_exactly_at(drawn, first, level):
    """Normal numbers differ whenever they are drawn again."""
    changed = (drawn[1:] != drawn[:-1]).any(-1)
    np.testing.assert_array_equal(changed, first[1:] >= level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "environment",
    [
        Counter(length=3),
        Counter(length=3, cut=True),
        trial(BernoulliBandit(arms=2, pulls=2), episodes=3),
        trial(TimeLimit(Counter(length=9), 2), episodes=2, trials=2),
        TimeLimit(trial(BernoulliBandit(arms=2, pulls=2), episodes=3), 5),
        recurring(BernoulliBandit(arms=2, pulls=2), contexts=2, repeats=2, bits=2),
    ],
    ids=["terminated", "cut off", "trials", "trials of episodes that are cut off", "trials that are cut off", "contexts"],
)
def test_it_is_drawn_where_its_level_starts_and_nowhere_else(environment, level):
    steps = live(with_noise(environment, 2, level), 30)
    assert (steps.first[0] == Level.LIFE).all()
    highest = Level.EPISODE if isinstance(environment, Counter) else Level.TRIAL
    assert steps.first[1:].max() == highest, "else less was tested than it seems"
    assert_drawn_exactly_at(steps.observation["noise"], steps.first, level)
    plain = live(environment, 30)
    np.testing.assert_array_equal(steps.first, plain.first)  # these environments have no luck in when they end


def test_a_trial_that_is_cut_off_is_followed_by_another_one():
    """A time limit of 5 around trials of 6 steps: the starts are those of trials, also after a dummy step."""
    steps = live(TimeLimit(trial(BernoulliBandit(arms=2, pulls=2), episodes=3), 5), 12)
    np.testing.assert_array_equal(steps.first[:, 0], [3, 0, 1, 0, 1, 0, 2, 0, 1, 0, 1, 0, 2])


@pytest.mark.parametrize("level", LEVELS)
def test_on_the_host_too(level):
    steps = live_on_host(with_noise(SHORT, 2, level), 30)
    assert (steps.first[1:] == Level.EPISODE).sum() > 9
    assert_drawn_exactly_at(steps.observation["noise"], steps.first, level)
    again = live_on_host(with_noise(SHORT, 2, level), 30)
    np.testing.assert_array_equal(steps.observation["noise"], again.observation["noise"])
    other = live_on_host(with_noise(SHORT, 2, level), 30, seed=1)
    assert (steps.observation["noise"] != other.observation["noise"]).all()
    fewer = live_on_host(with_noise(SHORT, 2, level), 30, number=2)
    np.testing.assert_array_equal(steps.observation["noise"][:, :2], fewer.observation["noise"])


@pytest.mark.parametrize(
    "run", [lambda make: live(make(Counter(length=3)), 600, 40), lambda make: live_on_host(make(SHORT), 600, 40)]
)
def test_draws_are_standard_normal_and_independent(run):
    steps = run(lambda environment: with_noise(environment, 2))
    drawn = steps.observation["noise"]
    episodes = [drawn[steps.first[:, stream] > 0, stream] for stream in range(40)]
    length = min(map(len, episodes))
    found = np.stack([each[:length] for each in episodes])  # [B, E, 2]
    error = 4 / np.sqrt(found.size / 2)
    assert abs(found.mean()) < error
    assert abs((found**2).mean() - 1) < 2 * error
    assert abs((found[:, 1:] * found[:, :-1]).mean()) < error, "from episode to episode"
    assert abs((found[1:] * found[:-1]).mean()) < error, "from stream to stream"
    assert abs((found[..., 0] * found[..., 1]).mean()) < error


@pytest.mark.parametrize("run", [lambda make: live(make(Counter(length=3)), 600), lambda make: live_on_host(make(SHORT), 600)])
def test_a_skill_is_one_of_a_few(run):
    skill = run(lambda environment: with_skill(environment, 3)).observation["skill"]
    assert (skill.sum(-1) == 1).all()
    assert set(np.unique(skill)) == {0, 1}
    np.testing.assert_allclose(skill.mean((0, 1)), 1 / 3, atol=4 * 0.47 / np.sqrt(3 * 600 / 4))


def test_noise_and_a_skill_stand_beside_each_other_and_beside_stacks():
    both = with_skill(with_noise(Counter(length=3), 2, Level.TRIAL), 3)
    assert {name: leaf.shape for name, leaf in both.observation.items()} == {"observation": (1,), "noise": (2,), "skill": (3,)}
    steps = live(both, 30)
    np.testing.assert_array_equal(steps.observation["observation"], live(Counter(length=3), 30).observation)
    stacked = stack("short", with_skill(with_noise(SHORT, 2), 3), 4)
    steps = live_on_host(stacked, 30)
    assert steps.observation["observation"].shape[2:] == (2, 2, 4)
    assert_drawn_exactly_at(steps.observation["noise"], steps.first, Level.EPISODE)
    alone = live_on_host(with_noise(SHORT, 2), 30)
    np.testing.assert_array_equal(steps.observation["noise"], alone.observation["noise"])
    with pytest.raises(ValueError, match="already has a part 'noise'"):
        with_noise(both, 2)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        with_noise(SHORT, 0)


class Latent(eqx.Module):
    """A policy by hand, whose preferences depend on a latent that lasts for an episode: z = mean + deviation * noise."""

    mean: jax.Array  # [2]
    deviation: jax.Array  # [2]
    weights: jax.Array  # [2 + 1, A]

    def initial_memory(self, number):
        return ()

    def act(self, observation, first, memory):
        return self.logits(observation), memory

    def logits(self, observation):
        dtype = self.mean.dtype
        latent = self.mean + self.deviation * observation["noise"].astype(dtype)
        features = jnp.concatenate([latent, observation["observation"].astype(dtype)], -1)
        return jnp.tanh(features) @ self.weights

    sample = staticmethod(sample_choice)


def policy_loss(agent, experience):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(agent.logits(now(experience.observation))), experience.action[..., None], -1)
    return -jnp.mean(chosen[..., 0] * experience.reward)


def test_a_latent_that_lasts_for_an_episode_has_a_gradient():
    environment = with_noise(Counter(length=3), 2)
    endless = streams(environment, 8)
    agent = Latent(jnp.array([0.3, -0.2]), jnp.array([0.5, 0.8]), jax.random.normal(jax.random.key(0), (3, 2)))
    actor = begin(endless, environment.default_task(), (), jax.random.key(1))
    _, experience, _ = act(endless, agent, actor, 12, jax.random.key(2))
    assert_drawn_exactly_at(np.asarray(experience.observation["noise"]), np.asarray(experience.first), Level.EPISODE)
    with jax.enable_x64(True):
        agent = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), agent)
        gradient = jax.grad(policy_loss)(agent, experience)
        for name in ("mean", "deviation"):
            for i in range(2):

                def moved(step, name=name, i=i):
                    other = eqx.tree_at(lambda a: getattr(a, name), agent, getattr(agent, name).at[i].add(step))
                    return float(policy_loss(other, experience))

                numeric = (moved(1e-5) - moved(-1e-5)) / 2e-5
                exact = float(getattr(gradient, name)[i])
                assert abs(exact) > 1e-3
                np.testing.assert_allclose(exact, numeric, rtol=1e-7)


def test_a_resumed_run_goes_on_with_the_same_noise():
    made = recipe(replay=0.5, batch=8, capacity=16)
    trainer = make_trainer(with_noise(Counter(length=7), 2), made, TrainerConfig(seeds=2, total_steps=100))
    half, _ = trainer.advance(trainer.init(jax.random.key(0)), most=2)
    assert (np.asarray(half.life.actor.first) == 0).any(), "some episode is under way"
    saved = Checkpoint(pack(half), {}, {})
    whole, _ = finish(trainer, half)
    resumed, _ = finish(trainer, unpack(saved, trainer.skeleton(), Path("saved")))
    same(whole, resumed)


def test_an_agent_trains_on_the_host_with_noise_in_its_replay():
    made = recipe(replay=0.5, batch=8, capacity=16)
    trainer = make_trainer(with_noise(SHORT, 2), made, TrainerConfig(seeds=2, total_steps=100, overlap="off"))
    _, metrics = finish(trainer, trainer.init(jax.random.key(0)))
    trainer.close()
    assert np.isfinite(metrics["loss"]).all()
    stored = trainer.replay.storage
    assert stored.first.dtype == np.int8
    drawn, first = (np.moveaxis(x, 2, 0) for x in (stored.observation["noise"], stored.first))  # time first
    assert_drawn_exactly_at(drawn, first, Level.EPISODE)


def test_by_name():
    environment = make("catch", with_noise=4, with_skill=3, skill_level="life")
    assert {name: leaf.shape for name, leaf in environment.observation.items()} == {
        "observation": make("catch").observation.shape,
        "noise": (4,),
        "skill": (3,),
    }
    assert (environment.draw.level, environment.environment.draw.level) == (Level.LIFE, Level.EPISODE)
    environment = make("bandit/bernoulli", arms=3, tasks=4, trial=5, with_noise=2, noise_level="trial")
    assert environment.environment == trial(make("bandit/bernoulli", arms=3, tasks=4), 5)
    assert make("bandit/bernoulli", contexts=6) == recurring(make("bandit/bernoulli"), 6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"with_noise": 0}, "with_noise must be at least 1"),
        ({"with_noise": "many"}, "with_noise expects a whole number"),
        ({"with_noise": 2, "noise_level": "day"}, "noise_level must be one of episode, trial, life, not 'day'"),
        ({"skill_level": "trial"}, "give with_skill too"),
        ({"trial": 0}, "trial must be at least 1"),
    ],
)
def test_senseless_options_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        make("catch", **options)


def test_names_of_host_environments():
    pytest.importorskip("gymnasium")
    environment = make("CartPole-v1", with_noise=2)
    steps = live_on_host(environment, 60)
    assert (steps.first[1:] > 0).any()
    assert_drawn_exactly_at(steps.observation["noise"], steps.first, Level.EPISODE)
    shown = environment.preprocess({"observation": np.zeros(4), "noise": np.ones(2)})
    assert (shown["observation"].shape, shown["noise"].tolist()) == ((4,), [1, 1])
    with pytest.raises(ValueError, match="a dictionary with 'noise' \\(2 numbers\\), which lasts for an episode"):
        environment.preprocess(np.zeros(4))
    with pytest.raises(ValueError, match="the option trial is for environments that run inside of JAX"):
        make("CartPole-v1", trial=3)
