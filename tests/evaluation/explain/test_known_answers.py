"""The analyses on cases whose answers are known beforehand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.evaluation.explain.confidence import confidence_before
from rulax.evaluation.explain.divergence import divergence
from rulax.evaluation.explain.horizon import connected, donors_of, reach
from rulax.evaluation.explain.intervals import over_folds, over_groups
from rulax.evaluation.explain.probes import future, probe
from rulax.evaluation.explain.record import number_episodes
from rulax.evaluation.explain.reliance import reliance
from rulax.evaluation.explain.saliency import saliency


def squared(one, other):
    return jnp.sum(jnp.square(one - other), -1)


# -- intervals -----------------------------------------------------------------------------------------------------------------


def test_the_bootstrap_draws_whole_groups() -> None:
    """Copies of a group's value add no information: the interval is that of the groups, not of the copies."""
    values = np.random.default_rng(0).normal(size=40)
    once = over_groups(values, np.arange(40))
    copied = over_groups(np.repeat(values, 50), np.repeat(np.arange(40), 50))
    assert once["value"] == pytest.approx(values.mean())
    assert (copied["low"], copied["high"]) == pytest.approx((once["low"], once["high"]))
    half = 1.96 * values.std() / 40**0.5
    assert once["high"] - once["low"] == pytest.approx(2 * half, rel=0.15)


def test_the_interval_of_folds_is_students() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.array([0.1, 0.3, 0.2, 0.5, 0.4])
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    found = over_folds(values)
    assert (found["low"], found["high"]) == pytest.approx((low, high), rel=1e-3)


# -- confidence ----------------------------------------------------------------------------------------------------------------


def test_confidence_finds_a_planted_rise_and_stays_inside_of_episodes() -> None:
    rng = np.random.default_rng(1)
    length, streams, period = 240, 8, 12
    time = np.arange(length)[:, None] % period
    first = np.concatenate([np.broadcast_to(time == 0, (length, streams)), np.ones((1, streams), bool)])
    episode = number_episodes(first)
    wins = rng.random((length, streams)) < 0.5
    reward = np.where(time == period - 1, np.where(wins, 1.0, -1.0), 0.0)
    known = np.where(reward[np.minimum(np.arange(length)[:, None] + 2, length - 1), np.arange(streams)] > 0, 5.0, 0.0)
    level = np.where(time == period - 3, known, 0.0) + 0.1 * rng.normal(size=(length, streams))
    found = confidence_before(level, reward, episode, np.ones_like(reward, bool), back=20)
    assert found["usual_reward"] == 0
    won, lost = (found["kinds"][kind]["rows"] for kind in ("more", "less"))
    assert len(won) == period  # further back is another episode
    assert np.argmax([row["value"] for row in won]) == 2
    assert won[2]["value"] * found["deviation"] + found["mean"] == pytest.approx(5, abs=0.1)
    assert won[2]["low"] > 3
    assert max(abs(row["value"] - lost[0]["value"]) for row in lost) < 0.3


def test_no_reward_stands_out() -> None:
    ones = np.ones((50, 2))
    assert confidence_before(ones, ones, np.zeros((50, 2), int), ones > 0)["kinds"] == {}


