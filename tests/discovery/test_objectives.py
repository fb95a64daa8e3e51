"""The bootstrap objective: nothing to learn where the continuation is the agent itself, and a target that nothing moves."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rulax.discovery.memory import Updated, Updates
from rulax.discovery.objectives import by_bootstrap
from rulax.discovery.outer_loss import predict_along
from rulax.discovery.window import Window
from rulax.values.normalisation import masked_mean
from rulax.values.policies import kl
from tests.discovery.environments import ACTIONS, STREAMS
from tests.discovery.families import make_family, member

FREE = {"policy_entropy_cost": 0.0, "prediction_entropy_cost": 0.0, "target_kl_cost": 0.0, "target_mean_cost": 0.0}


def shift(amount, state, experience, key):
    """An update that makes every weight larger by a share: where it leads can be computed by hand."""
    return Updated(state._replace(params=jax.tree.map(lambda p: p * (1 + amount), state.params)), {})


def make_window(agent):
    shape = (4, STREAMS)
    rng = np.random.default_rng(0)
    example = member().life
    seen = jnp.asarray(rng.normal(size=(5, STREAMS, *example.actor.observation.shape[1:])), jnp.float32)
    experience = jax.tree.map(lambda x: jnp.zeros((4, *x.shape[1:]), x.dtype), example.replay.storage._replace(memory=()))
    experience = experience._replace(
        observation=seen,
        first=jnp.zeros((5, STREAMS), jnp.int8),
        action=jnp.asarray(rng.integers(0, ACTIONS, shape), jnp.int32),
        valid=jnp.asarray(rng.random(shape) < 0.8),
        behaviour=jnp.zeros((*shape, ACTIONS)),
    )
    experience = experience._replace(reward=jnp.zeros(shape), discount=jnp.ones(shape))
    return Window(agent, {}, experience, jnp.asarray(rng.normal(size=shape), jnp.float32), None)


@functools.cache
def judged(rate):
    """`(amount, agent, member) -> loss` and its gradient with respect to each; the target is two updates and a step away."""
    objective = by_bootstrap(make_family(**FREE, bootstrap_updates=2, bootstrap_rate=rate))

    def loss(amount, agent, weights):
        one = member()
        learner = one.life.learner_state._replace(params=weights)
        one = one._replace(life=one.life._replace(learner_state=learner))
        return objective(Updates(shift), amount, one, make_window(agent))[0]

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))


def test_who_is_already_there_has_nothing_to_learn():
    agent = member().life.learner_state.params
    loss, grads = judged(0.0)(jnp.float32(0), agent, agent)
    np.testing.assert_allclose(loss, 0, atol=1e-6)
    assert float(optax.global_norm(grads)) < 1e-6


def test_the_loss_is_the_distance_to_the_continuation_and_moves_only_the_agent():
    agent = member().life.learner_state.params
    loss, (to_amount, to_agent, to_target) = judged(0.0)(jnp.float32(3), agent, agent)
    window, ahead = make_window(agent), jax.tree.map(lambda p: 16 * p, agent)

    def distance(agent):
        wanted, reached = (predict_along(one, window.validation)["policy"][:-1] for one in (ahead, agent))
        return masked_mean(kl(wanted, reached), window.validation.valid)

    by_hand, slopes = jax.jit(jax.value_and_grad(distance))(agent)
    np.testing.assert_allclose(loss, by_hand, rtol=1e-4)
    assert float(loss) > 1e-3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), to_agent, slopes)
    assert float(to_amount) == 0  # the loss depends on where further updates lead, but they are not to be changed
    assert float(optax.global_norm(to_target)) == 0


def test_the_last_step_follows_the_policy_gradient():
    agent = member().life.learner_state.params
    loss, (_, to_agent, _) = judged(0.5)(jnp.float32(0), agent, agent)
    window = make_window(agent)

    def policy_loss(agent):
        policy = jax.nn.log_softmax(predict_along(agent, window.validation)["policy"][:-1])
        chosen = jnp.take_along_axis(policy, window.validation.action[..., None], -1)
        valid = window.validation.valid
        return -jnp.sum(window.advantage * chosen[..., 0] * valid) / jnp.sum(valid)

    slopes = jax.jit(jax.grad(policy_loss))(agent)
    assert float(loss) > 0
    # To descend the distance to where the policy gradient leads is to follow the policy gradient.
    inner = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(to_agent), jax.tree.leaves(slopes), strict=True))
    assert float(inner) > 0.3 * float(optax.global_norm(to_agent) * optax.global_norm(slopes))
