"""What a discovery says that it has cost, against steps and updates that count themselves while they are made."""

import functools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from rulax.commands.discover.result import Spent, average
from rulax.discovery.discover import Discoverer
from rulax.discovery.population import draw_budget
from rulax.settings import Learning
from tests.discovery.families import make_family
from tests.learning.environments import Counter

AGENTS, META_STEPS = 2, 3
LEARNING = Learning(streams=2, unroll=3, learning_rate=0.05)
# Both trajectories of the first unroll only fill the buffer: an update needs those of two.
REPLAYING = Learning(streams=2, unroll=3, learning_rate=0.05, replay=0.5, capacity=8, warmup=4)
COUNTED = {"steps": 0, "updates": 0}


def count(name, axes, *values):
    """As many events as there are entries along the axes that `vmap` has put before the last `axes` ones of the last value."""
    shape = np.shape(values[-1])
    COUNTED[name] += int(np.prod(shape[: len(shape) - axes]))
    return values[0]


def counted(name, axes, value, *others):
    """The value, through the host. What nobody needs is not computed, and so not counted."""
    like = jax.ShapeDtypeStruct(value.shape, value.dtype)
    return jax.pure_callback(functools.partial(count, name, axes), like, value, *others, vmap_method="broadcast_all")


class Counted(Counter):
    def step(self, task, state, action, key):
        return super().step(task, counted("steps", 0, state, action), action, key)


def counted_family(learning, settings):
    family = make_family(learning, **{"agents": AGENTS, "lifetimes": (4,), "pairs": 2, "memory": "plain"} | settings)
    rule = family.recipe.rule

    def targets(params, memory, batch):
        # An update has one batch of rewards [T, N].
        reward = counted("updates", 2, batch.experience.reward)
        return rule.targets(params, memory, batch._replace(experience=batch.experience._replace(reward=reward)))

    recipe = family.recipe._replace(rule=rule._replace(targets=targets))
    return family.__class__("counter", Counted(num_actions=3), recipe, family.settings)


@pytest.mark.parametrize(
    ("learning", "settings"),
    [
        (REPLAYING, {"estimator": "backprop"}),
        # Longer than `memory.SHORT`: in shorter windows the first rollout, which is the same in all perturbed lives, is made once.
        (LEARNING, {"estimator": "evolution", "window": 5, "lifetimes": (10,)}),
        (REPLAYING, {"estimator": "evolution", "fitness": "lifetime"}),
        pytest.param(LEARNING, {"objective": "bootstrap", "bootstrap_updates": 3}, marks=pytest.mark.slow),
        pytest.param(LEARNING, {"estimator": "pes"}, marks=pytest.mark.slow),
    ],
    ids=["backprop", "evolution", "lifetime", "bootstrap", "pes"],
)
def test_the_cost_is_what_was_counted(learning, settings):
    family = counted_family(learning, settings)
    COUNTED.update(steps=0, updates=0)
    discoverer = Discoverer([family], META_STEPS)
    state = discoverer.init(jax.random.key(0))
    for _ in range(META_STEPS):
        state, _ = discoverer.advance(state)
    prepared = SimpleNamespace(discoverer=discoverer, recipe=family.recipe, training={"counter": family.environment})
    spent = Spent.of(prepared, META_STEPS, 0.0, 0.0, 0)
    assert {"steps": spent.environment_steps, "updates": spent.agent_updates} == COUNTED


def test_lives_are_as_long_on_average_as_they_are_drawn():
    lifetimes = (2, 5, 20)
    drawn = np.asarray(jax.vmap(functools.partial(draw_budget, lifetimes))(jax.random.split(jax.random.key(0), 20_000)))
    np.testing.assert_allclose(average(lifetimes, lambda life: life), drawn.mean(), rtol=0.03)
    np.testing.assert_allclose(average(lifetimes, lambda life: life > 2), (drawn > 2).mean(), rtol=0.05)