# -- probes --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted() -> dict:
    rng = np.random.default_rng(0)
    number = 1000
    hidden, noise = rng.normal(size=(2, number))
    low_rank = rng.normal(size=(number, 9)) * 0.3
    wide = np.concatenate([hidden[:, None], low_rank], 1) @ rng.normal(size=(10, 120))
    targets = np.stack([hidden + noise, 2 * hidden, np.abs(hidden), rng.normal(size=number), np.zeros(number), hidden], 1)
    targets[:-100, 5] = np.nan
    features = {"wide": wide, "narrow": hidden[:, None], "noise": rng.normal(size=(number, 100))}
    return probe(features, targets, np.repeat(np.arange(number // 10), 10))


@pytest.mark.parametrize("source", ["wide", "narrow"])
def test_probes_find_what_was_planted(planted: dict, source: str) -> None:
    half, whole, bent, nothing, constant, few = planted[source]
    assert half["value"] == pytest.approx(0.5, abs=0.08)
    assert half["low"] < 0.5 < half["high"]
    assert whole["value"] > 0.99
    assert nothing["value"] == pytest.approx(0, abs=0.05)
    assert constant is None  # nothing varies
    assert few is None  # too few pairs
    if source == "narrow":
        assert bent["value"] > 0.9  # no straight line finds |x|


def test_probes_find_nothing_in_noise(planted: dict) -> None:
    assert all(abs(score["value"]) < 0.08 for score in planted["noise"][:4])


def test_probes_do_not_learn_episodes_by_heart() -> None:
    """A feature that names the episode explains everything in it, and nothing of another one."""
    rng = np.random.default_rng(2)
    episode = np.repeat(np.arange(60), 10)
    names = np.eye(60)[episode]
    target = rng.normal(size=60)[episode][:, None]
    assert probe({"names": names}, target, episode)["names"][0]["value"] < 0.05


def test_the_future_is_of_the_same_episode() -> None:
    episode = np.array([0, 0, 0, 1, 1])[:, None]
    found = future(np.arange(5.0)[:, None], episode, 1)[:, 0]
    np.testing.assert_array_equal(found, [1, 2, np.nan, 4, np.nan])


# -- horizon -------------------------------------------------------------------------------------------------------------------


def discounted(decay, values):
    """x_t + decay x_{t+1} + ..., over T of the T + 1 states."""

    def step(total, value):
        total = value + decay * total
        return total, total

    return {"sum": jax.lax.scan(step, jnp.zeros_like(values[0]), values, reverse=True)[1][:-1]}


def test_the_horizon_of_a_discounted_sum_is_its_discount() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(13, 5, 2)).astype(np.float32)
    donors = values + 1.0
    ends = np.zeros((12, 5), bool)
    rows = reach(discounted, jnp.float32(0.8), values, donors, ends, furthest=8, distance=squared)["sum"]
    np.testing.assert_allclose([row["value"] for row in rows], [2 * 0.8 ** (2 * k) for k in range(9)], rtol=1e-3)


def test_pairs_across_an_end_do_not_count() -> None:
    ends = np.array([[False], [True], [False]])
    found = connected(ends)[:, :, 0]  # [state, step]
    expected = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]], bool)
    np.testing.assert_array_equal(found, expected)


def test_donors_are_other_streams() -> None:
    values = np.arange(4)[None].repeat(3, 0)
    assert np.all(donors_of(values, 3) != values)


@pytest.mark.parametrize("size", [1e-6, 1e-4, 1e-2, 0.1, 1.0, 30.0])
def test_small_divergences_are_exact_in_single_precision(size: float) -> None:
    rng = np.random.default_rng(4)
    before = (3 * rng.normal(size=(20, 600))).astype(np.float32)
    after = before + (size * rng.normal(size=before.shape)).astype(np.float32)
    old, new = (np.float64(x) - np.log(np.exp(np.float64(x)).sum(-1, keepdims=True)) for x in (before, after))
    expected = np.sum(np.exp(old) * (old - new), -1)
    # Logits of size 10 are known to 1e-6, so a change of 1e-6 is known to its order of magnitude at best.
    np.testing.assert_allclose(divergence(before, after), expected, rtol=1e-3 if size > 1e-3 else 0.02 if size > 1e-5 else 1)
    assert np.min(divergence(before, after)) >= 0


# -- reliance ------------------------------------------------------------------------------------------------------------------


def two_inputs(operands, parts):
    del operands
    return {"policy": jnp.stack([parts["used"], jnp.zeros_like(parts["used"])], -1) + 0 * parts["ignored"][..., None]}


def test_reliance_is_the_divergence_from_the_blanked_target() -> None:
    used = np.full((4, 3), 2.0, np.float32)
    parts = {"used": used, "ignored": used}
    found = reliance(two_inputs, (), parts, {"a": ("used",), "b": ("ignored",)}, np.ones((4, 3), bool))
    share = 1 / (1 + np.exp(-2.0))
    expected = share * np.log(share / 0.5) + (1 - share) * np.log((1 - share) / 0.5)
    assert found["a"]["policy"]["value"] == pytest.approx(expected, rel=1e-5)
    assert found["b"]["policy"]["value"] == 0


# -- saliency ------------------------------------------------------------------------------------------------------------------


def linear(operands, inputs):
    return {"target": inputs["x"] @ operands + 0 * jnp.sum(inputs["ignored"]), "other": inputs["ignored"]}


def test_saliency_of_a_linear_map_is_its_norm_times_the_deviations() -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(6, 5, 4)) * [1, 2, 3, 0]).astype(np.float32)
    matrix = rng.normal(size=(4, 7)).astype(np.float32)
    found = saliency(linear, matrix, {"x": x, "ignored": x}, jax.random.key(0), probes=300)["target"]
    centred = matrix - matrix.mean(1, keepdims=True)
    expected = np.sqrt(np.sum((centred * x.std((0, 1))[:, None]) ** 2) / 7)
    assert found["x"]["value"] == pytest.approx(expected, rel=0.05)
    assert found["ignored"]["value"] == 0
