"""Unsupervised meta-RL: rewards of known discriminators in closed form, units by brute force, verdicts from known numbers."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from rulax.agents.diayn import arrivals, recognised, skilled
from rulax.envs.base import HostEnvironment
from rulax.envs.catch import Catch
from rulax.envs.point import Box, Point, PointTask, best_return
from rulax.envs.wrappers import Binned
from rulax.errors import UserError
from rulax.methods.adaptation import environment_tasks, init_meta_state
from rulax.methods.base import WORST_MARGIN
from rulax.methods.experiments import unsupervised as experiment
from rulax.methods.experiments.adaptation import PolicySizes, init_gaussian, policy_learner, policy_optimiser
from rulax.methods.maml import MAML, meta_update
from rulax.methods.unsupervised import (
    discriminator_of,
    earned_by_chance,
    in_units_of_chance,
    random_discriminator,
    skill_trainer,
    with_discriminator,
)
from rulax.rules.likelihood_ratio import likelihood_ratio

KEY = jax.random.key(0)
SLOPES = np.array([[4.0, 0.0], [-4.0, 0.0], [0.0, 3.0]], np.float32)


def planes(observation):
    """log D of three tasks, whose logits are linear."""
    return jax.nn.log_softmax(SLOPES @ observation)


def test_a_known_discriminator_pays_for_the_state_that_is_reached():
    made = with_discriminator(Box(), planes)
    assert made.number == 3
    state, action = jnp.array([0.2, -0.1]), jnp.array([0.5, -2.0])
    reached = np.array([0.25, -0.2])
    logits = SLOPES @ reached
    for task in range(3):
        after, transition = made.step(jnp.int32(task), state, action, KEY)
        np.testing.assert_allclose(after, reached, rtol=1e-6)
        np.testing.assert_allclose(transition.reward, logits[task] - special.logsumexp(logits), rtol=1e-5)


def test_rewards_are_cut_off_below_the_prior():
    made = with_discriminator(Box(), lambda seen: jax.nn.log_softmax(jnp.array([0.0, 200.0 * seen[0]])), slack=2.5)
    for x, wanted in ((0.4, -math.log(2) - 2.5), (0.0, -math.log(2)), (0.01, -math.log1p(math.exp(2.0))), (-0.4, 0.0)):
        np.testing.assert_allclose(made.reward(jnp.int32(0), jnp.array([x, 0.0])), wanted, atol=1e-6)


def test_the_environments_own_tasks_and_rewards_are_never_looked_at():
    """The point ends its episode at its goal: with a drawn goal, ends would tell where goals are."""
    made = with_discriminator(Point(), planes)
    goal = Point().default_task().goal
    ends = [made.step(task, goal, jnp.zeros(2), KEY)[1].terminated for task in jnp.arange(3)]
    assert all(ends)
    elsewhere = Point().sample_task(jax.random.key(5)).goal
    assert not any(made.step(task, elsewhere, jnp.zeros(2), KEY)[1].terminated for task in jnp.arange(3))


def test_tasks_are_numbers_that_can_be_batched():
    made = with_discriminator(Box(), planes)
    tasks = jax.vmap(made.sample_task)(jax.random.split(KEY, 3000))
    assert tasks.shape == (3000,)
    counts = np.bincount(tasks, minlength=3)
    assert len(counts) == 3
    assert (abs(counts - 1000) < 5 * math.sqrt(1000 * 2 / 3)).all()
    state, action = jnp.array([0.1, 0.3]), jnp.zeros(2)
    rewards = jax.vmap(lambda task: made.step(task, state, action, KEY)[1].reward)(jnp.arange(3))
    np.testing.assert_allclose(jnp.exp(rewards).sum(), 1.0, rtol=1e-5)  # D is a distribution over tasks


def spread(discriminator, number):
    """The deviation of log D(z | s) over the box, for each z."""
    line = jnp.linspace(-0.5, 0.5, 15)
    states = jnp.stack(jnp.meshgrid(line, line), -1).reshape(-1, 2)
    return np.asarray(jax.vmap(discriminator)(states)).std(0)


@pytest.mark.parametrize("seed", range(3))
def test_random_discriminators_pay_differently_in_different_places_for_every_task(seed):
    make = functools.partial(random_discriminator, jax.random.key(seed), Box.observation, 20)
    found = make()
    np.testing.assert_allclose(jnp.exp(found(jnp.array([0.3, -0.2]))).sum(), 1.0, rtol=1e-5)
    assert spread(found, 20).min() > 0.5
    # What they must not be: too coarse, and every reward is nearly the same everywhere.
    assert spread(make(fineness=0.01), 20).max() < 0.2


def test_the_discriminator_of_skills_is_the_one_that_paid_for_them():
    """DIAYN's reward is log q(z | s) - log p(z); a task's is log q(z | s)."""
    trainer = skill_trainer(Binned(Box(), 3), 4, 2048, 5, discriminator_hidden=8)
    state = trainer.init(KEY)
    state, _ = trainer.advance(state, 1)
    agent = trainer.agent(state)
    made = with_discriminator(Box(), discriminator_of(agent), slack=50.0)
    seen = {"observation": jnp.array([[[0.0, 0.0]], [[0.4, -0.3]]]), "skill": jnp.tile(jax.nn.one_hot(2, 4), (2, 1, 1))}
    experience = _experience(seen)
    wanted = recognised(skilled(agent).discriminator, arrivals(experience))[0, 0] - math.log(4)
    found = made.reward(jnp.int32(2), jnp.array([0.4, -0.3]))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert abs(float(found) + math.log(4)) > 1e-6  # it has learned something: not the prior


def _experience(seen):
    from rulax.types import Experience

    one = jnp.ones((1, 1))
    return Experience(seen, one, one, one, jnp.zeros((2, 1), jnp.int8), one > 0, one, ())


def test_rewards_in_units_of_chance():
    """Mean and deviation of minus the distance under random strides, by a simulation in NumPy."""
    environment, steps, generator = Binned(Box(), 3), 10, np.random.default_rng(0)
    walks = np.zeros((4000, 2))
    goals, rewards = generator.uniform(-0.5, 0.5, (4000, 2)), []
    for _ in range(steps):
        walks = np.clip(walks + 0.1 * generator.integers(-1, 2, walks.shape), -0.5, 0.5)
        rewards.append(-np.linalg.norm(walks - goals, axis=-1))
    mean, deviation = earned_by_chance(environment, steps, KEY, episodes=4000)
    np.testing.assert_allclose(mean, np.mean(rewards), atol=0.02)
    np.testing.assert_allclose(deviation, np.std(rewards), atol=0.02)
    shown = in_units_of_chance(environment, steps, KEY, episodes=4000)
    task = PointTask(jnp.array([0.3, 0.4]))
    reward = shown.step(task, jnp.zeros(2), jnp.array([1, 1]), KEY)[1].reward  # the middle of three strides: stay
    np.testing.assert_allclose(reward, (-0.5 - mean) / deviation, rtol=1e-4)
    assert earned_by_chance(Catch(), 5, KEY, 16)[1] > 0  # one choice, another reward


def test_maml_learns_over_a_discriminator_of_ones_own():
    """As docs/methods/unsupervised.md shows it."""
    sizes = PolicySizes(total=4, tasks=8, trajectories=8, updates=1, hidden=(8,))
    made, optimiser = with_discriminator(Box(), planes), policy_optimiser(sizes)
    tasks = environment_tasks(made, 5, sizes.trajectories)
    method = MAML(tasks, policy_learner(sizes), likelihood_ratio(clip=0.3), optimiser, number=8)
    before = init_meta_state(optimiser, init_gaussian(Box(), sizes)(KEY))
    after, metrics = jax.jit(functools.partial(meta_update, method))(before, KEY)
    assert np.isfinite(metrics["score"])
    assert -5 * (math.log(3) + 10) < metrics["score"] < 0  # five rewards, none above 0 or below the cut
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), after.meta_params, before.meta_params)
    assert all(change > 0 for change in jax.tree.leaves(moved))


class OnHost(HostEnvironment):
    """Nothing but its kind."""

    def __init__(self):
        pass


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: with_discriminator(Box(), planes, number=4), "tells 3 tasks apart"),
        (lambda: with_discriminator(Box(), planes, number=1), "2 to 3"),
        (lambda: with_discriminator(Box(), planes, slack=0), "slack must be greater than 0"),
        (lambda: with_discriminator(Box(), lambda seen: seen.sum()), "one vector of log-probabilities"),
        (lambda: random_discriminator(KEY, Box.observation, 1), "at least 2 tasks"),
        (lambda: discriminator_of(init_gaussian(Box(), PolicySizes(total=1, hidden=(4,)))(KEY)), "train it with the rule 'diayn'"),
    ],
)
def test_mistakes_are_one_sentence(make, words):
    with pytest.raises(UserError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_host_environments_are_refused(monkeypatch):
    monkeypatch.setattr(OnHost, "__abstractmethods__", frozenset())
    with pytest.raises(UserError, match="compiled environments only"):
        with_discriminator(OnHost(), planes)


# -- verdicts ---------------------------------------------------------------------------------------------------------------------


def returns(before, after):
    """Scores of two goals that improve evenly over three updates."""
    return np.array([np.linspace(before, after, 4)] * 2) + np.array([[-0.5], [0.5]])


def goals():
    return PointTask(jnp.array([[0.3, 0.3], [-0.3, 0.3]]))


def test_the_verdict_on_updates():
    best = float(best_return(Box(), PointTask(jnp.array([0.3, 0.3]))))
    np.testing.assert_allclose(best, -math.sqrt(2) * (0.2 + 0.1), rtol=1e-5)  # after one step, after two, then there
    scores = {"DIAYN": returns(-20, -4), "random": returns(-20, -8), "true": returns(-18, -2), "scratch": returns(-20, -14)}
    tested = experiment.report_updates(scores, goals())
    own = {name: float(values.mean(0)[3] - values.mean(0)[0]) / (best - values.mean(0)[0]) for name, values in scores.items()}
    np.testing.assert_allclose(tested.values.mean(), own["DIAYN"] / own["true"], rtol=1e-5)
    np.testing.assert_allclose(tested.random, own["scratch"] / own["true"], rtol=1e-5)
    assert tested.reference.value == 1.0
    np.testing.assert_allclose(tested.details["random over scratch"], 2.0, rtol=1e-6)
    np.testing.assert_allclose(
        tested.details[WORST_MARGIN], min(own["DIAYN"] / own["true"] / 0.85 - 1, own["DIAYN"] - own["random"])
    )
    worse = experiment.report_updates(scores | {"DIAYN": returns(-20, -9)}, goals())
    assert worse.details[WORST_MARGIN] < 0  # random discriminators are better
    lucky = experiment.report_updates(scores | {"scratch": returns(-20, -11)}, goals())
    assert lucky.details[WORST_MARGIN] < 0  # 12 / 9 is less than 1.5
    # Cut short before its comparison was trained: of the whole gap, and no verdict.
    short = experiment.report_updates({name: scores[name] for name in ("DIAYN", "scratch")}, goals())
    np.testing.assert_allclose(short.values.mean(), own["DIAYN"], rtol=1e-5)
    assert WORST_MARGIN not in short.details
    alone = experiment.report_updates({name: scores[name] for name in ("random", "scratch")}, goals())
    np.testing.assert_allclose(alone.values.mean(), own["random"], rtol=1e-5)


def test_the_verdict_on_trials():
    first = np.full((2, 3), -10.0)
    best = -math.sqrt(2) * (0.2 + 0.1)
    found = experiment.report_trials({"DIAYN": first + np.array([0.0, 3.0, 6.0]), "scratch": first}, goals())
    np.testing.assert_allclose(found.values, 6 / (10 + best), rtol=1e-5)
    assert found.random == 0.0


@pytest.mark.slow  # the quick suite, which CI runs, does all of this but the comparisons
@pytest.mark.parametrize("stages", [experiment.MAMLStages, experiment.RL2Stages])
def test_a_seed_trains_all_learners_and_gives_a_verdict(monkeypatch, stages):
    tiny = PolicySizes(total=1, tasks=2, trajectories=3, updates=1, hidden=(4,), tested=4, chunk=1)
    monkeypatch.setitem(experiment.MAML_SIZES, "full", tiny)
    monkeypatch.setitem(experiment.TRIAL_SIZES, "full", experiment.TrialSizes(1, streams=8, memory=4, tested=4))
    for sizes in (experiment.SKILL_SIZES, experiment.TRIAL_SKILLS):
        monkeypatch.setitem(sizes, "full", experiment.SkillSizes(3, 2048, hidden=8, random=3))
    run = stages("full", 0)
    assert run.test().values.shape == (4,)  # cut short at once: an untrained learner
    fractions = []
    while not run.done():
        fractions.append(run.advance().fraction)
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)
    tested = run.test()
    assert tested.values.shape == (4,)
    assert set(tested.baselines) == {"random", "scratch"}
    assert math.isfinite(tested.details[WORST_MARGIN])
