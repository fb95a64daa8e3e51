"""Discovery on the host: the same gradient as the compiled path on the same arrays, and the same life as the agents lived."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.discovery.discover import Discoverer
from rulax.discovery.host import HostLives, Recorded, recorded_problem
from rulax.discovery.meta_step import estimate, rule_problem
from rulax.discovery.population import Family, init_population
from rulax.discovery.window import relive
from rulax.learning.frames import Folded
from rulax.learning.host_acting import swapped
from rulax.rules.base import Recipe
from rulax.settings import Learning
from tests.discovery.environments import ACTIONS, NETWORK, SETTINGS, smooth_rule
from tests.discovery.families import LEARNING, make_family, rule_params
from tests.learning.environments import Counter, Flicker, OnHost

WARM = Learning(streams=2, unroll=3, replay=0.5, capacity=6, warmup=4, learning_rate=0.05)


def host_family(environment=None, learning: Learning = LEARNING, **settings) -> Family:
    family = make_family(learning, **settings)
    return Family("host", environment or OnHost(Counter(num_actions=ACTIONS)), family.recipe, family.settings)


def trajectories(experience):
    """Experience [..., T, B, ...] with the axes of one update first as the host keeps it, [B, T, ...]."""
    return swapped(experience._replace(memory=()))._replace(memory=experience.memory)


@pytest.mark.parametrize("strategy", ["plain", "both"])
def test_the_gradient_equals_that_of_the_compiled_path_on_the_same_arrays(strategy):
    """One environment in both forms, in double precision: what the compiled path lived, handed over as a record."""
    with jax.enable_x64(True):
        compiled = make_family()
        problem = rule_problem(compiled, "plain")

        def judge(updates, params, member, window):
            loss, metrics = problem.judge(updates, params, member, window)
            return loss, metrics | {"window": window}

        double = lambda tree: jax.tree.map(lambda x: x.astype(float) if x.dtype == np.float32 else x, tree)  # noqa: E731
        members = double(jax.jit(lambda key: init_population(compiled, key))(jax.random.key(0)))
        params = double(rule_params())
        wanted, _, metrics = jax.jit(estimate(compiled, problem._replace(judge=judge)))(params, members)
        window = metrics["window"]
        record = window.record._replace(experience=jax.vmap(jax.vmap(trajectories))(window.record.experience))
        recorded = Recorded(record, jax.vmap(trajectories)(window.validation), window.advantage, members.budget)
        family = host_family()
        found, _, again = jax.jit(estimate(family, recorded_problem(family, strategy)))(params, recorded)
        assert jax.tree.leaves(found)[0].dtype == np.float64
        size = float(optax.global_norm(wanted))
        assert size > 1e-3
        assert float(optax.global_norm(jax.tree.map(jnp.subtract, found, wanted))) <= 1e-8 * size
        np.testing.assert_allclose(again["outer_loss"], metrics["outer_loss"], rtol=1e-10)


@functools.cache
def lived(collection: str = "on_policy"):
    """A window of two agents on the host: the family, members before and after, the record, metrics."""
    family = host_family(learning=WARM, collection=collection)
    lives = HostLives(family)
    before = lives.begin_due(jax.jit(lambda key: init_population(family, key))(jax.random.key(0)), np.zeros(2, bool))
    return family, lives, before, *lives.live(rule_params(), before)


@pytest.mark.parametrize("collection", ["on_policy", "before_window"])
def test_the_record_leads_to_the_agents_that_lived_it(collection):
    family, _, _, after, recorded, metrics = lived(collection)
    updates = recorded_problem(family, "plain").updates
    again = jax.jit(jax.vmap(lambda record: relive(updates, rule_params(), record).state))(recorded.record)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), again.params, after.life.learner_state.params)
    assert after.age.tolist() == [2, 2]
    np.testing.assert_array_equal(recorded.validation.observation[:, :, -1], after.life.actor.observation)
    assert np.isfinite(metrics["loss"]).all()
    assert np.isfinite(recorded.advantage).all()


def test_replay_is_warm_before_the_first_update_and_each_agent_has_its_own():
    """A warm-up of 4 trajectories is one unroll in advance; with 2 more unrolls of 2 streams, 6 have been stored."""
    _, lives, before, _, recorded, _ = lived()
    assert [replay.stored for replay in lives.replays] == [6, 6]
    ones, others = (np.asarray(recorded.record.experience.action[agent]) for agent in (0, 1))
    assert ones.shape == (2, 2, 3)  # updates, trajectories, steps
    assert not (ones == others).all()
    assert before.age.tolist() == [0, 0]


def test_a_life_that_is_over_is_followed_by_another_and_the_other_agent_goes_on():
    family = host_family(learning=WARM, lifetimes=(2, 4))
    discoverer = Discoverer([family], 3)
    state = discoverer.init(jax.random.key(3))
    members = state.members[0]._replace(budget=jnp.array([2, 4]))
    state = state._replace(members=(members,))
    state, _ = discoverer.advance(state)
    assert state.members[0].age.tolist() == [2, 2]
    where = np.asarray(state.members[0].life.actor.observation)
    shown = discoverer.lives(family).streams.show().observation.reshape(where.shape)
    np.testing.assert_array_equal(where, shown)
    old = discoverer.lives(family).replays[1]
    state, metrics = discoverer.advance(state)
    assert state.members[0].resets.tolist() == [2, 1]
    assert state.members[0].age.tolist() == [2, 4]
    assert discoverer.lives(family).replays[1] is old
    assert [replay.stored for replay in discoverer.lives(family).replays] == [6, 10]
    assert metrics["host"]["restarts"].tolist() == [0, 0]
    assert metrics[""]["seconds_acting"] > 0
    discoverer.close()
    discoverer.close()


def test_compiled_and_host_families_share_a_rule():
    """Flicker shows stacks of frames, which the records hold folded, and pays for its last one."""
    rule = Recipe(smooth_rule(), WARM, NETWORK)
    flicker = Flicker()
    flicker.num_actions = ACTIONS
    families = [Family("flicker", flicker, rule, SETTINGS), make_family(WARM)]
    discoverer = Discoverer(families, 2)
    state = discoverer.init(jax.random.key(0))
    for _ in range(2):
        state, metrics = discoverer.advance(state)
    assert float(metrics[""]["meta_gradient_norm_of_mean"]) > 0
    assert (metrics["flicker"]["meta_gradient_norm"] > 0).all()
    form = discoverer.lives(families[0]).recorded_form()
    assert isinstance(form.record.experience.observation, Folded)
    assert "records of a window" in discoverer.lives(families[0]).reserve()
    with pytest.raises(ValueError, match="not even one trajectory per stream would fit"):
        discoverer.lives(families[0]).reserve(100)
    discoverer.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"estimator": "evolution"}, "lives it many times"), ({"objective": "bootstrap"}, "use policy_gradient")],
)
def test_what_needs_a_window_twice_is_refused_on_the_host(settings, words):
    with pytest.raises(ValueError, match=words):
        host_family(**settings)
