"""MAESN: its gradient against finite differences in float64, its latent variable, divergence and coverage in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from rulax.agents.latent import LatentPolicy, make_latent_agent
from rulax.discovery.estimators import backprop
from rulax.discovery.window import Record
from rulax.envs.lasting import with_noise
from rulax.envs.point import HalfCircle
from rulax.envs.tasks import finite_set
from rulax.learning.update import update
from rulax.methods.adaptation import Adaptation, RecordedLife, environment_tasks
from rulax.methods.experiments import maesn as experiment
from rulax.methods.experiments.adaptation import PolicySizes
from rulax.methods.maesn import (
    MAESN,
    exploration_loss,
    from_prior,
    init_params,
    latent_learner,
    latent_problem,
    rule_with_credit,
    rule_without_noise,
    start_from_prior,
    start_with_latents,
    training_tasks,
)
from rulax.methods.maml import MAML
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.settings import Network
from rulax.types import Experience
from rulax.values.real_policies import Gaussian
from tests.methods.test_meta_gradients import as_double, differences, loss_after

TASKS, LATENT = 3, 2
SHOWN = {name: jax.ShapeDtypeStruct((2,), jnp.float32) for name in ("observation", "noise")}
NETWORK = Network(hidden=(3,), activation="tanh", torso="mlp")


def gaussian(key, shape, scale=0.3):
    return Gaussian(*(scale * jax.random.normal(each, shape) for each in jax.random.split(key)))


def recorded(key, times, episodes=4, steps=5):
    """Random experience of an agent slightly off, `times` batches of it, some steps invalid."""
    shape, keys = (times, steps, episodes), jax.random.split(key, 8)
    first = jnp.zeros((times, steps + 1, episodes), jnp.int8).at[:, 0].set(1)
    behaviour = LatentPolicy(
        gaussian(keys[0], (*shape, 2)),
        gaussian(keys[1], (*shape, LATENT)),
        jax.random.normal(keys[2], (*shape, LATENT)),
        first[:, :-1].astype(jnp.float64),
    )
    seen = {name: jax.random.normal(k, (times, steps + 1, episodes, 2)) for name, k in zip(SHOWN, keys[3:5], strict=True)}
    valid = jax.random.bernoulli(keys[5], 0.9, shape)
    action, reward = jax.random.normal(keys[6], (*shape, 2)), jax.random.normal(keys[7], shape)
    return Experience(seen, action, reward, jnp.ones(shape), first, valid, behaviour, ())


@pytest.mark.parametrize("ours", [False, True])
def test_the_gradient_is_that_of_the_whole_adaptation(ours):
    """With respect to the network, the latent distributions and all step sizes; as in the paper, and with what we add."""
    with jax.enable_x64(True):
        key = jax.random.key(3)
        params = as_double(init_params(make_latent_agent(key, SHOWN, 2, NETWORK), TASKS, 2.0, 1.5, 0.3))
        params = params._replace(latents=gaussian(key, (TASKS, LATENT)))
        inner = rule_with_credit(likelihood_ratio()) if ours else likelihood_ratio()
        learner, experience = latent_learner(inner), recorded(key, 2)
        # One of the first episodes is paid, so that exploration has something to credit; in the paper's form nothing sees it.
        experience = experience._replace(reward=experience.reward.at[0].set(-1.0).at[0, 2, 1].set(1.0))
        tasks = training_tasks(finite_set(with_noise(HalfCircle(), LATENT), TASKS), 5, 4)
        outer = rule_without_noise(likelihood_ratio(clip=5.0))
        method = MAESN(MAML(tasks, learner, outer, None, number=1, memory="mixed"), kl_weight=0.7, exploration=3.0 * ours)
        task = jnp.int32(1), tasks.sample(key)[1]
        begun = start_with_latents(learner, params, task, key)
        record = Record(begun, jax.tree.map(lambda x: x[:1], experience), jax.random.split(key, 1))
        adaptation = Adaptation(RecordedLife(begun, key), record, experience, jnp.zeros(2), task)
        problem = latent_problem(method)
        grads, _, metrics = jax.jit(lambda params: backprop(problem, params, adaptation))(params)
        wanted = differences(lambda params: loss_after(problem, adaptation, params), params)
        np.testing.assert_allclose(ravel_pytree(grads)[0], wanted, rtol=1e-5, atol=1e-8)
        rows = jnp.abs(grads.latents.mean).sum(1)
        np.testing.assert_array_equal(rows > 0, [False, True, False])  # of the task, and of no other
        for part in (grads.log_step_sizes.latents, grads.log_step_sizes.torso, grads.agent.torso):
            assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(part))
        # The prior from which new tasks start is never moved.
        assert all(float(jnp.abs(leaf).max()) == 0 for leaf in grads.agent.latents)
        np.testing.assert_allclose(metrics["kl_to_prior"], from_prior(Gaussian(*(row[1] for row in params.latents))), rtol=1e-9)


@pytest.mark.parametrize("credit", [False, True])
def test_the_credit_of_actions_for_what_their_latent_variable_earned_is_exact(credit):
    """z ~ N(m, 1), then a ~ N(w z, 1) in the second of two steps, and the return is z a: J = w (m² + 1), d²J / dm dw = 2 m.

    All integrands are polynomials, so the quadrature over z and a is exact. Without the term nothing is left of it.
    """
    with jax.enable_x64(True):
        nodes, weights = np.polynomial.hermite_e.hermegauss(8)
        likely = jnp.asarray(np.outer(weights, weights).ravel() / weights.sum() ** 2)
        at = jnp.array([0.7, -0.4])
        z = jnp.repeat(at[0] + nodes, 8)
        action = jnp.stack([jnp.zeros(64), at[1] * z + jnp.tile(nodes, 8)])[..., None]
        earned = jnp.broadcast_to(z * action[1, :, 0], (2, 64))

        def policy(numbers):
            actions = Gaussian(jnp.stack([jnp.zeros(64), numbers[1] * z])[..., None], jnp.zeros((2, 64, 1)))
            latents = Gaussian(jnp.full((2, 64, 1), numbers[0]), jnp.zeros((2, 64, 1)))
            return LatentPolicy(actions, latents, jnp.stack([z, z])[..., None], jnp.array([[1.0] * 64, [0.0] * 64]))

        seen = Experience(None, action, earned, None, None, jnp.ones((2, 64), bool), policy(at), ())
        rule = rule_with_credit(likelihood_ratio()) if credit else likelihood_ratio()

        def surrogate(numbers):
            return -jnp.sum(likely * rule.loss({}, {"policy": policy(numbers)}, {"advantage": earned}, seen)[0])

        np.testing.assert_allclose(jax.grad(surrogate)(at), [2 * at[0] * at[1], at[0] ** 2 + 1], atol=1e-9)
        np.testing.assert_allclose(jax.hessian(surrogate)(at)[0, 1], 2 * at[0] if credit else 0.0, atol=1e-9)


def test_only_an_episode_that_was_paid_alone_is_credited_for_exploration():
    """Until its first payment, by the gradient of the log-probability of what it drew and did."""
    with jax.enable_x64(True):
        key = jax.random.key(5)
        agent = as_double(make_latent_agent(key, SHOWN, 2, NETWORK))
        tasks = environment_tasks(with_noise(HalfCircle(), LATENT), 5, 4)
        seen, _ = jax.jit(tasks.collect)(HalfCircle().default_task(), agent, key)
        alone = jnp.zeros((5, 4)).at[2:4, 1].set(0.5)

        def chances(agent):
            return agent.embed(seen).log_probability(jnp.concatenate([seen.action, seen.action[-1:]]))[:-1]

        slope = jax.jit(jax.grad(lambda agent, reward: exploration_loss(agent, seen._replace(reward=reward))))
        found = slope(agent, alone)
        wanted = jax.grad(lambda agent: -jnp.sum(chances(agent)[:3, 1]) / 20)(agent)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), found, wanted)
        assert float(jnp.abs(found.latents.mean).max()) > 0
        for nothing in (jnp.zeros((5, 4)), alone.at[4, 3].set(0.5)):
            assert all(float(jnp.abs(leaf).max()) == 0 for leaf in jax.tree.leaves(slope(agent, nothing)))


def test_a_latent_variable_counts_once_per_episode():
    actions, latents = Gaussian(jnp.array([0.2, -0.5]), jnp.array([-0.3, 0.1])), Gaussian(jnp.array([1.0]), jnp.array([0.4]))
    latent, action = jnp.array([0.7]), np.array([0.1, 0.9])
    for drawn in (0.0, 1.0):
        found = LatentPolicy(actions, latents, latent, jnp.asarray(drawn)).log_probability(action)
        wanted = stats.norm.logpdf(action, actions.mean, np.exp(actions.log_deviation)).sum()
        wanted += drawn * stats.norm.logpdf(0.7, 1.0, np.exp(0.4))
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_divergence_is_that_of_two_gaussians():
    mean, deviation = np.array([0.8, -1.5]), np.array([0.6, 1.7])
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)  # exact: the log-ratio is a quadratic
    drawn = mean[:, None] + deviation[:, None] * nodes
    ratio = stats.norm.logpdf(drawn, mean[:, None], deviation[:, None]) - stats.norm.logpdf(drawn)
    wanted = (ratio @ weights / weights.sum()).sum()
    np.testing.assert_allclose(from_prior(Gaussian(jnp.asarray(mean), jnp.log(deviation))), wanted, rtol=1e-5)


def test_episodes_that_met_the_goal_pull_the_latent_distribution_to_theirs():
    """Latents above 0 are paid: the mean moves up. A baseline that sees the noise would leave nothing to learn."""
    agent = make_latent_agent(jax.random.key(0), SHOWN, 2, NETWORK)
    learner = latent_learner(likelihood_ratio())
    state = start_from_prior(learner, init_params(agent, 1, 1.0, 1.0, 0.1), (), jax.random.key(1))
    tasks = environment_tasks(with_noise(HalfCircle(), LATENT), 4, 60)
    experience, _ = jax.jit(tasks.collect)(HalfCircle().default_task(), agent, jax.random.key(2))
    noise = experience.observation["noise"]
    np.testing.assert_array_equal(noise[0], noise[3])  # one draw per episode
    np.testing.assert_allclose(experience.behaviour.latent, noise[:-1], rtol=1e-6)  # from the prior
    paid = experience._replace(reward=(noise[:-1, :, 0] > 0).astype(jnp.float32))
    after, _ = jax.jit(lambda paid: update(learner, {}, state, paid, jax.random.key(3)))(paid)
    moved = np.asarray(after.params.latents.mean)
    assert moved[0] > 0.1
    assert abs(moved[1]) < 0.5 * moved[0]


def test_coverage_counts_the_sectors_in_which_episodes_get_out():
    angles = np.deg2rad([2.0, 3.0, 7.0, 178.0, 90.0, -30.0])
    radii = np.array([[0.0, 0.5, 0.9], [0.0, 0.5, 0.9], [0.0, 0.9, 1.0], [0.0, 0.9, 0.1], [0.0, 0.3, 0.7], [0.0, 0.5, 0.9]])
    position = (radii * 1.0)[..., None] * np.stack([np.cos(angles), np.sin(angles)], -1)[:, None]
    # 2 and 3 degrees share a sector, the fifth never gets out, and the last goes where no goal is.
    np.testing.assert_allclose(experiment.coverage(jnp.asarray(position).swapaxes(0, 1)), 3 / 36, rtol=1e-6)


@pytest.mark.slow  # the quick suite, which CI runs, does all of this but MAML
def test_the_experiment_gives_a_verdict_with_maml_beside_it(monkeypatch):
    tiny = PolicySizes(total=1, tasks=2, trajectories=3, updates=1, hidden=(4,), tested=4, chunk=1)
    monkeypatch.setitem(experiment.SIZES, "full", tiny)
    run = experiment.start("full", 0)
    assert np.isfinite(run.advance().value)
    tested = run.test()
    assert tested.values.shape == (4,)
    assert set(tested.baselines) == {"random", "MAML"}
    assert {"hits_1", "coverage", "coverage_ratio", "worst_margin"} <= set(tested.details)
