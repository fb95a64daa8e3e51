"""Population based training: a turn against plain NumPy, the toy against its closed form, and a trainer that takes turns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import PerStream
from rulax.learning.train import COMPILE_FAST, CompiledTrainer, TrainerConfig
from rulax.methods.experiments import pbt as experiments
from rulax.methods.experiments.pbt_toy import BEGIN, TOP, TOY, WAYS, ToySetup, live
from rulax.methods.pbt import Pbt, Space, choose_parents, draw, perturb_or_resample, turn
from rulax.methods.population import PopulationTrainer
from rulax.methods.scheduled import ScheduledTrainer
from rulax.records import checkpoint
from rulax.records.population import ancestors, schedule_of
from rulax.rules.actor_critic import actor_critic
from rulax.rules.adjustable import adjustable
from rulax.rules.base import Recipe
from rulax.settings import Learning, Network
from tests.learning.environments import Counter
from tests.learning.test_train import same

KEY = jax.random.key(3)
RATE, DISCOUNT = Space(1e-4, 1e-1, "log"), Space(0.5, 0.99, "odds")
PBT = Pbt({"rate": RATE, "discount": DISCOUNT})


def members(number):
    rows = np.arange(number, dtype=np.float32)
    return {
        "w": jnp.stack([rows, -rows], 1),
        "moments": jnp.asarray(10 * rows),
        "key": jax.random.split(KEY, number),
        "n": PerStream(rows),
    }


# -- one turn ------------------------------------------------------------------------------------------------------------------


def brute_parents(scores, share):
    """Who may copy whom, as sets, by sorting a list."""
    known = sorted((score, member) for member, score in enumerate(scores) if not np.isnan(score))
    few = max(1, int(share * len(scores)))
    worst, best = {m for _, m in known[:few]}, {m for _, m in known[-few:]}
    return [best if member in worst else {member} for member in range(len(scores))]


@pytest.mark.parametrize("number", [2, 3, 5, 16])
def test_truncation_replaces_the_worst_by_the_best(number):
    scores = np.random.default_rng(number).permutation(number).astype(np.float32)
    may = brute_parents(scores, 0.2)
    keys = jax.random.split(KEY, 200)
    found = np.asarray(jax.vmap(lambda key: choose_parents(PBT, jnp.asarray(scores), key))(keys))
    for member in range(number):
        assert set(found[:, member]) == may[member], "each of the best is drawn at times, and nobody else"


def test_who_has_no_score_neither_copies_nor_is_copied():
    scores = jnp.array([jnp.nan, 1.0, 2.0, 3.0, jnp.nan])
    np.testing.assert_array_equal(choose_parents(PBT, scores, KEY), [0, 3, 2, 3, 4])
    np.testing.assert_array_equal(choose_parents(PBT, jnp.full(4, jnp.nan), KEY), np.arange(4))


def test_a_tournament_copies_only_whoever_is_better():
    scores = np.array([2.0, 0.0, 1.0, 1.0], np.float32)
    tournament = Pbt({}, "tournament")
    found = np.asarray(jax.vmap(lambda key: choose_parents(tournament, jnp.asarray(scores), key))(jax.random.split(KEY, 300)))
    wanted = [{m for m in range(4) if scores[m] > scores[member]} | {member} for member in range(4)]
    # The worst one meets somebody better whoever it draws.
    wanted[1].remove(1)
    assert [set(found[:, member]) for member in range(4)] == wanted


@pytest.mark.parametrize("copies", ["both", "weights", "hyperparameters"])
def test_a_turn_is_what_numpy_does_by_hand(copies):
    scores = np.array([3.0, 0.0, 5.0, 4.0, 1.0], np.float32)
    before = {"rate": np.geomspace(1e-3, 1e-2, 5, dtype=np.float32), "discount": np.linspace(0.6, 0.9, 5, dtype=np.float32)}
    pbt = Pbt(PBT.spaces, resample=0.0, copies=copies)
    made = turn(pbt, members(5), jax.tree.map(jnp.asarray, before), jnp.asarray(scores), KEY)
    np.testing.assert_array_equal(made.parents, [0, 2, 2, 3, 4])  # the worst of five copies the best
    tree = members(5)
    if copies != "hyperparameters":
        tree["w"], tree["moments"] = (np.asarray(tree[name])[[0, 2, 2, 3, 4]] for name in ("w", "moments"))
        scores[1] = 5.0
    for name in ("w", "moments"):
        np.testing.assert_array_equal(made.members[name], tree[name])
    np.testing.assert_array_equal(made.scores, scores)
    np.testing.assert_array_equal(made.members["n"].value, np.arange(5))  # belongs to the streams
    assert (jax.random.key_data(made.members["key"]) == jax.random.key_data(members(5)["key"])).all()
    source = 1 if copies == "weights" else 2  # whose values are perturbed
    rate, discount = (np.asarray(made.hyperparameters[name], np.float64) for name in ("rate", "discount"))
    assert min(abs(rate[1] / before["rate"][source] - factor) for factor in (0.8, 1.2)) < 1e-5
    odds = before["discount"][source] / (1 - before["discount"][source])
    assert min(abs(discount[1] / (1 - discount[1]) / odds - factor) for factor in (0.8, 1.2)) < 1e-4
    others = [0, 2, 3, 4]
    np.testing.assert_array_equal(rate[others], before["rate"][others])
    np.testing.assert_array_equal(discount[others], before["discount"][others])


def test_exploring_draws_a_quarter_anew_and_stays_in_its_space():
    number = 4000
    before = {"rate": jnp.full(number, 0.09), "discount": jnp.full(number, 0.8)}
    after = perturb_or_resample(PBT, before, KEY, jnp.arange(number) < number // 2)
    rate = np.asarray(after["rate"])
    np.testing.assert_array_equal(rate[number // 2 :], np.float32(0.09))
    moved = rate[: number // 2]
    down, up = np.isclose(moved, 0.072), np.isclose(moved, 0.1)  # 1.2 times would leave the space
    assert abs(down.mean() - 0.375) < 0.04
    assert abs(up.mean() - 0.375) < 0.04
    drawn = np.log10(moved[~down & ~up])
    np.testing.assert_allclose(np.quantile(drawn, [0, 0.25, 0.5, 0.75, 1]), [-4, -3.25, -2.5, -1.75, -1], atol=0.2)
    odds = np.asarray(after["discount"][: number // 2])
    assert 0.5 <= odds.min() < 0.52
    assert 0.98 < odds.max() <= np.float32(0.99)
    assert abs(np.corrcoef(down, np.isclose(odds, 0.8 * 0.8 / (1 - 0.2 * 0.8)))[0, 1]) < 0.1, "each name draws its own factor"


def test_what_a_population_begins_with_is_even_on_its_scale():
    begun = draw(PBT.spaces | {"cost": Space(-1.0, 3.0)}, 5000, KEY)
    even = np.linspace(0, 1, 5)
    np.testing.assert_allclose(np.quantile(begun["cost"], even), -1 + 4 * even, atol=0.1)
    np.testing.assert_allclose(np.quantile(np.log10(begun["rate"]), even), -4 + 3 * even, atol=0.1)
    low, high = np.log(1.0), np.log(99.0)
    np.testing.assert_allclose(
        np.quantile(np.log(begun["discount"] / (1 - begun["discount"])), even), low + (high - low) * even, atol=0.15
    )


# -- the toy -------------------------------------------------------------------------------------------------------------------


def test_the_toy_is_solved_by_both_parts_together_and_by_neither_alone():
    setup = ToySetup()
    keys = jax.random.split(jax.random.key(0), setup.populations)
    value = {way: np.asarray(jax.jit(jax.vmap(functools.partial(live, setup, WAYS[way])))(keys).value)[:, -1] for way in WAYS}
    assert value["population"].max(-1).mean() >= TOY.goal == TOY.quick_goal
    # One weight shrinks by 2 % in every step and the other stays.
    alone = TOP - BEGIN**2 - (BEGIN * (1 - 2 * setup.learning_rate) ** setup.steps) ** 2
    np.testing.assert_allclose(value["grid search"], alone, rtol=1e-5)
    np.testing.assert_allclose(value["exploit only"], alone, rtol=1e-5)
    assert value["explore only"].max(-1).mean() < 1.18


# -- a trainer that takes turns ------------------------------------------------------------------------------------------------

LEARNING = Learning(streams=2, unroll=3, learning_rate=1e-2)
K, EVERY, ITERATIONS = 4, 2, 8
SPACES = {"learning_rate": Space(1e-3, 1e-1, "log"), "discount": Space(0.5, 0.99, "odds")}


class FastTrainer(CompiledTrainer):
    compile_options = COMPILE_FAST


@functools.cache
def recipe():
    rule = adjustable(lambda constants: actor_critic(**constants), {"discount": 0.9})
    return Recipe(rule, LEARNING, Network(hidden=(4,), activation="tanh"))


@functools.cache
def inner():
    """One program for all tests."""
    steps = ITERATIONS * LEARNING.streams * LEARNING.unroll
    return FastTrainer(Counter(), recipe(), TrainerConfig(K, steps), {"learning_rate": np.ones(K)})


def population():
    return PopulationTrainer(inner(), Pbt(SPACES), EVERY, {"learning_rate": 0.02})


def run(trainer, state, most=1000):
    state = jax.tree.map(jnp.copy, state)
    while not trainer.done(state):
        state, _ = trainer.advance(state, most)
    return state


def saved_and_restored(trainer, state, path):
    checkpoint.save(path, state, {}, {})
    return trainer.resume(checkpoint.unpack(checkpoint.load(path), trainer.skeleton(), path))


def test_a_population_can_be_saved_anywhere_and_goes_on_bit_for_bit(tmp_path):
    trainer = population()
    first = trainer.init(KEY)
    whole, turns = run(trainer, first), trainer.told()
    assert [turn.step for turn in turns] == [0, 12, 24, 36]
    assert turns[0].hyperparameters["learning_rate"][0] == pytest.approx(0.02)
    assert any(turn.parents != list(range(K)) for turn in turns)
    # Within a stretch, and at its end, before the turn: there a run may have been finished that goes on with more steps.
    for stop in (1, 3, 4):
        state = jax.tree.map(jnp.copy, first)
        while int(state.training.iteration) < stop:
            state, _ = trainer.advance(state, 1)
        told = trainer.told()
        same(run(trainer, saved_and_restored(trainer, state, tmp_path / "c"), most=1), whole)
        assert told + trainer.told() == turns[1:], "the beginning was told before"


def test_a_copy_goes_on_from_where_its_parent_stood():
    trainer = population()
    state = trainer.init(KEY)
    for _ in range(2):
        state, _ = trainer.advance(state, 1)
    before = jax.tree.map(np.array, state.training.life.learner_state.params)
    trainer.told()
    turned = trainer._take_turn(state)
    (record,) = trainer.told()
    (copy,) = [member for member in range(K) if record.parents[member] != member]
    assert record.scores[copy] == min(record.scores)
    assert record.scores[record.parents[copy]] == max(record.scores)
    after = turned.training.life.learner_state
    same(after.params, jax.tree.map(lambda leaf: leaf[np.array(record.parents)], before))
    np.testing.assert_allclose(after.hyperparameters["learning_rate"], record.hyperparameters["learning_rate"], rtol=1e-6)
    np.testing.assert_allclose(trainer.rule_params["constants"]["discount"], record.hyperparameters["discount"], rtol=1e-6)
    assert len(set(map(bytes, np.asarray(jax.random.key_data(turned.training.life.key))))) == K


def test_a_member_without_a_single_ended_episode_has_no_score():
    trainer = population()
    state = trainer.init(KEY)
    state, _ = trainer.advance(state, 2)
    state = state._replace(episodes=jnp.array([0.0, 2, 1, 4]), returns=jnp.array([0.0, 6, 1, 8]))
    trainer.told()
    trainer._take_turn(state)
    assert trainer.told()[0].scores == [None, 3, 1, 2]


# -- the schedule that was found -----------------------------------------------------------------------------------------------

TURNS = [
    {"step": 0, "scores": [None] * 3, "parents": [0, 1, 2], "hyperparameters": {"a": [1.0, 2.0, 3.0]}},
    {"step": 10, "scores": [1, 2, 3], "parents": [2, 1, 2], "hyperparameters": {"a": [3.6, 2.0, 3.0]}},
    {"step": 20, "scores": [9, 2, 3], "parents": [0, 0, 2], "hyperparameters": {"a": [3.6, 2.9, 3.0]}},
]


def test_the_line_of_a_member_leads_through_those_it_is_a_copy_of():
    assert ancestors(TURNS, 1) == [2, 0, 1]
    assert schedule_of(TURNS, 1) == [{"step": 0, "a": 3.0}, {"step": 10, "a": 3.6}, {"step": 20, "a": 2.9}]
    assert schedule_of(TURNS, 2) == [{"step": 0, "a": 3.0}], "nothing changed, so there is one point"
    assert ancestors(TURNS[:1], 1) == [1]


def test_a_schedule_is_followed_to_the_step():
    size = LEARNING.streams * LEARNING.unroll
    points = [{"step": 0, "learning_rate": 0.01, "discount": 0.9}, {"step": 3 * size - 1, "learning_rate": 0.05, "discount": 0.6}]
    trainer = ScheduledTrainer(inner(), points)
    state = trainer.init(KEY)
    rates, discounts = [], []
    by_hand = jax.tree.map(jnp.copy, state)
    while not trainer.done(state):
        state, metrics = trainer.advance(state)
        rates += metrics["learning_rate"].tolist()
        discounts += metrics["discount"].tolist()
    np.testing.assert_allclose(rates, [[0.01] * K] * 3 + [[0.05] * K] * 5, rtol=1e-6)
    np.testing.assert_allclose(discounts, [[0.9] * K] * 3 + [[0.6] * K] * 5, rtol=1e-6)
    for rate, discount, iterations in ((0.01, 0.9, 3), (0.05, 0.6, 5)):
        learner = by_hand.life.learner_state._replace(hyperparameters={"learning_rate": jnp.full(K, rate)})
        by_hand = by_hand._replace(life=by_hand.life._replace(learner_state=learner))
        inner().rule_params = inner().rule_params | {"constants": {"discount": jnp.full(K, discount)}}
        for _ in range(iterations):
            by_hand, _ = inner().advance(by_hand, 1)
    same(state, by_hand)


# -- the experiment ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_ways_begin_alike_and_are_tested_alike(monkeypatch):
    monkeypatch.setattr(experiments, "CompiledTrainer", FastTrainer)
    setup = experiments.PopulationSetup(env="catch", members=3, steps=1024, turns=2, test_episodes=4)
    seed = experiments.PopulationRun({"quick": setup}, "quick", 0)
    begun = []
    while not seed.done():
        if int(seed.state.training.iteration) == 0:
            begun.append(jax.tree.map(np.array, seed.state.hyperparameters))
        progress = seed.advance()
    assert progress.fraction == 1
    assert len(begun) == len(experiments.WAYS)
    for each in begun[1:]:
        same(each, begun[0])
    tested = seed.test()
    assert tested.values.shape == (3,)
    assert tested.baselines["random search"] == 1
    assert tested.values.mean() * tested.details["random search, mean return"] == pytest.approx(
        tested.details["population, mean return"]
    )
    rates = seed.ends["random search"].hyperparameters["learning_rate"]
    np.testing.assert_array_equal(rates, begun[0]["learning_rate"])
