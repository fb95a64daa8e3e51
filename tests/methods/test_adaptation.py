"""What the gradient-based methods are made of: whole episodes, scores, the linear baseline, and one small run from end to end."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rulax.agents import Carried, WrappedAgent, make_agent
from rulax.discovery.memory import make_updates
from rulax.discovery.window import relive
from rulax.envs.base import Episode
from rulax.envs.point import Point
from rulax.envs.regression import Sinusoid
from rulax.learning.update import Learner
from rulax.methods.adaptation import (
    Tasks,
    adapt,
    init_meta_state,
    mean_return,
    mean_return_of_all,
    regression_tasks,
    squared_error,
    whole_episodes,
)
from rulax.methods.catalogue import experiments_of
from rulax.methods.experiments import maml, reptile
from rulax.methods.experiments.adaptation import AdaptationRun, PolicySizes
from rulax.methods.maml import MAML
from rulax.methods.maml import meta_update as maml_update
from rulax.methods.reptile import Reptile
from rulax.methods.reptile import meta_update as reptile_update
from rulax.rules.linear_baseline import RIDGE, fitted_values, steps_since_start
from rulax.rules.regression import as_experience, regression
from rulax.settings import Network
from rulax.types import Experience


def experience_of(first, reward, valid=None, observation=None):
    steps, streams = reward.shape
    valid = np.ones((steps, streams), bool) if valid is None else valid
    observation = np.zeros((steps + 1, streams, 2), np.float32) if observation is None else observation
    return Experience(observation, None, jnp.asarray(reward), None, jnp.asarray(first), jnp.asarray(valid), None, ())


def test_episodes_that_the_batch_cut_off_are_left_out_and_scores_count_the_first():
    """Stream 0 ends at steps 1 and 4; stream 1 ends at step 2, and then is cut off."""
    ended = np.array([[0, 0], [1, 0], [0, 1], [0, 0], [1, 0]], bool)
    first = np.concatenate([np.ones((1, 2), bool), ended])
    reward = np.array([[1, 10], [2, 20], [4, 40], [8, 80], [16, 160]], np.float32)
    whole = whole_episodes(experience_of(first, reward), Episode(jnp.asarray(ended), None, None))
    np.testing.assert_array_equal(whole.valid, [[1, 1], [1, 1], [1, 1], [1, 0], [1, 0]])
    np.testing.assert_allclose(mean_return(whole), (3 + 70) / 2)
    np.testing.assert_allclose(mean_return_of_all(whole), (3 + 28 + 70) / 3)  # the one that is cut off is not among them
    np.testing.assert_array_equal(steps_since_start(jnp.asarray(first[:-1])), [[0, 0], [1, 1], [0, 2], [1, 0], [2, 1]])


def test_the_baseline_is_ridge_regression_over_valid_steps():
    rng = np.random.default_rng(1)
    first = np.zeros((9, 3), bool)
    first[0] = first[4, 1] = True
    valid = rng.random((8, 3)) < 0.8
    observation = rng.normal(size=(9, 3, 2)).astype(np.float32)
    returns = rng.normal(size=(8, 3)).astype(np.float32)
    spoilt = np.where(valid, returns, np.nan).astype(np.float32)
    found = fitted_values(experience_of(first, returns, valid, observation), jnp.asarray(spoilt))
    time = np.stack([np.arange(8), np.r_[0:4, 0:4], np.arange(8)], 1)[..., None] / 100
    seen = observation[:-1]
    features = np.concatenate([seen, seen**2, time, time**2, time**3, np.ones_like(time)], -1)
    rows, wanted = features[valid].astype(np.float64), returns[valid]
    solution = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(8), rows.T @ wanted)
    np.testing.assert_allclose(found, features @ solution, atol=2e-2)
    parts = {"observation": observation[..., :1], "zz": observation[..., 1:]}  # the same numbers as a dictionary
    again = fitted_values(experience_of(first, returns, valid, parts), jnp.asarray(spoilt))
    np.testing.assert_allclose(again, found, atol=1e-5)


@pytest.mark.parametrize(("size", "streams"), [(4, 3), (2, 5), (6, 2)])
def test_the_baseline_is_finite_where_episodes_are_fewer_than_numbers_that_last(size, streams):
    """Its equations are singular then, and the least ridge is lost in float32. No fit is worse than none."""
    rng = np.random.default_rng(size)
    lasting = np.broadcast_to(rng.normal(size=(1, streams, size)), (21, streams, size)).astype(np.float32)
    moving = np.cumsum(rng.normal(size=(21, streams, 2)), 0).astype(np.float32)
    first = np.zeros((21, streams), bool)
    first[0] = True
    returns = (5 + 3 * rng.normal(size=(20, streams))).astype(np.float32)
    experience = experience_of(first, returns, None, np.concatenate([moving, lasting], -1))
    found = np.asarray(jax.jit(fitted_values)(experience, jnp.asarray(returns)))
    assert np.isfinite(found).all()
    assert np.square(returns - found).sum() < np.square(returns - returns.mean()).sum()


def test_the_experiments_name_themselves():
    for method in ("maml", "reptile"):
        found = experiments_of(method)
        assert all(each.method == method for each in found)
        assert len({each.name for each in found}) == len(found)


# -- adaptation -------------------------------------------------------------------------------------------------------------------


def regressor():
    network = Network(hidden=(4,), activation="tanh", torso="mlp")
    return make_agent(jax.random.key(0), jax.ShapeDtypeStruct((1,), jnp.float32), 1, regression().heads(1), network)


@pytest.mark.parametrize("fresh", [False, True])
def test_the_record_of_an_adaptation_leads_to_the_same_agent(fresh):
    """With several minibatches of streams per update, whose order a key decides."""
    waves = regression_tasks(Sinusoid(), 5, 5)

    def collect(task, agent, key):
        each = [as_experience(*Sinusoid().examples(task, one, 5)) for one in jax.random.split(key, 4)]
        examples = jax.tree.map(lambda *parts: jnp.concatenate(parts, 1), *each)
        return examples, examples

    learner = Learner(regression(), optax.sgd(0.1), epochs=2, minibatches=4)
    tasks = Tasks(waves.sample, collect, squared_error, fresh)
    made = jax.jit(lambda: adapt(tasks, learner, regressor(), jax.random.key(1), 3))()
    again = jax.jit(lambda record: relive(make_updates(learner, "plain"), {}, record))(made.record).state
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), again.params, made.life.learner_state.params)
    same = np.asarray(made.record.experience.reward[0] == made.record.experience.reward[1]).all()
    assert same != fresh


class Tabled(WrappedAgent):
    """An agent that carries integers, and floats that are not trained."""

    visits: jax.Array
    mean: Carried


@pytest.mark.parametrize("method", ["maml", "reptile"])
def test_only_what_is_trained_is_meta_learned(method):
    # Decay moves whatever the optimiser is given, even where there is no gradient.
    plain, learner, optimiser = regressor(), Learner(regression(), optax.sgd(0.1)), optax.adamw(0.01, weight_decay=0.1)
    table = jnp.arange(3), Carried(jnp.array([0.5, 2.0]))
    tasks = regression_tasks(Sinusoid(), 5, 5)
    if method == "reptile":
        update, parts = reptile_update, Reptile(tasks, learner, regression(), optimiser, number=2, updates=2)
    else:
        update, parts = maml_update, MAML(tasks, learner, regression(), optimiser, number=2)
    run = jax.jit(lambda agent: update(parts, init_meta_state(optimiser, agent), jax.random.key(2)))
    (alone, _), (tabled, _) = run(plain), run(Tabled(plain, *table))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), tabled.meta_params.agent, alone.meta_params)
    assert not eqx.tree_equal(alone.meta_params, plain)
    jax.tree.map(np.testing.assert_array_equal, (tabled.meta_params.visits, tabled.meta_params.mean), table)


@dataclasses.dataclass(frozen=True)
class Short(Point):
    horizon = 5


TINY = PolicySizes(total=2, tasks=2, trajectories=3, hidden=(4,), epochs=2, tested=4, chunk=1)


@pytest.mark.slow
def test_reptile_runs_and_chunks_do_not_matter(monkeypatch):
    """Two meta-updates one by one are two at once, and all parameters move."""
    monkeypatch.setattr(reptile, "Point", Short)
    monkeypatch.setitem(reptile.POINT_SIZES, "quick", TINY)
    one, two = (reptile.start_point("quick", 3) for _ in range(2))
    assert isinstance(one, AdaptationRun)
    assert isinstance(two, AdaptationRun)
    two.chunk = 2
    one.advance()
    one.advance()
    assert two.advance().fraction == 1
    assert one.done()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one.state.meta_params, two.state.meta_params)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.any(a != b)), one.state.meta_params, one.initial)))


@pytest.mark.slow  # the quick suite, which CI runs, does all of this but the pretraining
def test_maml_gives_a_verdict_with_all_its_parts(monkeypatch):
    monkeypatch.setattr(maml.point, "Point", Short)
    monkeypatch.setitem(maml.POINT_SIZES, "quick", TINY._replace(pretraining=1))
    run = maml.start_point("backprop", "quick", 3)
    assert np.isfinite(run.advance().value)
    tested = run.test()
    assert tested.values.shape == (4,)
    assert np.isfinite(tested.values).all()
    assert {"return_0", "return_3", "all_0", "all_3", "worst_margin"} <= set(tested.details)
    assert {"random", "pretrained", "sees the goal"} == set(tested.baselines)
    margins = [tested.details[f"return_{n}"] - value for n, value in maml.POINT.items()]
    np.testing.assert_allclose(tested.details["worst_margin"], min(margins), rtol=1e-5)
    assert tested.baselines["sees the goal"] >= -4 * 2**0.5 * 0.5
