"""Two rooms and a locked door, held against a breadth-first search in plain Python."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.key_door import MOVES, KeyDoor
from rulax.envs.registry import make

KEY = jax.random.key(0)


def shortest_way(size, start, key, door, goal):
    """The actions of a shortest way, by search over (cell, has the key)."""
    wall, queue, seen = size // 2, collections.deque([(start, False, ())]), {(start, False)}
    while queue:
        cell, has, way = queue.popleft()
        for action, (down, right) in enumerate(MOVES):
            row, column = cell // size + down, cell % size + right
            inside = 0 <= row < size and 0 <= column < size
            if not inside or (column == wall and not (has and row == door)):
                continue
            there = int(row * size + column)
            now = (there, has or there == key)
            if there == goal:
                return (*way, action)
            if now not in seen:
                seen.add(now)
                queue.append((*now, (*way, action)))
    return None


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_shortest_way_pays_one_at_its_end_and_nothing_before(seed):
    environment = KeyDoor(size=7)
    task = environment.default_task() if seed is None else environment.sample_task(jax.random.key(seed))
    way = shortest_way(7, *(int(part) for part in task))
    step, (state, _) = jax.jit(environment.step), environment.reset(task, KEY)
    paid, ended = [], []
    for action in way:
        state, transition = step(task, state, jnp.int32(action), KEY)
        paid.append(float(transition.reward))
        ended.append(bool(transition.terminated))
    assert paid == [0.0] * (len(way) - 1) + [1.0]
    assert ended == [False] * (len(way) - 1) + [True]


def test_without_the_key_the_door_is_wall_and_with_it_it_is_open():
    environment = KeyDoor(size=5)
    task = environment.default_task()._replace(start=jnp.int32(2 * 5 + 1), door=jnp.int32(2), key=jnp.int32(2 * 5 + 0))
    state, seen = environment.reset(task, KEY)
    assert np.asarray(seen).sum((0, 1)).tolist() == [1, 1, 1, 4, 1]
    east, west = jnp.int32(1), jnp.int32(3)
    state, _ = environment.step(task, state, east, KEY)
    assert int(state.agent) == 2 * 5 + 1
    for action in (west, east, east):
        state, transition = environment.step(task, state, action, KEY)
    assert int(state.agent) == 2 * 5 + 2
    assert np.asarray(transition.observation).sum((0, 1)).tolist() == [1, 0, 0, 4, 1]


def test_every_sampled_task_can_be_solved_and_starts_away_from_its_key():
    environment = KeyDoor()
    for parts in zip(*map(np.asarray, jax.vmap(environment.sample_task)(jax.random.split(KEY, 50))), strict=True):
        start, key, door, goal = map(int, parts)
        assert start != key
        assert shortest_way(8, start, key, door, goal)


def test_a_size_without_room_for_two_rooms_is_refused():
    with pytest.raises(ValueError, match="at least 5, not 4"):
        make("key_door", size=4)
