"""The episodic LSTM's test by exposures, with an agent whose earnings are known, and what its environments show."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.distributions import sample_choice
from rulax.envs.bandit import OneGoodArm
from rulax.envs.barcode import barcode_bandit
from rulax.envs.previous import with_previous
from rulax.envs.tasks import distinct
from rulax.methods.episodic_lstm import play_exposures


@jax.tree_util.register_static
class Counter:
    """Stays with arm 0 where it has been in the same context before, and takes arm 1 where it has not."""

    bits = 3
    sample = staticmethod(sample_choice)

    def initial_memory(self, number):
        return jnp.zeros((number, 2**self.bits), jnp.int32), jnp.zeros(number, jnp.int32)

    def act(self, observation, first, memory):
        met, now = memory
        met = jnp.where((first >= 2)[:, None], 0, met)
        number = (observation["context"] @ 2 ** jnp.arange(self.bits)).astype(jnp.int32)
        met = met + (first >= 1)[:, None] * jax.nn.one_hot(number, 2**self.bits, dtype=jnp.int32)
        known = jnp.take_along_axis(met, number[:, None], 1)[:, 0] > 1
        return 100.0 * jax.nn.one_hot(jnp.where(known, 0, 1), 2), (met, now)


def test_rewards_are_counted_by_how_often_a_context_was_met():
    """In each context one of two arms is good, so an agent that changes its arm after the first exposure earns as much in the
    second and third, and what it lacks of the whole in the first."""
    earned = play_exposures(barcode_bandit(2, 2, 3, 3, 3), Counter(), pulls=2, number=200, seed=0)
    assert earned.shape == (200, 3)
    np.testing.assert_allclose(earned[:, 1], earned[:, 2], atol=1e-5)
    np.testing.assert_allclose(earned[:, 0] + earned[:, 1], 2.0, atol=1e-5)
    assert earned[:, 0].std() > 0.1


def test_the_last_action_and_its_reward_are_shown_within_an_episode():
    environment = with_previous(OneGoodArm(arms=3, pulls=2, high=1.0))
    task = environment.default_task()
    assert task.means.tolist() == [0, 0, 1]
    state, observation = environment.reset(task, jax.random.key(0))
    assert observation.tolist() == [1, 0, 0, 0, 0]
    state, transition = environment.step(task, state, jnp.int32(2), jax.random.key(1))
    assert transition.observation.tolist() == [1, 0, 0, 1, 1]
    assert environment.next_episode(task, state, jax.random.key(2))[1].tolist() == [1, 0, 0, 0, 0]
    assert environment.observation.shape == observation.shape
    with pytest.raises(ValueError, match="good arm must pay"):
        OneGoodArm(high=0.3)


def test_every_set_of_different_numbers_is_equally_likely():
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: distinct(key, 5, 3)))(jax.random.split(jax.random.key(0), 4_000)))
    sets, counts = np.unique(np.sort(drawn, 1), axis=0, return_counts=True)
    assert len(sets) == 10
    assert (np.diff(sets, axis=1) > 0).all()
    assert (abs(counts - 400) < 5 * np.sqrt(400)).all()
