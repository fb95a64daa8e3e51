"""Exact optima against every policy there is (tiny tasks), closed forms, and figures computed elsewhere."""

import itertools

import numpy as np
import pytest

from rulax.envs.bandit import InformativeArm
from rulax.evaluation import references as refs


def best_of_all_policies(means, weights, pulls):
    """The greatest expected reward among all deterministic policies, for tasks [M, K] with weights [M]: each is a table from the
    outcomes so far (a node of a binary tree) to an arm, and is followed through every sequence of outcomes."""
    arms = means.shape[1]
    best = 0.0
    for table in itertools.product(range(arms), repeat=2**pulls - 1):
        total = 0.0
        for outcomes in itertools.product((0, 1), repeat=pulls):
            node, chance = 0, weights.copy()
            for outcome in outcomes:
                p = means[:, table[node]]
                chance = chance * (p if outcome else 1 - p)
                node = 2 * node + 1 + outcome
            total += chance.sum() * sum(outcomes)
        best = max(best, total)
    return best


def uniform_tasks(arms, order=4):
    """Gauss-Legendre nodes on [0, 1]^arms: expectations of polynomials of degree < 2 * order in each mean are exact."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    means = np.array(list(itertools.product((nodes + 1) / 2, repeat=arms)))
    return means, np.array([np.prod(each) for each in itertools.product(weights / 2, repeat=arms)])


@pytest.mark.parametrize(("arms", "pulls"), [(1, 3), (2, 1), (2, 2), (2, 3), (3, 2)])
def test_no_policy_is_better_and_one_is_as_good(arms, pulls):
    assert refs.bernoulli_bandit(arms, pulls) == pytest.approx(best_of_all_policies(*uniform_tasks(arms), pulls), rel=1e-12)


@pytest.mark.parametrize("means", [None, (0.1, 0.9), (0.4, 0.6), (0.2, 0.3, 0.9)])
def test_dependent_arms_against_every_policy(means):
    if means is None:
        (p, weights), p = uniform_tasks(1), uniform_tasks(1)[0][:, 0]
        expected_best = 3 / 4
    else:
        p, weights = np.array(means), np.full(len(means), 1 / len(means))
        expected_best = weights @ np.maximum(p, 1 - p)
    value = best_of_all_policies(np.stack([p, 1 - p], 1), weights, 3)
    assert refs.dependent_arms_regret(3, means) == pytest.approx(3 * expected_best - value, rel=1e-10)


def test_one_arm_pays_half_and_two_pulls_are_done_by_hand():
    assert refs.bernoulli_bandit(1, 17) == pytest.approx(17 / 2)
    assert refs.bernoulli_bandit(2, 2) == pytest.approx(1 / 2 + 1 / 2 * 2 / 3 + 1 / 2 * 1 / 2)  # stay after a success, else leave


def test_arms_that_cannot_be_pulled_are_worth_nothing():
    values = [refs.bernoulli_bandit(arms, 6) for arms in range(1, 9)]
    assert values[5] == values[6] == values[7]
    assert (np.diff(values[:6]) > 0).all()


def test_more_pulls_pay_more_but_never_more_than_the_best_arm():
    values = np.array([refs.bernoulli_bandit(3, pulls) for pulls in range(1, 13)])
    assert (np.diff(values) >= 1 / 2).all()
    assert (np.diff(values, 2) >= 0).all()  # what was learnt is used once more
    assert (values < 3 / 4 * np.arange(1, 13)).all()


@pytest.mark.parametrize("pulls", [1, 2, 5, 16])
def test_both_recursions_agree_on_two_arms(pulls):
    assert refs.two_armed_bandit(pulls) == pytest.approx(refs.bernoulli_bandit(2, pulls), rel=1e-12)


@pytest.mark.parametrize(("arms", "value"), [(5, 6.660), (10, 6.714), (50, 6.714)])
def test_ten_pulls(arms, value):
    assert refs.bernoulli_bandit(arms, 10) == pytest.approx(value, abs=5e-4)


def test_two_arms_hundred_pulls():
    assert refs.two_armed_regret(100) == pytest.approx(1.748, abs=5e-4)


@pytest.mark.parametrize(("means", "regret"), [(None, 1.21), ((0.1, 0.9), 0.62), ((0.25, 0.75), 1.00), ((0.4, 0.6), 2.30)])
def test_dependent_arms_hundred_pulls(means, regret):
    assert refs.dependent_arms_regret(100, means) == pytest.approx(regret, abs=0.015)  # the figures were simulated


@pytest.mark.parametrize("p", [0.6, 0.75, 0.9])
def test_two_hypotheses_cost_half_the_inverse_gap_in_the_long_run(p):
    """A random walk with drift errs 1 / (2 gap^2) times in all, gap = 2 p - 1, and each error costs the gap."""
    assert refs.dependent_arms_regret(1500, (p, 1 - p)) == pytest.approx(1 / (2 * (2 * p - 1)), rel=1e-8)


def all_arms_allowed(candidates, left, arms, high, low):
    """The informative-arm task by expectation over every target that is still possible, for every arm, sensible or not."""
    if not left:
        return 0.0
    best = 0.0
    for arm in range(arms + 1):
        pays = {t: (t + 1) / arms if arm == arms else (high if t == arm else low) for t in candidates}
        total = sum(pays.values())
        for seen in set(pays.values()):
            same = tuple(t for t in candidates if pays[t] == seen)
            total += len(same) * all_arms_allowed(same, left - 1, arms, high, low)
        best = max(best, total / len(candidates))
    return best


@pytest.mark.parametrize(("arms", "steps", "high", "low"), [(1, 2, 5, 1), (2, 2, 5, 1), (4, 3, 5, 1), (5, 4, 2, 1), (4, 3, 5, 0.3)])
def test_informative_arm_against_all_choices(arms, steps, high, low):
    expected = all_arms_allowed(tuple(range(arms)), steps, arms, high, low)
    assert refs.informative_arm(steps, arms, high, low) == pytest.approx(expected, rel=1e-12)


def test_informative_arm_is_that_of_the_environment():
    """Two pulls of four arms and the one that tells: ask, then take what pays 5. To try an arm at random is worth less."""
    environment = InformativeArm(arms=5)
    asked = np.mean([environment._task(good).means[-1] for good in range(1, 5)])
    assert refs.informative_arm(steps=2, arms=4) == pytest.approx(asked + 5)


def test_informative_arm_by_hand():
    assert refs.informative_arm() == pytest.approx(0.55 + 4 * 5)
    assert refs.informative_arm(steps=1) == pytest.approx((5 + 9 * 1) / 10)  # nothing to tell it for


def two_step_by_belief(first_is_good, left, common, high):
    """The greatest expected total, with both actions, both states and both outcomes tried at every belief."""
    if not left:
        return 0.0
    best = 0.0
    for action in (0, 1):
        total = 0.0
        for state, reward in itertools.product((0, 1), repeat=2):
            reach = common if state == action else 1 - common
            likelihood = [high if (state == good) == (reward == 1) else 1 - high for good in (0, 1)]
            joint = np.array([first_is_good, 1 - first_is_good]) * likelihood
            chance = joint.sum()
            total += reach * chance * (reward + two_step_by_belief(joint[0] / chance, left - 1, common, high))
        best = max(best, total)
    return best


@pytest.mark.parametrize(("common", "high"), [(0.75, 0.9), (0.8, 0.6), (0.5, 0.7)])
def test_two_step_against_all_choices(common, high):
    assert refs.two_step(4, common, high) == pytest.approx(two_step_by_belief(0.5, 4, common, high) / 4, rel=1e-12)


def test_two_step_figures():
    assert refs.two_step_ceiling() == pytest.approx(0.700)
    assert refs.two_step(100) == pytest.approx(0.697, abs=5e-4)
    assert refs.two_step(1) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: refs.bernoulli_bandit(0, 3),
        lambda: refs.two_armed_bandit(0),
        lambda: refs.dependent_arms_regret(3, (0.5, 1.5)),
        lambda: refs.dependent_arms_regret(3, ()),
        lambda: refs.informative_arm(steps=0),
        lambda: refs.two_step(10, common=0.3),
        lambda: refs.two_step_ceiling(high=0.2),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
