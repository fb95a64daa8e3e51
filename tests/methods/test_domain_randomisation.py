"""Success rates of policies whose outcome is known, and the geometric mean of the table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.base import BaseAgent
from rulax.methods.domain_randomisation import LIMIT, play, successes, summary
from rulax.methods.experiments.domain_randomisation import CARTPOLE, EXPERIMENTS, MOUNTAIN_CAR, PENDULUM


class Policy(BaseAgent):
    """Acts by a function of the observation [B, ...], which returns the choice [B]."""

    number: int
    rule: object

    def __init__(self, number, rule):
        self.number, self.rule = number, rule

    def initial_memory(self, streams):
        return ()

    def act(self, observation, first, memory):
        return jax.nn.one_hot(self.rule(observation), self.number) * 20, memory

    def embed(self, experience):
        raise NotImplementedError

    predict = predict_taken = embed


def rate(domain, version, number, rule):
    play = jax.jit(lambda key: successes(domain, version, Policy(number, rule), key, 200, True))
    return float(np.mean(play(jax.random.key(0))))


def lean(observation):
    """Push towards where the pole falls: a linear controller."""
    return (observation @ jnp.array([0.1, 0.3, 10.0, 2.0]) > 0).astype(jnp.int32)


def with_speed(observation):
    """Push where the car goes, which adds energy at every step."""
    return jnp.where(observation[:, 1] < 0, 0, 2)


def test_known_controllers_succeed_and_idle_ones_do_not():
    assert rate(CARTPOLE, "R", 2, lean) > 0.95
    assert rate(CARTPOLE, "D", 2, lambda seen: jnp.zeros(len(seen), jnp.int32)) == 0.0
    # With the default force it takes longer than 110 steps from some starts; a strong engine needs far fewer.
    inside = rate(MOUNTAIN_CAR, "R", 3, with_speed)
    assert 0.5 < inside < 1.0


def test_a_pendulum_must_stay_upright_to_the_end():
    """No torque: it falls, and an upright moment in between does not count."""
    assert rate(PENDULUM, "D", 11, lambda seen: jnp.full(len(seen), 5)) == 0.0
    lengths, arrived = jnp.full(3, LIMIT), jnp.zeros(3, bool)
    np.testing.assert_array_equal(PENDULUM.succeeded(lengths, arrived, jnp.array([99, 100, 200])), [False, True, True])


def test_the_table_is_a_geometric_mean():
    rates = {"DD": 1.0, "DR": 80.0, "DE": 40.0, "RR": 97.0, "RE": 90.0}
    assert summary(rates) == (97.0, pytest.approx(np.exp(np.mean(np.log([80.0, 40.0, 90.0])))))


@pytest.mark.parametrize("name", ["cartpole-epopt", "mountain-car-epopt"])
@pytest.mark.parametrize("suite", ["quick", "full"])
def test_epopt_begins_long_before_a_run_ends_and_sees_whole_episodes(name, suite):
    (found,) = [each for each in EXPERIMENTS if each.name == name]
    setup = found.start.args[0][suite]
    learning = setup.recipe().learning
    unrolls = setup.steps / (learning.streams * learning.unroll)
    assert learning.worst == 0.1
    assert learning.worst_after < 0.7 * unrolls
    assert learning.unroll > LIMIT
    assert learning.streams * learning.unroll % learning.minibatches == 0


def test_successes_in_given_constants_are_those_of_the_version_that_has_them():
    """A pole on a cart that pushes with 1 N falls under a controller that balances it with 10 N: cell by cell, not on average."""
    default = CARTPOLE.environment.default_task()
    tasks = jax.vmap(lambda force: default._replace(force=force))(jnp.array([10.0] * 20 + [0.01] * 20))
    found = jax.jit(lambda key: play(CARTPOLE, tasks, Policy(2, lean), key, True))(jax.random.key(1))
    np.testing.assert_array_equal(found, [True] * 20 + [False] * 20)
