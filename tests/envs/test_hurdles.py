"""Hurdles: motion against closed forms, the ground against what its numbers say, mutations against a list of all neighbours."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.hurdles import CELL, DEPTH, LENGTH, LIDAR, OBSTACLES, ROUGHER, ROUGHEST, SLOT, SLOTS, Hurdles, HurdlesState
from rulax.envs.hurdles import make_ground as ground_of
from rulax.envs.render import render

ENVIRONMENT = Hurdles()
STEP = jax.jit(ENVIRONMENT.step)
MUTATE = jax.jit(jax.vmap(ENVIRONMENT.mutate, (None, 0)))
GROUNDS = jax.jit(jax.vmap(ground_of, (None, 0)))
KEY = jax.random.key(0)
NODES = SLOT * SLOTS + int(LIDAR.max()) + 2


def task(roughness=0.0, gap=(0.0, 0.0), stump=(0.0, 0.0), step=(0.0, 0.0)):
    return jnp.array([roughness, *gap, *stump, *step], jnp.float32)


def at(ground, x=0.0, y=0.0, along=0.0, up=0.0, grounded=True):
    ground = np.broadcast_to(np.asarray(ground, np.float32), (NODES,))
    return HurdlesState(
        jnp.asarray(ground), jnp.array([x, y], jnp.float32), jnp.array([along, up], jnp.float32), jnp.bool_(grounded)
    )


def walk(state, push, jump, steps):
    """States and transitions of always the same action."""
    found = []
    for _ in range(steps):
        state, transition = STEP(task(), state, jnp.array([push, jump], jnp.float32), KEY)
        found.append((state, transition))
    return found


# -- motion ----------------------------------------------------------------------------------------------------------------------


def test_running_follows_the_closed_form():
    states = [state for state, _ in walk(at(0.0), 1.0, 0.0, 30)]
    t = np.arange(1, 31)
    np.testing.assert_allclose([float(state.speed[0]) for state in states], 4 * (1 - 0.8**t), rtol=1e-5)
    # The sum of a geometric series, a tenth of a second each.
    np.testing.assert_allclose([float(state.place[0]) for state in states], 0.4 * (t - 4 * (1 - 0.8**t)), rtol=1e-4)


def test_a_jump_follows_the_closed_form():
    (start, _), *_ = walk(at(0.0, along=4.0), 0.0, 1.0, 1)
    states = [start, *(state for state, _ in walk(start, 0.0, 0.0, 10))]
    n = np.arange(1, 12)
    height = 0.1 * (6 * n - n * (n + 1) / 2)
    np.testing.assert_allclose([float(state.place[1]) for state in states], height, atol=1e-5)
    assert height.max() == pytest.approx(1.5)
    assert [bool(state.grounded) for state in states] == [False] * 10 + [True]


def test_in_the_air_a_push_does_a_fifth_and_nothing_slows_down():
    state, _ = STEP(task(), at(0.0, y=3.0, along=2.0, grounded=False), jnp.array([0.5, 1.0]), KEY)
    np.testing.assert_allclose(state.speed, [2.0 + 0.1 * 0.2 * 8 * 0.5, -1.0], rtol=1e-5)  # and there is no second jump


def test_the_whole_way_pays_300_and_ends_the_episode():
    found = walk(at(0.0), 1.0, 0.0, 160)
    ended = [bool(transition.terminated) for _, transition in found]
    last = ended.index(True)
    assert float(found[last][0].place[0]) >= LENGTH
    assert sum(float(transition.reward) for _, transition in found[: last + 1]) == pytest.approx(300, abs=1e-3)
    assert all(float(transition.reward) == 0 for _, transition in found[last + 1 :])


@pytest.mark.parametrize("speed", [0.45, 3.0])
def test_a_wall_stops_the_slow_and_fells_the_fast(speed):
    ground = np.zeros(NODES)
    ground[20:] = 1.0
    before = 20 * CELL - CELL - 0.01
    state, transition = STEP(task(), at(ground, x=before, along=speed / 0.8), jnp.zeros(2), KEY)
    fast = speed > 0.5
    # Slow: not at the wall yet in one step; walk on until it is.
    for _ in range(0 if fast else 60):
        state, transition = STEP(task(), state, jnp.array([0.1, 0.0]), KEY)
    if fast:
        assert bool(transition.terminated)
        assert float(transition.reward) == -100
    else:
        assert not bool(transition.terminated)
        assert before < float(state.place[0]) < 20 * CELL
        assert float(state.place[1]) < 0.2


@pytest.mark.parametrize(("slope", "passes"), [(0.5, True), (-0.5, True), (0.9, False)])
def test_slopes_can_be_run_up_to_a_limit(slope, passes):
    ground = np.concatenate([np.zeros(8), slope * CELL * np.arange(1, NODES - 7)])
    found = walk(at(ground), 1.0, 0.0, 40)
    fell = any(float(transition.reward) < -50 for _, transition in found)
    assert fell != passes
    if passes:
        state = found[-1][0]
        assert float(state.place[1]) == pytest.approx(np.interp(float(state.place[0]), CELL * np.arange(NODES), ground), abs=0.5)


@pytest.mark.parametrize(("width", "crosses"), [(0.25, True), (2.0, False)])
def test_a_gap_is_crossed_at_speed_or_falls(width, crosses):
    ground = np.zeros(NODES)
    ground[40 : 40 + int(width / CELL)] = -DEPTH
    found = walk(at(ground), 1.0, 0.0, 60)
    rewards = [float(transition.reward) for _, transition in found]
    assert (min(rewards) > 0) == crosses
    if not crosses:
        assert min(rewards) < -90
        assert bool(found[int(np.argmin(rewards))][1].terminated)


def test_a_landing_from_too_high_is_a_fall():
    # Who has fallen v**2 / 20 lands with v; 8.5 is the limit.
    for high, falls in ((2.5, False), (4.5, True)):
        found = walk(at(0.0, y=high, grounded=False), 0.0, 0.0, 12)
        assert any(bool(transition.terminated) for _, transition in found) == falls


# -- the ground ------------------------------------------------------------------------------------------------------------------


def test_nothing_is_flat_and_a_key_determines_the_rest():
    assert not np.any(GROUNDS(task(), jax.random.split(KEY, 3)))
    full = task(0.3, (0.5, 2.0), (0.2, 1.0), (0.1, 0.4))
    one, same, other = GROUNDS(full, jnp.stack([KEY, KEY, jax.random.key(1)]))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not one[: SLOT - 3].any()


def obstacles(ground):
    """By hand: (first node, nodes, height) of what stands out from flat ground."""
    found, begin = [], None
    for node, level in enumerate([*np.round(np.asarray(ground), 4), 0.0]):
        if level != 0 and begin is None:
            begin = node
        elif level == 0 and begin is not None:
            found.append((begin, node - begin, float(ground[begin])))
            begin = None
    return found


def test_stumps_and_gaps_have_the_sizes_that_the_task_names():
    grounds = GROUNDS(task(gap=(0.5, 2.0), stump=(0.4, 1.0)), jax.random.split(KEY, 60))
    found = [each for ground in np.asarray(grounds) for each in obstacles(ground)]
    assert len(found) == 60 * (SLOTS - 1)
    gaps = [nodes * CELL for _, nodes, level in found if level < 0]
    stumps = [level for _, _, level in found if level > 0]
    assert 0.4 < len(gaps) / len(found) < 0.6  # both kinds are as likely
    assert {level for _, _, level in found if level < 0} == {-DEPTH}
    assert set(gaps) == set(np.arange(0.5, 2.01, CELL))
    assert min(stumps) >= 0.4
    assert max(stumps) <= 1.0
    assert np.mean(stumps) == pytest.approx(0.7, abs=0.03)
    assert {begin % SLOT for begin, _, _ in found} == {2, 3, 4}


def test_stairs_go_up_or_down_by_equal_steps():
    grounds = np.asarray(GROUNDS(task(step=(0.2, 0.5)), jax.random.split(KEY, 40)))
    for ground in grounds:
        steps = np.diff(ground)
        steps = steps[np.abs(steps) > 1e-5].reshape(SLOTS - 1, 3)  # three for each slot but the first
        np.testing.assert_allclose(steps, np.broadcast_to(steps[:, :1], steps.shape), atol=1e-5)
        assert (np.abs(steps) >= 0.2 - 1e-5).all()
        assert (np.abs(steps) <= 0.5 + 1e-5).all()
    assert 0.4 < np.mean(np.diff(grounds)[np.abs(np.diff(grounds)) > 1e-5] > 0) < 0.6


def test_rough_ground_is_piecewise_linear_and_as_rough_as_named():
    grounds = np.asarray(GROUNDS(task(roughness=0.6), jax.random.split(KEY, 20)))
    corners = grounds[:, :: SLOT // 4][:, : SLOTS * 4]
    assert np.abs(corners).max() <= 0.3
    assert np.std(corners[:, 8:]) == pytest.approx(0.6 / np.sqrt(12), rel=0.1)  # uniform
    nodes = np.arange(SLOTS * SLOT - 4)
    for ground, known in zip(grounds, corners, strict=True):
        np.testing.assert_allclose(ground[nodes], np.interp(nodes, 4 * np.arange(SLOTS * 4), known), atol=1e-5)


def test_what_is_seen_is_the_ground_ahead():
    ground = np.cumsum(np.random.default_rng(0).uniform(-0.1, 0.1, NODES)).astype(np.float32)
    for x in (0.0, 3.3, 17.77, LENGTH - 0.1):
        seen = np.asarray(
            STEP(task(), at(ground, x=x, y=50.0, along=2.0, up=1.0, grounded=False), jnp.zeros(2), KEY)[1].observation
        )
        here = x + 0.2
        assert seen[-2] == pytest.approx(50.0 - np.interp(here, CELL * np.arange(NODES), ground), abs=1e-3)
        state = at(ground, x=x, y=float(np.interp(x, CELL * np.arange(NODES), ground)))
        seen = np.asarray(STEP(task(), state, jnp.zeros(2), KEY)[1].observation)
        level = np.interp(x + CELL * LIDAR, CELL * np.arange(NODES), ground) - np.interp(x, CELL * np.arange(NODES), ground)
        np.testing.assert_allclose(seen[:8], np.clip(level, -2, 2), atol=1e-3)


# -- mutation --------------------------------------------------------------------------------------------------------------------


def test_a_mutation_of_flat_ground_brings_the_smallest_obstacles():
    children = np.asarray(MUTATE(task(), jax.random.split(KEY, 200)))
    np.testing.assert_allclose(children[:, 1:], np.tile([0, 0.5, 0, 0.2, 0, 0.1], (200, 1)), atol=1e-6)
    assert children[:, 0].min() == 0
    assert 0.9 * ROUGHER < children[:, 0].max() <= ROUGHER


@pytest.mark.parametrize("start", [((0.5, 1.0), (0.0, 0.2), (0.3, 0.8)), ((4.0, 4.0), (1.6, 1.6), (0.4, 0.4))])
def test_a_mutation_moves_every_range_to_one_of_all_neighbours(start):
    parent = task(0.98, *start)
    children = np.asarray(MUTATE(parent, jax.random.split(KEY, 2000)))
    assert children[:, 0].max() == ROUGHEST
    for index, ((low, high), obstacle) in enumerate(zip(start, OBSTACLES.values(), strict=True)):
        moves = [(a, b) for a, b in itertools.product((-1, 0, 1), repeat=2) if (a, b) != (0, 0)]
        moved = [(round(low + a * obstacle.change, 3), round(high + b * obstacle.change, 3)) for a, b in moves]
        allowed = {(a, b) for a, b in moved if 0 <= a <= b <= obstacle.largest}
        pairs = [tuple(np.round(pair, 3).tolist()) for pair in children[:, 1 + 2 * index : 3 + 2 * index].astype(float)]
        assert set(pairs) == allowed
        # Evenly: five deviations of a binomial count.
        expected, spread = 2000 / len(allowed), 5 * np.sqrt(2000 / len(allowed))
        assert all(abs(pairs.count(each) - expected) < spread for each in allowed)


def test_what_changes_back_is_equal_again():
    """Duplicates are found by equality, so that rounding errors of different ways must not add up."""
    keys = jax.random.split(KEY, 400)
    current = task(gap=(0.5, 1.0), stump=(0.2, 0.4), step=(0.1, 0.2))
    seen = set()
    for key in keys:
        current = MUTATE(current, key[None])[0]
        seen |= {float(value) for value in np.asarray(current[5:])}
    assert seen <= {float(np.float32(round(0.1 * n / 0.1)) * np.float32(0.1)) for n in range(9)}


# -- use -------------------------------------------------------------------------------------------------------------------------


def test_it_draws_itself():
    environment = make("hurdles")
    state, observation = environment.reset(task(gap=(1.0, 1.0)), KEY)
    picture = render(environment, *jax.device_get((task(gap=(1.0, 1.0)), state, observation)))
    assert picture.dtype == np.uint8
    inner = state.env_state
    moved = state._replace(env_state=inner._replace(place=jnp.array([10.0, 1.0]), grounded=jnp.bool_(False)))
    assert not np.array_equal(picture, render(environment, *jax.device_get((task(gap=(1.0, 1.0)), moved, observation))))


def test_agents_may_choose_among_bins():
    assert make("hurdles").real_dimensions == 2
    assert make("hurdles", bins=5).num_actions == 5
    assert make("hurdles", bins=5).real_dimensions == 0
