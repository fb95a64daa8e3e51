"""Statistics against scipy, brute force, closed forms, and intervals against what they promise."""

import itertools

import numpy as np
import pytest

from rulax.evaluation import statistics as st

stats = pytest.importorskip("scipy.stats")
RNG = np.random.default_rng(7)
SCORES, OTHERS = RNG.normal(1.0, 1.0, (6, 9)), RNG.normal(0.5, 2.0, (4, 9))


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (5, 3), (4, 4), (7, 11)])
def test_iqm_is_scipys_trimmed_mean(shape):
    scores = np.random.default_rng(shape).normal(size=(2, *shape))
    expected = [stats.trim_mean(each.ravel(), 0.25) for each in scores]
    np.testing.assert_allclose(st.interquartile_mean(scores), expected, rtol=1e-12)


def test_known_answers():
    scores = np.array([[0.0, 2.0, 1.0], [1.0, 4.0, 1.0]])  # means over seeds 0.5, 3, 1
    assert st.mean(scores) == 1.5
    assert st.median(scores) == 1.0
    assert st.interquartile_mean(scores) == 1.25  # 0 | 1 1 1 2 | 4
    assert st.optimality_gap(scores) == pytest.approx(1 / 6)  # only the run with 0 misses
    assert st.optimality_gap(scores, goal=3.0) == pytest.approx(3 - (0 + 2 + 1 + 1 + 3 + 1) / 6)
    np.testing.assert_allclose(st.performance_profile(scores, np.array([-1.0, 0.0, 1.0, 3.9, 4.0])), [1, 5 / 6, 2 / 6, 1 / 6, 0])


def test_profile_counts():
    thresholds = np.linspace(-2, 3, 17)
    brute = [[(each > level).mean() for level in thresholds] for each in (SCORES, SCORES + 1)]
    np.testing.assert_allclose(st.performance_profile(np.stack([SCORES, SCORES + 1]), thresholds), brute)


def test_probability_of_improvement_is_mann_whitneys():
    for mine, theirs in ((SCORES, OTHERS), (SCORES.round(), OTHERS.round())):  # the second has ties
        expected = [stats.mannwhitneyu(mine[:, e], theirs[:, e]).statistic / (6 * 4) for e in range(9)]
        assert st.probability_of_improvement(mine, theirs) == pytest.approx(np.mean(expected))
    assert st.probability_of_improvement(SCORES, SCORES) == 0.5
    assert st.probability_of_improvement(SCORES + 100, OTHERS) == 1.0


@pytest.mark.parametrize("number", [1, 3, 8, 25])
def test_signed_rank_is_wilcoxons(number):
    differences = np.random.default_rng(number).normal(0.4, 1.0, number)
    assert st.signed_rank_test(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


def test_signed_rank_with_ties_is_all_flips():
    differences = np.array([1.0, 1.0, -2.0, 2.0, 3.0, 0.0, -1.0, 4.0])
    kept = differences[differences != 0]
    rank = stats.rankdata(np.abs(kept))
    sums = np.array([rank[np.array(signs) > 0].sum() for signs in itertools.product((-1, 1), repeat=len(kept))])
    seen = rank[kept > 0].sum()
    expected = min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))
    assert st.signed_rank_test(differences) == pytest.approx(expected)


