"""Classical bandit policies: exact values by enumeration, indices against bisection, and figures computed elsewhere."""

from functools import cache

import numpy as np
import pytest

from rulax.evaluation import references as refs

POLICIES = {"greedy": refs.greedy, "ucb": refs.ucb1(0.3), "random": refs.random_arms, "gittins": refs.gittins(6)}


def exact_value(policy, arms, pulls):
    """Expected total reward under uniform means of a policy that draws no random numbers but to break ties."""

    @cache
    def value(state):
        counts = np.array(state)
        left = pulls - counts.sum()
        if not left:
            return 0.0
        liked = policy(counts[None, :, 0], counts[None, :, 1], left, None)[0]
        total = 0.0
        for arm in (equals := np.flatnonzero(liked == liked.max())):
            others, (wins, losses) = state[:arm] + state[arm + 1 :], state[arm]
            mean = (wins + 1) / (wins + losses + 2)
            won, lost = (tuple(sorted((*others, each))) for each in ((wins + 1, losses), (wins, losses + 1)))
            total += mean * (1 + value(won)) + (1 - mean) * value(lost)
        return total / len(equals)

    return value(((0, 0),) * arms)


def estimate(policy, arms, pulls, tasks, seed=0):
    """Expected total reward and its standard error, from regrets, as the docstring of `play` advises."""
    means = np.random.default_rng(1000 + seed).random((tasks, arms))
    regret = pulls * means.max(1) - refs.play_bandits(policy, means, pulls, seed)
    return pulls * arms / (arms + 1) - regret.mean(), regret.std() / tasks**0.5


@pytest.mark.parametrize("name", POLICIES)
def test_playing_gives_what_enumeration_says(name):
    value, error = estimate(POLICIES[name], 3, 6, 40_000)
    assert error < 0.01
    assert value == pytest.approx(exact_value(POLICIES[name], 3, 6), abs=4 * error)


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_beats_the_optimum(name):
    for arms in (2, 4):
        assert exact_value(POLICIES[name], arms, 6) <= refs.bernoulli_bandit(arms, 6) + 1e-12


def test_gittins_is_optimal_in_ten_pulls_and_greed_is_not():
    best = refs.bernoulli_bandit(5, 10)
    assert exact_value(refs.gittins(10), 5, 10) == pytest.approx(best, rel=1e-12)
    assert exact_value(refs.greedy, 5, 10) == pytest.approx(6.62, abs=0.02)
    measured, error = estimate(refs.gittins(10), 5, 10, 40_000)
    assert measured == pytest.approx(6.659, abs=3 * error)


@pytest.mark.parametrize(
    ("policy", "value", "rounding"),
    [
        (refs.gittins(100), 78.60, 0.05),
        (refs.ucb1(0.2), 78.5, 0.1),
        (refs.thompson, 75.1, 0.05),
        (refs.greedy, 75.8, 0.05),
        (refs.random_arms, 50.0, 0.0),
    ],
    ids=["gittins", "ucb1", "thompson", "greedy", "random"],
)
def test_hundred_pulls_of_five_arms(policy, value, rounding):
    measured, error = estimate(policy, 5, 100, 12_000)
    assert error < 0.15
    assert measured == pytest.approx(value, abs=3 * error + rounding)


def test_wangs_two_arms():
    regrets = {}
    for name, policy in {
        "gittins": refs.gittins(100),
        "greedy": refs.greedy,
        "thompson": refs.thompson,
        "ucb": refs.ucb1(1.0),
    }.items():
        value, error = estimate(policy, 2, 100, 12_000, seed=3)
        regrets[name] = (200 / 3 - value, error)
    for name, expected in {"gittins": 1.752, "greedy": 2.68, "ucb": 5.47}.items():
        assert regrets[name][0] == pytest.approx(expected, abs=4 * regrets[name][1] + 0.005)
    assert refs.two_armed_regret(100) < regrets["gittins"][0] + 3 * regrets["gittins"][1]
    assert regrets["gittins"][0] < regrets["thompson"][0] < regrets["ucb"][0]


def test_thompson_pulls_an_arm_as_often_as_it_is_the_best():
    """With Beta(3, 1) against Beta(1, 1): P(first > second) = E[first] = 3/4."""
    wins, losses = np.tile([2, 0], (50_000, 1)), np.zeros((50_000, 2), int)
    drawn = refs.thompson(wins, losses, 1, np.random.default_rng(0))
    assert (drawn[:, 0] > drawn[:, 1]).mean() == pytest.approx(3 / 4, abs=4 * (3 / 16 / 50_000) ** 0.5)


