"""LPG's start that does not teach, and the race of drift functions, on agents as small as can be."""

import dataclasses
import types

import jax
import numpy as np
import pytest

from rulax.learning.train import COMPILE_FAST, CompiledTrainer
from rulax.methods import drift, lpg
from rulax.methods.experiments import drift as races
from rulax.methods.experiments.lpg import HARMLESS, SEARCHES, SearchRun


class Known:
    """A judge whose scores are known: of the rules in the order in which they come."""

    def __init__(self, *scores):
        self.left, self.seen, self.evaluations = list(scores), [], [types.SimpleNamespace(name="held out")]

    def scores(self, rule_params):
        self.seen.append(rule_params)
        return np.array([self.left.pop(0)])


@pytest.fixture(scope="module")
def search():
    small = dataclasses.replace(lpg.DISCOVERY, agents=1, window=1, lifetimes=(2,), critic_hidden=(4,))
    return lpg.Search(("catch:rows=3,columns=3",), ("catch:rows=4,columns=3",), steps=1, hidden=4, discovery=small)


def test_discovery_begins_with_random_weights_that_do_not_teach(search):
    recipe = search.recipe()
    judge, discoverer = Known(0.9, 0.3, -0.1, 0.9), lpg.make_discoverer(search, recipe)
    start = lpg.begin(discoverer, recipe, judge, HARMLESS, jax.random.key(0))
    assert (start.draws, start.scores.tolist()) == (3, [-0.1])
    # What discovery begins with is what was judged last, and every draw is another one.
    jax.tree.map(np.testing.assert_array_equal, start.state.meta_params, judge.seen[-1])
    first, last = (jax.tree.leaves(each)[0] for each in (judge.seen[0], judge.seen[-1]))
    assert not np.array_equal(first, last)


def test_without_a_step_of_discovery_the_value_is_that_of_the_start(search, monkeypatch):
    judge = Known(0.9, 0.1, 5.0)
    monkeypatch.setattr("rulax.methods.experiments.lpg.Judge", lambda *_: judge)
    run = SearchRun({"quick": search}, "quick", 0)
    tested = run.test()
    assert (tested.values.tolist(), tested.random) == ([0.1], 0.1)
    assert tested.details["random starts drawn"] == 2
    assert len(judge.seen) == 2


def test_both_sizes_are_judged_where_no_agent_of_discovery_lives():
    for search in SEARCHES.values():
        assert not set(search.training) & set(search.validation)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(CompiledTrainer, "compile_options", COMPILE_FAST)
    recipe_of = drift.recipe_of

    def smaller(rule):
        recipe = recipe_of(rule)
        learning = dataclasses.replace(recipe.learning, streams=2, unroll=8, epochs=1, minibatches=1)
        return recipe._replace(learning=learning, network=dataclasses.replace(recipe.network, hidden=(4,)))

    monkeypatch.setattr(drift, "recipe_of", smaller)
    return races.DriftSetup(("dpo",), environments=("catch:rows=3,columns=3",), agents=2, steps=160)


def test_a_rule_that_was_not_trained_counts_as_untrained_agents_do(small):
    run = races.DriftRun({"quick": small}, "quick", 0)
    tested = run.test()  # as with a budget of nothing
    assert tested.values[0] == pytest.approx(tested.random)
    assert tested.details["dpo: interquartile mean"] == pytest.approx(0)
    assert not run.done()
    while not run.done():
        progress = run.advance()
    assert progress.fraction == 1
    assert progress.env_steps == 3 * 2 * 160
    found = run.test()
    means = [found.details[f"{rule}: interquartile mean"] for rule in ("dpo", "ppo")]
    assert found.values[0] == pytest.approx(means[0] - means[1])
    # All rules begin with the same agents.
    one, other = (run.race(rule, small.environments[0]).begin().life.learner_state.params for rule in ("ppo", "dpo"))
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_the_cost_of_evolution_is_that_of_all_lives():
    evolving = drift.Evolving(("catch", "point"), updates=3, pairs=5)
    learning = evolving.recipe().learning
    assert evolving.steps_each() == 2 * 11 * 3 * learning.streams * learning.unroll
