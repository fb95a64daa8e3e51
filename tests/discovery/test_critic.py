"""The critic: V-trace against rlax, what invalid steps may not do, that it learns, and how it is built."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from rulax.agents.base import BaseAgent
from rulax.agents.layers import MLP
from rulax.discovery.critic import improve, judge, start_critic
from rulax.discovery.settings import Discovery
from rulax.envs.probes import ObservationProbe
from rulax.envs.wrappers import streams
from rulax.learning.rollout import act, begin
from rulax.settings import Network
from rulax.values.policies import log_probability
from rulax.values.two_hot import signed_parabolic
from tests.discovery.environments import INPUTS, NETWORK, random_experience

SETTINGS = Discovery(critic_hidden=(8,), critic_learning_rate=0.01, critic_discount=0.9, critic_trace=0.7)


def make(seed=0):
    return start_critic(SETTINGS, NETWORK, jax.ShapeDtypeStruct((INPUTS,), jnp.float32), jax.random.key(seed))


def test_targets_and_advantages_are_rlax_vtrace():
    experience = random_experience(0)
    experience = experience._replace(valid=jnp.ones_like(experience.valid))
    policy = jnp.asarray(np.random.default_rng(1).normal(size=experience.behaviour.shape), jnp.float32)
    critic = make()
    judgement = jax.jit(lambda: judge(SETTINGS, critic, experience, policy))()
    value = signed_parabolic(critic.params(experience.observation))
    np.testing.assert_allclose(judgement.value, value, rtol=1e-5)
    ratios = jnp.exp(log_probability(policy, experience.action) - log_probability(experience.behaviour, experience.action))
    np.testing.assert_allclose(judgement.ratios, ratios, rtol=1e-5)
    for stream in range(experience.action.shape[1]):
        wanted = rlax.vtrace_td_error_and_advantage(
            value[:-1, stream],
            value[1:, stream],
            experience.reward[:, stream],
            0.9 * experience.discount[:, stream],
            ratios[:, stream],
            lambda_=0.7,
        )
        np.testing.assert_allclose(judgement.error[:, stream], wanted.errors, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(judgement.advantage[:, stream], wanted.pg_advantage, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(judgement.target, judgement.error + value[:-1], rtol=1e-5)


def test_the_first_judgement_has_mean_0_and_deviation_1():
    """A fresh critic has seen nothing else, so its moving averages are this experience's own, over valid steps."""
    experience = random_experience(2)
    judgement = judge(SETTINGS, make(), experience, experience.behaviour)
    valid = np.asarray(experience.valid)
    advantage, error = np.asarray(judgement.normalised_advantage)[valid], np.asarray(judgement.normalised_error)[valid]
    np.testing.assert_allclose([advantage.mean(), advantage.std()], [0, 1], atol=1e-3)
    raw = np.asarray(judgement.error)[valid]
    np.testing.assert_allclose(error, raw / raw.std(), rtol=1e-2)  # scaled, its mean not subtracted


def test_what_an_invalid_step_holds_does_not_matter():
    experience = random_experience(3)
    gone = ~np.asarray(experience.valid)
    assert gone.any()
    other = experience._replace(
        reward=jnp.where(gone, jnp.nan, experience.reward),
        discount=jnp.where(gone, jnp.nan, experience.discount),
    )
    one, two = (improve(SETTINGS, make(), e, experience.behaviour)[0] for e in (experience, other))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), one, two))
    assert not jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), one.params, make().params))


def test_it_learns_what_the_probe_is_worth():
    """One step, the reward is the observation: v(x) = x, though errors are divided by their deviation."""
    probe = ObservationProbe()
    environment = streams(probe, 4)

    class Idle(BaseAgent):
        def act(self, observation, first, memory):
            return jnp.zeros((4, 1)), memory

    def one(carry, key):
        critic, actor = carry
        actor, experience, _ = act(environment, Idle(), actor, 4, key)
        return (improve(SETTINGS, critic, experience, experience.behaviour)[0], actor), None

    actor = begin(environment, probe.default_task(), (), jax.random.key(0))
    critic = start_critic(SETTINGS, NETWORK, probe.observation, jax.random.key(1))
    run = jax.jit(lambda carry: jax.lax.scan(one, carry, jax.random.split(jax.random.key(2), 500))[0])
    critic, actor = run((critic, actor))
    _, experience, _ = act(environment, Idle(), actor, 4, jax.random.key(3))
    value = signed_parabolic(critic.params(experience.observation))
    seen = experience.observation[..., 0]
    assert set(np.unique(seen)) >= {-1.0, 1.0}
    np.testing.assert_allclose(value, seen, atol=0.15)


def observation(shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def test_a_critic_starts_as_it_did_before_it_had_a_torso():
    """Runs with a fixed seed depend on it."""
    key, settings = jax.random.key(7), Discovery(critic_hidden=(8, 5))
    critic = start_critic(settings, NETWORK, observation((INPUTS,)), key).params
    seen = jax.random.normal(jax.random.key(1), (3, 2, INPUTS))
    np.testing.assert_allclose(critic(seen), MLP(key, (INPUTS, 8, 5, 1))(seen)[..., 0], rtol=1e-6)


def test_the_notebooks_critic_is_linear_behind_its_last_hidden_layer_and_starts_near_zero():
    settings = dataclasses.replace(SETTINGS, critic_hidden=(400,), critic_activate_last=False, critic_head_std=1e-2)
    critic = start_critic(settings, NETWORK, observation((INPUTS,)), jax.random.key(0)).params
    one, two = jax.random.normal(jax.random.key(1), (2, 3, INPUTS))
    np.testing.assert_allclose(critic(one) + critic(two), 2 * critic((one + two) / 2), atol=1e-5)  # no non-linearity at all
    assert float(jnp.std(critic.head.weight)) == pytest.approx(0.88e-2, rel=0.1)  # cut at two deviations
    ours = start_critic(
        dataclasses.replace(SETTINGS, critic_hidden=(400,)), NETWORK, observation((INPUTS,)), jax.random.key(0)
    ).params
    assert float(jnp.abs(ours(one) + ours(two) - 2 * ours((one + two) / 2)).max()) > 1e-2
    assert float(jnp.std(ours.head.weight)) == pytest.approx(0.88 / 20, rel=0.1)


def test_it_reads_what_agents_read():
    """Images of bytes beside numbers: convolutions, brightness between 0 and 1; the gradient reaches all of it."""
    shown = {"image": observation((8, 8, 3), jnp.uint8), "numbers": observation((2,))}
    critic = start_critic(SETTINGS, Network(), shown, jax.random.key(0))
    leaves = {"image": jnp.full((4, 2, 8, 8, 3), 255, jnp.uint8), "numbers": jnp.ones((4, 2, 2))}
    experience = random_experience(0)._replace(observation=leaves)
    after, _ = improve(SETTINGS, critic, experience, experience.behaviour)
    moved = jax.tree.map(lambda new, old: bool(jnp.any(new != old)), after.params, critic.params)
    assert jax.tree.all(moved)
    assert float(jnp.abs(critic.params(leaves)).max()) < 10
