"""Grid environments on a corridor in which every event can be forced: what is collected, paid, brought back and ended."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.gridworld import GridState, GridWorld, Kind, draw_walls
from rulax.envs.registry import families, make
from rulax.envs.wrappers import LimitedState, TimeLimit

STAY, NORTH, EAST, SOUTH, WEST = range(5)
KEY = jax.random.key(0)


def corridor(**fields):
    """A 3 x 5 grid with one object at row 1, column 2 and the agent west of it."""
    environment = GridWorld(**{"height": 3, "width": 5, "kinds": (Kind(2.0),), "moves": 5, **fields})
    task = environment.default_task()._replace(places=jnp.array([7], jnp.int32))
    state = GridState(jnp.int32(6), task.places, jnp.array([True]), jnp.float32(0), jnp.int32(0))
    return environment, task, state


def test_moving_onto_an_object_collects_it_once():
    environment, task, state = corridor()
    state, transition = environment.step(task, state, EAST, KEY)
    assert float(transition.reward) == 2.0
    assert not bool(transition.terminated)
    assert transition.observation[1, 2].tolist() == [1.0, 0.0, 0.0]
    _, transition = environment.step(task, state, STAY, KEY)
    assert float(transition.reward) == 0.0


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_objects_come_back_with_their_probability(probability):
    environment, task, state = corridor(kinds=(Kind(2.0, returns=probability),))
    state, _ = environment.step(task, state, EAST, KEY)
    assert bool(state.present[0]) is bool(probability)
    assert int(state.places[0]) == 7


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_objects_end_the_episode_with_their_probability(probability):
    environment, task, state = corridor(kinds=(Kind(-1.0, ends=probability),))
    _, transition = environment.step(task, state, EAST, KEY)
    assert float(transition.reward) == -1.0
    assert bool(transition.terminated) is bool(probability)
    _, transition = environment.step(task, state, WEST, KEY)
    assert not bool(transition.terminated)


def test_what_returns_is_placed_elsewhere_if_placement_is_random():
    environment, task, state = corridor(kinds=(Kind(1.0, returns=1.0),), placement="random")
    places = set()
    for seed in range(20):
        after, _ = environment.step(task, state, EAST, jax.random.key(seed))
        assert bool(after.present[0])
        places.add(int(after.places[0]))
    assert 7 not in places  # the agent stands there
    assert len(places) > 5


def test_walls_and_edges_stop_the_agent():
    environment, task, state = corridor()
    task = task._replace(walls=task.walls.at[0, 1].set(True))
    assert int(environment.step(task, state, NORTH, KEY)[0].agent) == 6
    assert int(environment.step(task, state, SOUTH, KEY)[0].agent) == 11
    west, _ = environment.step(task, state, WEST, KEY)
    assert int(west.agent) == 5
    assert int(environment.step(task, west, WEST, KEY)[0].agent) == 5


def test_diagonal_moves():
    environment, task, state = corridor(moves=9)
    assert [int(environment.step(task, state, action, KEY)[0].agent) for action in range(9)] == [6, 1, 7, 11, 5, 2, 12, 10, 0]


def test_every_step_may_cost():
    environment, task, state = corridor(step_reward=-0.5)
    assert float(environment.step(task, state, WEST, KEY)[1].reward) == -0.5
    assert float(environment.step(task, state, EAST, KEY)[1].reward) == 1.5


def test_a_slip_takes_a_random_action():
    environment, task, state = corridor(slip=1.0)
    cells = {int(environment.step(task, state, STAY, jax.random.key(seed))[0].agent) for seed in range(30)}
    assert cells == {6, 1, 7, 11, 5}


def test_delayed_rewards_are_paid_on_payday():
    environment, task, state = corridor(payday=3)
    rewards = []
    for action in (EAST, STAY, STAY, STAY, STAY, STAY):
        state, transition = environment.step(task, state, action, KEY)
        rewards.append(float(transition.reward))
    assert rewards == [0.0, 0.0, 2.0, 0.0, 0.0, 0.0]


def test_delayed_rewards_are_paid_at_the_end():
    environment, task, state = corridor(payday=100, kinds=(Kind(2.0), Kind(1.0, ends=1.0)))
    task = task._replace(places=jnp.array([7, 8], jnp.int32))
    state = state._replace(places=task.places, present=jnp.array([True, True]))
    state, transition = environment.step(task, state, EAST, KEY)
    assert float(transition.reward) == 0.0
    state, transition = environment.step(task, state, EAST, KEY)
    assert (float(transition.reward), bool(transition.terminated)) == (3.0, True)
    assert float(state.owed) == 0.0


def test_a_time_limit_is_no_payday():
    environment, task, state = corridor(payday=3)
    limited, state = TimeLimit(environment, 2), LimitedState(state, jnp.int32(0))
    for action in (EAST, STAY):
        state, transition = limited.step(task, state, action, KEY)
        assert float(transition.reward) == 0.0
    assert transition.truncated
    assert float(state.env_state.owed) == 2.0, "left to the value that is bootstrapped"


def test_limits_of_registered_grids_are_paydays():
    grids = [make(entry.name) for entry in families()["grid"]]
    assert {grid.environment.payday for grid in grids} == {1, 10}
    assert all(grid.limit % grid.environment.payday == 0 for grid in grids)


def test_an_episode_starts_off_the_objects():
    environment = GridWorld(3, 3, (Kind(1.0, copies=3),), placement="random")
    for seed in range(20):
        state, observation = environment.reset(environment.default_task(), jax.random.key(seed))
        assert int(state.agent) not in state.places.tolist()
        assert len(set(state.places.tolist())) == 3
        assert observation[:, :, 0].sum() == 1
        assert observation[:, :, 1].sum() == 3


def test_the_start_can_be_fixed_by_the_task():
    environment, task, _ = corridor()
    task = task._replace(start=jnp.zeros((3, 5)).at[2, 4].set(1.0))
    assert {int(environment.reset(task, jax.random.key(seed))[0].agent) for seed in range(5)} == {14}


def test_the_tabular_view_numbers_agent_and_subset():
    environment, task, state = corridor(view="tabular")
    assert environment.observation.shape == (30,)
    _, transition = environment.step(task, state, WEST, KEY)
    assert int(transition.observation.argmax()) == 15 + 5
    _, transition = environment.step(task, state, EAST, KEY)
    assert int(transition.observation.argmax()) == 7
    assert transition.observation.sum() == 1


def test_the_factored_view_has_agent_beside_presence():
    environment, task, state = corridor(view="factored")
    _, transition = environment.step(task, state, EAST, KEY)
    assert transition.observation.tolist() == [0.0] * 7 + [1.0] + [0.0] * 8


def test_sampled_floors_are_connected_and_hold_every_object():
    shape = (7, 7)
    walls = jax.jit(jax.vmap(lambda key: draw_walls(key, shape, 0.35)))(jax.random.split(KEY, 50))
    assert walls.any()
    for each in np.asarray(walls):
        floor = ~each
        assert 2 * floor.sum() >= floor.size
        assert _reachable(floor) == floor.sum()
    environment = GridWorld(*shape, wall_density=0.35)
    for task in map(environment.sample_task, jax.random.split(KEY, 5)):
        assert not task.walls.ravel()[task.places].any()
        np.testing.assert_array_equal(np.sign(task.value), np.sign(environment.default_task().value))


def _reachable(floor):
    todo = [tuple(np.argwhere(floor)[0])]
    seen = set(todo)
    while todo:
        row, column = todo.pop()
        for r, c in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if 0 <= r < floor.shape[0] and 0 <= c < floor.shape[1] and floor[r, c] and (r, c) not in seen:
                seen.add((r, c))
                todo.append((r, c))
    return len(seen)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"moves": 4}, "moves must be 5"),
        ({"view": "pixels"}, "unknown view"),
        ({"view": "tabular", "placement": "random"}, "use 'planes'"),
        ({"view": "tabular", "kinds": (Kind(1.0, copies=9),)}, "use view='factored'"),
        ({"height": 2, "width": 2}, "twice as many cells"),
    ],
)
def test_impossible_grids_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        GridWorld(**fields)
