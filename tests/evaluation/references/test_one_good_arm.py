"""One good arm: the references against closed forms and against every choice and outcome written out."""

import itertools

import numpy as np
import pytest

from rulax.evaluation.references.one_good_arm import greedy_by_exposure, optimum


def test_one_and_two_pulls_in_closed_form():
    """The first pull is a guess; the second stays after a success and changes after a failure."""
    arms, high = 5, 0.9
    guess = (high + (arms - 1) * (1 - high)) / arms
    assert optimum(arms, 1, high) == pytest.approx(guess)
    good_if_won = high / arms / guess
    good_if_lost = (high / arms) / (1 - guess)  # of each other arm: it is the good one, and the first pull failed as poor arms do
    won, lost = (good * high + (1 - good) * (1 - high) for good in (good_if_won, good_if_lost))
    assert optimum(arms, 2, high) == pytest.approx(guess + guess * won + (1 - guess) * lost)


def test_every_plan_written_out():
    """Three arms, three pulls: all ways to choose by what was seen, tried on all outcomes."""
    arms, pulls, high = 3, 3, 0.8
    histories = [h for n in range(pulls) for h in itertools.product((0, 1), repeat=n)]
    best = 0.0
    for choices in itertools.product(range(arms), repeat=len(histories)):
        plan = dict(zip(histories, choices, strict=True))
        total = 0.0
        for good in range(arms):
            for outcomes in itertools.product((0, 1), repeat=pulls):
                chance = 1 / arms
                for t in range(pulls):
                    paid = high if plan[outcomes[:t]] == good else 1 - high
                    chance *= paid if outcomes[t] else 1 - paid
                total += chance * sum(outcomes)
        best = max(best, total)
    assert optimum(arms, pulls, high) == pytest.approx(best)


@pytest.mark.parametrize(("arms", "pulls", "exposures"), [(10, 10, 1), (4, 4, 3), (10, 3, 4), (2, 6, 2)])
def test_the_likeliest_arm_is_the_best_choice(arms, pulls, exposures):
    assert greedy_by_exposure(arms, pulls, exposures).sum() == pytest.approx(optimum(arms, pulls * exposures))


def test_exposures_approach_the_good_arm_and_an_unseen_pull_costs_a_little():
    seen, unseen = greedy_by_exposure(10, 10, 10), greedy_by_exposure(10, 10, 10, unseen=1)
    assert seen[0] == unseen[0] == pytest.approx(optimum(10, 10))
    assert (np.diff(seen) > 0).all()
    assert (unseen[1:9] < seen[1:9]).all()
    assert 8.999 < unseen[-1] <= seen[-1] < 9
