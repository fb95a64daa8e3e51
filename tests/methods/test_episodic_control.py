"""Areas under learning curves against NumPy, what is made of them, and a race that is really run, small."""

import numpy as np
import pytest

from rulax.methods.base import WORST_MARGIN
from rulax.methods.episodic_control import Arena, Learner, area, curve, uniform_return
from rulax.methods.experiments import episodic_control
from rulax.methods.experiments.episodic_control import CATCH, DQN, MFEC, NEC, PRIORITISED, Race, RaceRun, report


def test_a_curve_is_the_mean_of_episodes_by_parts_of_the_life():
    rng = np.random.default_rng(0)
    episodes = rng.integers(0, 3, 60)
    totals = [rng.normal(size=number) for number in episodes]
    found = curve(np.array([each.sum() for each in totals]), episodes.astype(float), 0.0, parts=6)
    expected = [np.concatenate(totals[start : start + 10]).mean() for start in range(0, 60, 10)]
    np.testing.assert_allclose(found, expected)


def test_before_the_first_episode_nothing_is_earned_and_later_gaps_stay_as_they_were():
    returns, episodes = np.array([0.0, 8.0, 0.0, 2.0]), np.array([0.0, 2.0, 0.0, 1.0])
    np.testing.assert_allclose(curve(returns, episodes, -7.0, parts=4), [-7, 4, 4, 2])


def test_random_play_has_no_area_and_perfection_from_the_first_step_has_one():
    assert area(np.full(20, -0.6), -0.6, 1.0) == pytest.approx(0, abs=1e-12)
    assert area(np.full(20, 1.0), -0.6, 1.0) == pytest.approx(1)
    assert area(np.linspace(-0.6, 1.0, 21), -0.6, 1.0) == pytest.approx(0.5)


def catch_by_chance(rows, columns):
    """The return of uniformly random actions in Catch, exactly: the paddle's walk as a Markov chain."""
    step = np.zeros((columns, columns))
    for column in range(columns):
        for move in (-1, 0, 1):
            step[column, np.clip(column + move, 0, columns - 1)] += 1 / 3
    ends = np.linalg.matrix_power(step, rows - 1)[columns // 2]
    return 2 * np.mean(ends) - 1  # the ball's column is uniform and independent


def test_the_return_of_random_actions_is_the_exact_one():
    # About 56,000 episodes, each worth 1 or -1.
    assert uniform_return("catch") == pytest.approx(catch_by_chance(10, 5), abs=0.015)


ARENAS = (Arena("one", 1.0), Arena("two", 1.0), Arena("three", 1.0))
AREAS = {
    "MFEC": np.array([0.9, 0.6, 0.3]),
    "DQN": np.array([0.5, 0.0, 0.1]),
    "prioritised DQN": np.array([0.5, 0.1, 0.3]),
}


def test_the_metric_is_the_ratio_of_mean_areas_and_the_margin_that_of_the_other_goal():
    tested = report(Race(ARENAS, (MFEC, DQN, PRIORITISED), 10, {"prioritised DQN": 2.5}), AREAS)
    np.testing.assert_allclose(tested.values, [3.0])
    assert tested.baselines == {"prioritised DQN": pytest.approx(1.5)}
    assert tested.details["over prioritised DQN"] == pytest.approx(2.0)
    assert tested.details[WORST_MARGIN] == pytest.approx(-0.5)
    assert tested.details["ratio of medians"] == pytest.approx(6.0)
    assert tested.details["area of MFEC on two"] == pytest.approx(0.6)


def test_where_it_must_fail_the_metric_is_how_far_it_is_behind():
    tested = report(Race(ARENAS, (MFEC, DQN), 10, difference=True), {"MFEC": np.full(3, 0.6), "DQN": np.full(3, 0.9)})
    np.testing.assert_allclose(tested.values, [0.3])
    assert tested.random == 0


@pytest.mark.parametrize("experiment", episodic_control.EXPERIMENTS, ids=lambda each: each.name)
def test_no_untrained_agent_passes(experiment):
    """Whose area is 0, as that of the learner it is compared with, or of that one alone."""
    for suite in ("quick", "full"):
        race = experiment.start.args[0][suite]
        first, *others = (learner.name for learner in race.learners)
        nothing = np.zeros(len(race.arenas))
        untrained = report(race, {first: nothing} | dict.fromkeys(others, nothing)).values.mean()
        assert experiment.goal_of(suite) is None or not experiment.reaches(untrained, suite)
        if not race.difference:
            behind = report(race, {first: nothing} | dict.fromkeys(others, nothing + 0.3)).values.mean()
            assert experiment.goal_of(suite) is None or not experiment.reaches(behind, suite)


def finished(race, seed=0):
    run = RaceRun({"quick": race, "full": race}, "quick", seed)
    while not run.done():
        run.advance()
    return run


def test_a_race_runs_once_and_its_curves_serve_every_experiment(monkeypatch):
    monkeypatch.setattr(episodic_control, "CURVES", {})
    arena, few = Arena("probe/context", 1.0, few_rows=True), (("streams", 2), ("unroll", 4))
    learners = (Learner("MFEC", "mfec", (), few), Learner("other", "mfec", (("epsilon", 1.0),), few))
    race = Race((arena,), learners, 320)
    run = finished(race)
    assert run.steps == 2 * 320
    assert len(episodic_control.CURVES) == 2
    tested = run.test()
    # The probe pays 1 or -1; the other acts by chance.
    assert tested.details["area of MFEC"] > 0.7
    assert abs(tested.details["area of other"]) < 0.2
    again = finished(race)
    assert again.steps == 0
    assert again.test().values == tested.values


def test_a_life_that_did_not_happen_counts_as_nothing(monkeypatch):
    monkeypatch.setattr(episodic_control, "CURVES", {})
    race = Race((CATCH,), (MFEC, DQN), 320)
    tested = RaceRun({"quick": race, "full": race}, "quick", 0).test()
    assert tested.values == [0.0]


@pytest.mark.learning
@pytest.mark.parametrize("learner", [MFEC, NEC], ids=lambda each: each.name)
def test_tables_are_ahead_of_a_network_in_the_first_steps_of_catch(learner):
    tested = finished(Race((CATCH,), (learner, DQN), 3000)).test()
    assert tested.details[f"area of {learner.name}"] > 0.5
    assert tested.values[0] > 1.5
