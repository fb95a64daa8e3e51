"""Planners for random MDPs: every policy of tiny ones, closed forms, conjugate posteriors, and figures computed elsewhere."""

import itertools

import numpy as np
import pytest

from rulax.evaluation import references as refs


def best_of_all_policies(rewards, transitions, horizon):
    """The greatest expected reward from state 0 among all tables from (step, state) to an action."""
    states, actions = rewards.shape
    best = -np.inf
    for table in itertools.product(range(actions), repeat=horizon * states):
        where, total = np.eye(states)[0], 0.0
        for step in np.array(table).reshape(horizon, states):
            total += where @ rewards[np.arange(states), step]
            where = where @ transitions[np.arange(states), step]
        best = max(best, total)
    return best


@pytest.mark.parametrize(("states", "actions", "horizon"), [(2, 2, 1), (2, 2, 3), (3, 2, 3), (2, 3, 2)])
def test_value_iteration_finds_the_best_policy(states, actions, horizon):
    mdps = refs.sample_mdps(3, states, actions, seed=4)
    expected = [best_of_all_policies(*each, horizon) for each in zip(*mdps, strict=True)]
    np.testing.assert_allclose(refs.value_iteration(mdps, horizon)[0, :, 0].max(-1), expected, rtol=1e-12)


def test_one_state_is_a_bandit():
    mdps = refs.sample_mdps(50, states=1, seed=0)
    np.testing.assert_allclose(refs.oracle(mdps, episodes=3, horizon=7), 21 * mdps.rewards[:, 0].max(-1))


def test_who_knows_the_mdp_gets_what_the_oracle_says():
    mdps = refs.sample_mdps(4000, 4, 3, seed=1)
    knows = refs.value_iteration(mdps, 5)
    gap = refs.oracle(mdps, 6, 5) - refs.play_mdps(lambda *_: knows, mdps, 6, 5, seed=2)
    assert gap.mean() == pytest.approx(0.0, abs=4 * gap.std() / 4000**0.5)


def test_values_are_bounded_and_more_steps_pay_more_per_step():
    mdps = refs.sample_mdps(40, seed=8)
    values = np.array([refs.value_iteration(mdps, h)[0].max(-1) for h in (1, 2, 5, 10)])  # [4, N, S]
    assert (np.diff(values.mean((1, 2)) / (1, 2, 5, 10)) > 0).all()
    assert (values[3] <= 10 * mdps.rewards.max((1, 2))[:, None]).all()


def recorded(mdps, episodes):
    """What a planner is shown before each episode."""
    shown = []

    def spy(seen, horizon, rng):
        shown.append(refs.Evidence(seen.rewards.copy(), seen.transitions.copy()))
        return refs.random_actions(seen, horizon, rng)

    refs.play_mdps(spy, mdps, episodes, 10, seed=0)
    return shown


def test_every_step_is_seen_once():
    shown = recorded(refs.sample_mdps(30, seed=3), 4)
    for episode, seen in enumerate(shown):
        np.testing.assert_array_equal(seen.transitions.sum((1, 2, 3)), 10 * episode)
        assert (seen.transitions[:, 0].sum((1, 2)) >= episode).all()  # every episode starts in state 0
        assert (seen.rewards[seen.transitions.sum(-1) == 0] == 0).all()


def test_counts_and_rewards_follow_the_mdp():
    mdps = refs.MDPs(np.tile(np.arange(4.0).reshape(2, 2), (2000, 1, 1)), np.tile([[0.9, 0.1], [0.4, 0.6]], (2000, 2, 1, 1)))
    seen = recorded(mdps, 5)[-1]
    count = seen.transitions.sum((0, 3))
    np.testing.assert_allclose(seen.transitions.sum(0)[..., 1] / count, [[0.1, 0.6], [0.1, 0.6]], atol=4 * 0.5 / count.min() ** 0.5)
    np.testing.assert_allclose(seen.rewards.sum(0) / count, [[0, 1], [2, 3]], atol=4 / count.min() ** 0.5)