def test_flip_test_is_scipys_permutation_test_and_near_the_t_test():
    few = np.random.default_rng(3).normal(0.5, 1.0, 9)
    ours = st.paired_test(few[:, None], np.zeros((9, 1)))
    theirs = stats.permutation_test(
        (few,), lambda x, axis: x.mean(axis), permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert ours.p_mean == pytest.approx(theirs.pvalue)
    assert (ours.pairs, ours.difference) == (9, pytest.approx(few.mean()))
    many = np.random.default_rng(4).normal(0.06, 1.0, (20, 10))
    ours = st.paired_test(many, np.zeros_like(many))
    expected = stats.ttest_rel(many.ravel(), np.zeros(200)).pvalue
    assert 0.01 < expected < 0.5
    assert ours.p_mean == pytest.approx(expected, abs=0.01)
    assert st.paired_test(many + 5, np.zeros_like(many)).p_mean == pytest.approx(1 / 20_001)


def test_pairs_without_a_number_are_left_out():
    test = st.paired_test(np.array([[1.0, np.nan], [2.0, 3.0]]), np.zeros((2, 2)))
    assert (test.pairs, test.difference) == (3, 2.0)
    assert st.paired_test(np.full((2, 1), np.nan), np.zeros((2, 1))).pairs == 0


def test_a_resample_stays_in_its_environment():
    scores = np.arange(12.0).reshape(4, 3)
    drawn = st.resample(scores, 500, np.random.default_rng(0))
    assert drawn.shape == (500, 4, 3)
    for environment in range(3):
        assert set(np.unique(drawn[..., environment])) == set(scores[:, environment])
    assert (drawn[..., 0] != drawn[..., 1] - 1).any()  # environments are drawn independently


def test_bootstrap_of_a_mean_has_its_closed_form():
    """The bootstrap variance of the mean over strata is the sum of plug-in variances over S E^2."""
    low, high = st.interval(st.mean, SCORES, resamples=20_000, confidence=0.6827)[1:]
    expected = np.sqrt((SCORES.var(0) / 6).sum()) / 9
    assert (high - low) / 2 == pytest.approx(expected, rel=0.04)


def test_intervals_are_repeatable_and_of_every_shape():
    one, other = st.interval(st.interquartile_mean, SCORES), st.interval(st.interquartile_mean, SCORES)
    assert one == other
    assert one.low < one.value < one.high
    profile = st.interval(lambda scores: st.performance_profile(scores, np.linspace(0, 2, 5)), SCORES, resamples=200)
    assert profile.low.shape == profile.high.shape == (5,)
    assert (profile.low <= profile.value).all()
    against = st.interval(st.probability_of_improvement, SCORES, OTHERS)
    assert against.low < against.value < against.high
    single = st.interval(st.mean, SCORES[:1])
    assert single.value == SCORES[:1].mean()
    assert np.isnan([single.low, single.high]).all()


@pytest.mark.parametrize(("seeds", "least", "most"), [(3, 0.75, 0.88), (5, 0.83, 0.93), (10, 0.88, 0.97)])
def test_coverage(seeds, least, most):
    """Of 95 % intervals, with few seeds fewer hold the truth; docs/compare.md gives these figures."""
    generator = np.random.default_rng(seeds)
    truth = np.linspace(0, 1, 8)
    found = 0
    for trial in range(400):
        scores = truth + generator.normal(size=(seeds, 8))
        result = st.interval(st.mean, scores, resamples=400, seed=trial)
        found += bool(result.low <= truth.mean() <= result.high)
    assert least <= found / 400 <= most


def test_what_is_said_about_too_few():
    assert st.too_few(5, 2) == []
    assert "no intervals" in st.too_few(1, 9)[0]
    assert "too few to tell" in st.too_few(2, 9)[0]
    assert "too narrow" in st.too_few(4, 9)[0]
    assert any("3 runs in total" in text for text in st.too_few(3, 1))
    assert not any("in total" in text for text in st.too_few(4, 1))


def test_normalisation():
    scores = st.normalise(np.array([[1.0, -200.0], [3.0, -100.0]]), np.array([1.0, -200.0]), np.array([2.0, -100.0]))
    np.testing.assert_array_equal(scores, [[0, 0], [2, 1]])
    with pytest.raises(ValueError, match="no better than random"):
        st.normalise(np.ones((2, 2)), np.zeros(2), np.array([1.0, 0.0]))


def test_sample_efficiency():
    steps = np.array([10, 20, 40])
    returns = np.array([[0.0, np.nan, 1.0, np.nan], [1.0, 2.0, 1.0, np.nan], [1.0, 4.0, 1.0, np.nan]])
    np.testing.assert_allclose(st.area_under_curve(steps, returns), [(5 + 20) / 30, 3.0, 1.0, np.nan])
    np.testing.assert_array_equal(st.steps_to_threshold(steps, returns, 1.0), [20, 20, 10, np.inf])
    np.testing.assert_array_equal(st.steps_to_threshold(steps, returns, 3.0), [np.inf, 40, np.inf, np.inf])


def test_as_rliable():
    """Figures that rliable 1.2.0 gave for these arrays (4,000 resamples; 500 for the profile): values equal, intervals nearly."""
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(1, 0.5, (5, 12)) + np.linspace(-0.5, 0.5, 12), 3)
    y = np.round(rng.normal(0.8, 0.5, (5, 12)), 3)
    figures = {
        st.interquartile_mean: (1.04993333, 0.9260325, 1.179205),
        st.median: (1.1596, 0.9104925, 1.26201),
        st.mean: (1.03865, 0.93076833, 1.14293583),
        st.optimality_gap: (0.2138, 0.15149833, 0.28137667),
    }
    for statistic, (value, low, high) in figures.items():
        ours = st.interval(statistic, x, resamples=4000)
        assert ours.value == pytest.approx(value, abs=1e-7)
        np.testing.assert_allclose([ours.low, ours.high], [low, high], atol=0.012)
    ours = st.interval(st.probability_of_improvement, x, y, resamples=4000)
    assert ours.value == pytest.approx(0.60333333)
    np.testing.assert_allclose([ours.low, ours.high], [0.50333333, 0.7], atol=0.012)
    profile = st.performance_profile(x, np.array([0.0, 0.5, 1.0, 1.5]))
    np.testing.assert_allclose(profile, [0.98333333, 0.83333333, 0.56666667, 0.26666667], atol=1e-8)
