"""Jittable adapters against their bare packages: the same actions give the same rewards and ends. The contract itself is tested in
tests/contracts, on the same environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.adapters import craftax, sokoban

QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def quick(function):
    return jax.jit(function, compiler_options=QUICKLY)


@pytest.fixture(scope="module")
def sokoban_environment():
    pytest.importorskip("jumanji")
    return make("jumanji/Sokoban", levels=3, limit=1000)


def test_sokoban_levels_are_solved_by_their_solutions(sokoban_environment):
    """The generator's actions, played forwards by Jumanji's rules, put every box on a target, and only at the end of all."""
    step, random = quick(sokoban_environment.step), np.random.default_rng(5)
    for _ in range(4):
        fixed, variable, agent, solution = sokoban.make_level(random)
        assert (variable == sokoban.BOX).sum() == (fixed == sokoban.TARGET).sum() == sokoban.BOXES
        assert (variable == sokoban.AGENT).sum() == 1
        assert not ((variable > 0) & (fixed == sokoban.WALL)).any()
        pool = sokoban.Levels(*(jnp.broadcast_to(x, (3, *x.shape)) for x in (fixed, variable, agent)))
        state, observation = sokoban_environment.reset(pool, jax.random.key(0))
        np.testing.assert_array_equal(observation[..., sokoban.BOX], variable == sokoban.BOX)
        np.testing.assert_array_equal(observation[..., 5 + sokoban.WALL], fixed == sokoban.WALL)
        ends, total = [], 0.0
        for action in solution:
            state, transition = step(pool, state, action, jax.random.key(0))
            ends.append(bool(transition.terminated))
            total += float(transition.reward)
            if ends[-1]:
                break
        assert ends[-1], "not solved"
        # Jumanji pays -0.1 per step, +1 per box on a target, -1 for one pushed off, and 10 at the end.
        before = ((variable == sokoban.BOX) & (fixed == sokoban.TARGET)).sum()
        np.testing.assert_allclose(total, 10 + (sokoban.BOXES - before) - 0.1 * len(ends), atol=1e-3)


def test_sokoban_levels_differ_and_are_truncated(sokoban_environment):
    levels = sokoban.make_levels(50, 1)
    assert len({level.tobytes() for level in levels.variable}) == 50
    np.testing.assert_array_equal(levels.fixed, sokoban.make_levels(50, 1).fixed)
    assert make("jumanji/Sokoban", levels=3).limit == 120
    with pytest.raises(ValueError, match="levels must be at least 1"):
        make("jumanji/Sokoban", levels=0)
    with pytest.raises(ValueError, match="unknown Jumanji environment 'Sokobann'; did you mean 'Sokoban'"):
        make("jumanji/Sokobann")


def test_snake_is_jumanjis_snake():
    pytest.importorskip("jumanji")
    from jumanji.environments import Snake

    bare, ours = Snake(6, 6, time_limit=4000), make("jumanji/Snake", num_rows=6, num_cols=6, limit=1000)
    bare_step, our_step, bare_reset, our_reset = quick(bare.step), quick(ours.step), quick(bare.reset), quick(ours.reset)
    random, ended = np.random.default_rng(0), 0
    for episode in range(6):
        key = jax.random.key(episode)
        bare_state, _ = bare_reset(key)
        state, _ = our_reset(ours.default_task(), key)
        for _ in range(50):
            action = int(random.integers(4))
            bare_state, timestep = bare_step(bare_state, action)
            state, transition = our_step(ours.default_task(), state, action, key)
            assert float(timestep.reward) == float(transition.reward)
            assert bool(timestep.last()) == bool(transition.terminated)
            if transition.terminated:
                ended += 1
                break
            np.testing.assert_array_equal(timestep.observation.grid, transition.observation)
    assert ended


def test_xland_is_the_packages_own():
    xminigrid = pytest.importorskip("xminigrid")
    bare, params = xminigrid.make("MiniGrid-EmptyRandom-5x5", max_steps=40)
    ours = make("xland/MiniGrid-EmptyRandom-5x5", max_steps=40)
    assert ours.observation.shape == (params.view_size, params.view_size, 25)
    bare_step, our_step = quick(lambda state, action: bare.step(params, state, action)), quick(ours.step)
    bare_reset, our_reset = quick(lambda key: bare.reset(params, key)), quick(ours.reset)
    random, ends = np.random.default_rng(0), set()
    for episode in range(6):
        key = jax.random.key(episode)
        timestep = bare_reset(key)
        state, shown = our_reset(ours.default_task(), key)
        for t in range(40):
            codes = np.asarray(timestep.observation)
            np.testing.assert_array_equal(np.argmax(shown[..., :13], -1), codes[..., 0])
            np.testing.assert_array_equal(np.argmax(shown[..., 13:], -1), codes[..., 1])
            action = int(random.integers(3))
            timestep = bare_step(timestep, action)
            state, transition = our_step(ours.default_task(), state, action, key)
            shown = transition.observation
            assert float(timestep.reward) == float(transition.reward)
            assert bool(timestep.last()) == bool(transition.terminated | transition.truncated)
            assert bool(transition.terminated) == (float(timestep.reward) > 0)  # only the goal pays
            assert bool(transition.truncated) == (t == 39 and not transition.terminated)
            if timestep.last():
                ends.add("terminated" if transition.terminated else "truncated")
                break
    assert ends == {"terminated", "truncated"}
    with pytest.raises(ValueError, match="has no goal without a ruleset"):
        make("xland/XLand-MiniGrid-R1-9x9")


def test_the_former_name_of_craftaxs_pool_is_understood_with_a_note(capsys):
    id = "Craftax-Symbolic-v1"
    assert craftax.with_current_names(id, {"worlds": 3, "seed": 1}) == {"pool": 3, "seed": 1}
    assert capsys.readouterr().err == f"note: the option worlds of craftax/{id} is called pool now\n"
    assert craftax.with_current_names(id, {"pool": 3}) == {"pool": 3}
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match="worlds is the former name of pool; give only one of them"):
        craftax.with_current_names(id, {"worlds": 3, "pool": 3})


@pytest.mark.slow
@pytest.mark.parametrize("id", ["Craftax-Classic-Symbolic-v1"])
def test_craftax_is_craftax(id):
    """A minute of compilation: the bare game from the same start environment with the same keys, until it ends."""
    maker = pytest.importorskip("craftax.craftax_env")
    bare, ours = maker.make_craftax_env_from_name(id, auto_reset=False), make(f"craftax/{id}", pool=2, limit=50)
    environment, params = ours.environment, bare.default_params
    task = quick(environment.default_task)()
    bare_reset, our_reset = quick(bare.reset_env), quick(ours.reset)
    starts = [bare_reset(key, params) for key in jax.random.split(jax.random.key(0), 2)]
    shown = [np.asarray(our_reset(task, jax.random.key(i))[1]) for i in range(10)]
    same = [[np.allclose(one, start, atol=1e-3) for start, _ in starts] for one in shown]  # compiled apart: rounding differs
    assert all(sum(row) == 1 for row in same), "the pool is what Craftax makes"
    assert {row.index(True) for row in same} == {0, 1}, "every environment is drawn"
    bare_step, our_step = quick(bare.step_env), quick(ours.step)
    state, observation = our_reset(task, jax.random.key(0))
    bare_state = next(s for o, s in starts if np.allclose(o, observation, atol=1e-3))
    for t in range(50):
        key, action = jax.random.key(t), t % 17
        bare_shown, bare_state, reward, done, _ = bare_step(key, bare_state, action, params)
        state, transition = our_step(task, state, action, key)
        np.testing.assert_allclose(bare_shown, transition.observation, atol=1e-3)
        np.testing.assert_allclose(reward, transition.reward)
        assert bool(done) == bool(transition.terminated)
    assert transition.truncated