def test_posterior_mean_by_hand():
    """Two states, one action, seen three times from state 0 (to 1, 1 and 0) with rewards adding up to 5: one step, then two."""
    seen = refs.Evidence(np.array([[[5.0], [0.0]]]), np.array([[[[1.0, 2.0]], [[0.0, 0.0]]]]))
    q = refs.posterior_mean_greedy(reward_mean=3.0)(seen, 2, np.random.default_rng(0))
    first, second = (3 + 5) / 4, 3.0
    np.testing.assert_allclose(q[1, 0, :, 0], [first, second])
    np.testing.assert_allclose(q[0, 0, 0, 0], first + 2 / 5 * first + 3 / 5 * second)


def test_posterior_samples_have_the_posteriors_moments():
    size = 40_000
    seen = refs.Evidence(np.tile([[[5.0], [0.0]]], (size, 1, 1)), np.tile([[[[1.0, 2.0]], [[0.0, 0.0]]]], (size, 1, 1, 1)))
    q = refs.psrl(reward_mean=3.0)(seen, 2, np.random.default_rng(0))
    last = q[1, :, :, 0]
    np.testing.assert_allclose(last.mean(0), [2.0, 3.0], atol=0.02)
    np.testing.assert_allclose(last.std(0), [0.5, 1.0], rtol=0.02)
    to_second = ((q[0] - q[1])[:, 0, 0] - last[:, 0]) / (last[:, 1] - last[:, 0])  # the drawn P(1 | 0) ~ Beta(3, 2)
    assert to_second.mean() == pytest.approx(3 / 5, abs=0.005)
    assert to_second.var() == pytest.approx(3 * 2 / (25 * 6), rel=0.03)


def test_optimism_is_the_greatest_of_the_draws():
    seen = recorded(refs.sample_mdps(20, 3, 2, seed=3), 3)[-1]
    draw, rng = refs.psrl(0.5), np.random.default_rng(7)
    draws = [draw(seen, 4, rng) for _ in range(5)]
    np.testing.assert_array_equal(refs.optimistic_psrl(5, 0.5)(seen, 4, np.random.default_rng(7)), np.max(draws, 0))


def test_certainty_makes_all_planners_oracles():
    mdps = refs.sample_mdps(20, 4, 3, seed=5)
    many = 1e8
    seen = refs.Evidence(many * mdps.rewards, many * mdps.transitions)
    for planner in (refs.posterior_mean_greedy(), refs.psrl(), refs.optimistic_psrl(3)):
        np.testing.assert_allclose(planner(seen, 6, np.random.default_rng(0)), refs.value_iteration(mdps, 6), atol=5e-3)


@pytest.fixture(scope="module")
def tasks():
    return refs.sample_mdps(4000, seed=21)


def test_oracle_figure(tasks):
    value = refs.oracle(tasks)
    assert value.mean() == pytest.approx(218.5, abs=3 * value.std() / 4000**0.5)


@pytest.mark.parametrize(
    ("planner", "figure", "its_error"),
    [
        (refs.random_actions, 100.1, 0.5),
        (refs.posterior_mean_greedy(1.0), 150.0, 0.6),
        (refs.psrl(0.0), 138.1, 0.6),
        (refs.psrl(1.0), 133.9, 0.6),
    ],
    ids=["random", "greedy", "psrl, prior mean 0", "psrl"],
)
def test_figures_of_ten_episodes(tasks, planner, figure, its_error):
    """Measured as the gap to the oracle on the same MDPs; the figures themselves come from 1000 to 1500 MDPs."""
    gap = refs.oracle(tasks) - refs.play_mdps(planner, tasks, seed=6)
    assert 218.4 - gap.mean() == pytest.approx(figure, abs=3 * (gap.var() / 4000 + its_error**2) ** 0.5)