def test_epsilon_greedy_stands_between_its_ends():
    means = np.tile([0.2, 0.9], (4000, 1))
    totals = [refs.play_bandits(refs.epsilon_greedy(e), means, 40, 1).mean() for e in (0.0, 0.3, 1.0)]
    assert totals[2] == pytest.approx(40 * 0.55, abs=4 * 0.35 * 40**0.5 / 4000**0.5)
    assert totals[0] > totals[1] > totals[2]


@pytest.mark.parametrize("policy", [refs.greedy, refs.thompson, refs.ucb1(0.2)], ids=["greedy", "thompson", "ucb1"])
def test_the_order_of_arms_does_not_matter(policy):
    means = np.tile([0.3, 0.5, 0.8], (8000, 1))
    forward, backward = (refs.play_bandits(policy, each, 30, seed) for seed, each in enumerate((means, means[:, ::-1])))
    assert forward.mean() == pytest.approx(backward.mean(), abs=4 * (forward.var() / 4000) ** 0.5)


def test_a_seed_fixes_the_result_and_certain_arms_are_found():
    means = np.tile([0.0, 1.0], (100, 1))
    first, again, other = (refs.play_bandits(refs.greedy, means, 10, seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert set(first) == {9.0, 10.0}  # at most one failure before the arm that always pays


def going_on(payment, wins, losses, left):
    """The value of pulling once and then as long as it pays, by plain recursion."""
    if not left:
        return 0.0
    mean = (wins + 1) / (wins + losses + 2)
    won, lost = (max(going_on(payment, *each, left - 1), 0.0) for each in ((wins + 1, losses), (wins, losses + 1)))
    return mean - payment + mean * won + (1 - mean) * lost


@pytest.mark.parametrize("state", [(0, 0), (1, 0), (0, 1), (2, 1), (0, 4), (3, 0)])
def test_indices_against_bisection(state):
    for left in (1, 2, 5):
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if going_on(middle, *state, left) > 0 else (low, middle)
        assert refs.gittins_indices(12)[left - 1][state] == pytest.approx(low, abs=2e-4)


def test_index_of_two_pulls_is_known():
    """Go on after a success only: (m + m m+) / (1 + m), with m+ the mean after it."""
    table = refs.gittins_indices(20)[1]
    for wins, losses in ((0, 0), (4, 2), (1, 9)):
        mean, after = (wins + 1) / (wins + losses + 2), (wins + 2) / (wins + losses + 3)
        assert table[wins, losses] == pytest.approx((mean + mean * after) / (1 + mean), abs=1e-4)


def test_indices_rise_with_successes_and_time_and_exceed_the_mean():
    tables = refs.gittins_indices(30)
    for left, table in enumerate(tables, 1):
        size = 30 - left + 1
        s, f = np.ogrid[:size, :size]
        real = s + f < size
        mean = (s + 1) / (s + f + 2)
        assert (table >= mean - 1e-12)[real].all()
        assert (np.diff(table, axis=0) > 0)[real[1:]].all()
        assert (np.diff(table, axis=1) < 0)[real[:, 1:]].all()
        if left == 1:
            np.testing.assert_allclose(table[real], mean[real], rtol=1e-12)
        else:
            assert (table >= tables[left - 2][:size, :size] - 1e-12)[real].all()


def test_twice_as_many_levels_hardly_move_the_indices():
    for few, many in zip(refs.gittins_indices(60), refs.gittins_indices(60, 512), strict=True):
        assert np.abs(few - many)[np.add.outer(*[np.arange(len(few))] * 2) < len(few)].max() < 1e-3


@pytest.mark.parametrize(
    "call",
    [
        lambda: refs.play_bandits(refs.greedy, np.array([0.1, 0.2]), 3, 0),
        lambda: refs.play_bandits(refs.greedy, np.array([[0.1, 1.2]]), 3, 0),
        lambda: refs.play_bandits(refs.greedy, np.array([[0.1, np.nan]]), 3, 0),
        lambda: refs.play_bandits(refs.greedy, np.array([[0.1, 0.2]]), 0, 0),
        lambda: refs.play_bandits(refs.gittins(5), np.array([[0.1, 0.2]]), 6, 0),
        lambda: refs.epsilon_greedy(2.0),
        lambda: refs.ucb1(-1.0),
        lambda: refs.gittins(0),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match=r"must|these indices"):
        call()