def test_the_prior_mean_that_is_too_low_helps_posterior_sampling_but_not_greed(tasks):
    few = refs.MDPs(tasks.rewards[:1500], tasks.transitions[:1500])
    low, true = (
        [refs.play_mdps(make(mean), few, seed=2) for make in (refs.psrl, refs.posterior_mean_greedy)] for mean in (0.0, 1.0)
    )
    assert (low[0] - true[0]).mean() > 1.0
    assert (true[1] - low[1]).mean() > 15.0


def test_greedy_explores_more_when_it_plans_at_every_step(tasks):
    few = refs.MDPs(tasks.rewards[:1000], tasks.transitions[:1000])
    seldom, often = (refs.play_mdps(refs.posterior_mean_greedy(), few, seed=2, plan_every=every) for every in (10, 1))
    gain = often - seldom
    assert gain.mean() == pytest.approx(8.8, abs=3 * (gain.var() / 1000 + 0.4**2) ** 0.5)
    default = refs.play_mdps(refs.posterior_mean_greedy(), few, seed=2)
    np.testing.assert_array_equal(default, seldom)


def test_planning_anew_changes_nothing_for_who_knows():
    mdps = refs.sample_mdps(3000, 4, 3, seed=1)
    knows = [refs.value_iteration(mdps, h) for h in range(1, 6)]
    totals = [refs.play_mdps(lambda seen, h, rng: knows[h - 1], mdps, 2, 5, seed=2, plan_every=every) for every in (1, 2, 5)]
    gap = refs.oracle(mdps, 2, 5) - np.array(totals)
    np.testing.assert_allclose(gap.mean(1), 0.0, atol=4 * gap.std() / 3000**0.5)


def test_planners_are_told_how_many_steps_are_left():
    asked = []

    def spy(seen, horizon, rng):
        asked.append(horizon)
        return refs.random_actions(seen, horizon, rng)

    refs.play_mdps(spy, refs.sample_mdps(2, seed=0), 2, 5, seed=0, plan_every=2)
    assert asked == [5, 3, 1] * 2


def test_equals_are_treated_alike_until_the_next_plan():
    """One state and equal Q-values: the same action throughout an episode, every action over many tasks."""
    mdps = refs.MDPs(np.tile(np.arange(4.0), (400, 1, 1)), np.ones((400, 1, 4, 1)))
    total = refs.play_mdps(lambda seen, h, rng: np.zeros((h, 400, 1, 4)), mdps, 1, 5, seed=0)
    values, counts = np.unique(total, return_counts=True)
    np.testing.assert_array_equal(values, [0, 5, 10, 15])
    assert counts.min() > 60


def test_optimistic_figure(tasks):
    """Published for RL^2's tasks: 144.1 (1000 MDPs), with ten draws and prior mean 0."""
    few = refs.MDPs(tasks.rewards[:1000], tasks.transitions[:1000])
    gap = refs.oracle(few) - refs.play_mdps(refs.optimistic_psrl(10, 0.0), few, seed=2)
    assert 218.4 - gap.mean() == pytest.approx(144.1, abs=3 * (gap.var() / 1000 + 0.75**2) ** 0.5)


def test_a_seed_fixes_tasks_and_play():
    first, again = (refs.sample_mdps(5, seed=9) for _ in range(2))
    np.testing.assert_array_equal(first.transitions, again.transitions)
    np.testing.assert_allclose(first.transitions.sum(-1), 1.0)
    totals = [refs.play_mdps(refs.psrl(), first, 2, seed=seed) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(totals[0], totals[1])
    assert (totals[0] != totals[2]).any()


def test_nonsense_is_refused():
    mdps = refs.sample_mdps(2, seed=0)
    for call in (
        lambda: refs.value_iteration(mdps, 0),
        lambda: refs.play_mdps(refs.psrl(), mdps, episodes=0, seed=0),
        lambda: refs.play_mdps(refs.psrl(), mdps, seed=0, plan_every=0),
        lambda: refs.optimistic_psrl(0),
    ):
        with pytest.raises(ValueError, match="must be at least 1"):
            call()
