"""POET on the host: against the compiled evolution on the same returns, and on Gymnasium's walker where Box2D is installed."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs.hurdles import make_ground
from rulax.methods.poet import Poet, Trailblazer
from rulax.methods.poet_agents import EvolvedAgents, Evolving, fallen
from rulax.methods.poet_host import HostEvolvedAgents, seeds_of

needs_box2d = pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="needs Box2D")


class Target:
    """One step, which is paid by how near the action is to a target, and by a number that the seed determines."""

    def __init__(self, target, luck):
        self.target, self.most = np.asarray(target), luck

    def reset(self, seed):
        self.luck = self.most * np.random.default_rng(seed).normal()
        return np.ones(3), {}

    def step(self, action):
        return np.ones(3), self.luck - float(np.sum((action - self.target) ** 2)), True, False, {}

    def close(self):
        pass


class Targets:
    """Its tasks, and how much luck there is."""

    def __init__(self, luck=1.0):
        self.luck = luck

    observation = jax.ShapeDtypeStruct((3,), np.float32)
    real_dimensions = 2

    def default_task(self):
        return jnp.zeros(2)

    def mutate(self, task, key):
        return task + 0.1 * jax.random.normal(key, (2,))

    def open(self, task):
        return Target(task, self.luck)


def members_of(agents, number):
    return jax.vmap(agents.fresh)(jax.random.split(jax.random.key(0), number))


def test_a_step_on_the_host_is_the_compiled_one():
    agents = HostEvolvedAgents(Targets(luck=0.0), Evolving(pairs=4, rollouts=2), horizon=5)
    members, tasks, key = members_of(agents, 2), jnp.array([[0.5, 0.2], [-0.3, 0.1]]), jax.random.key(3)
    found = agents.improve(members, tasks, key, 1)

    class Compiled(EvolvedAgents):
        def __init__(self):
            self.evolving, self.adam = agents.evolving, agents.adam

        def episode(self, agent, task, key):
            del key  # without luck all episodes are the same
            policy, _ = agent.act(jnp.ones((1, 3)), jnp.zeros(1, jnp.int8), ())
            return -jnp.sum((jnp.clip(policy.greedy()[0], -1, 1) - task) ** 2)

    # The same keys for the noise: `step` splits its own.
    key_noise, _ = jax.random.split(jax.random.split(key, 1)[0])
    keys = jax.random.split(key_noise, 2)
    directions, perturbed = jax.vmap(agents._perturbed)(members, keys)
    fitness = jax.vmap(jax.vmap(Compiled().episode, (0, None, None)), (0, 0, None))(perturbed, tasks, None)
    expected = jax.vmap(agents.learned)(members, directions, fitness)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found.agent, expected.agent)
    # And perturbations are pairs around the agent.
    noise = float(fallen(agents.evolving.noise, members.age[0]))
    for leaf, moved, each in zip(*map(jax.tree.leaves, (members.agent, perturbed, directions)), strict=True):
        np.testing.assert_allclose(moved[:, :4] - leaf[:, None], noise * each, atol=1e-5)
        np.testing.assert_allclose(moved[:, 4:] - leaf[:, None], -noise * each, atol=1e-5)


def test_evolution_on_the_host_learns_and_scores_meet_the_same_episodes():
    agents = HostEvolvedAgents(Targets(), Evolving(pairs=6, rollouts=3, noise=(0.05, 0.05, 1.0)), horizon=5)
    members, tasks = members_of(agents, 2), jnp.array([[0.5, 0.2], [-0.3, 0.1]])
    keys = jax.random.split(jax.random.key(1), 2)
    before = agents.score(members, tasks, keys)
    np.testing.assert_array_equal(before, agents.score(members, tasks, keys))
    after = agents.score(agents.improve(members, tasks, jax.random.key(2), 80), tasks, keys)
    luck = np.array(
        [np.mean([np.random.default_rng(int(seed)).normal() for seed in seeds_of(jax.random.split(key, 3))]) for key in keys]
    )
    assert (luck - after < 0.1 * (luck - before)).all()  # the best there is: `luck`
    assert agents.steps == 2 * (2 * 3) + 80 * 2 * 12 + 2 * 3  # episodes of one step


@needs_box2d
def test_the_ground_of_the_walker_is_that_of_its_task():
    from rulax.envs.bipedal import TERRAIN_HEIGHT, TERRAIN_LENGTH, TERRAIN_STEP, TerrainWalker

    flat = TerrainWalker()
    flat.reset(seed=0)
    assert set(flat.terrain_y) == {TERRAIN_HEIGHT}
    assert len(flat.terrain) == TERRAIN_LENGTH - 1
    walker = TerrainWalker(gap=1.0, stump=0.6, step=0.2, roughness=0.2)
    first, _ = walker.reset(seed=0)
    one = list(walker.terrain_y)
    walker.reset(seed=0)
    assert walker.terrain_y == one
    walker.reset(seed=1)
    assert walker.terrain_y != one
    assert first.shape == (24,)
    # Some key gives this ground: that which the walker draws first.
    drawn = np.random.Generator(np.random.PCG64(np.random.SeedSequence(0))).integers(2**31)
    ground = np.asarray(make_ground(walker.task, jax.random.key(int(drawn))))
    np.testing.assert_allclose(np.array(one[5:]) - TERRAIN_HEIGHT, ground[: TERRAIN_LENGTH - 5], atol=1e-5)
    # The lidar looks from the hull downwards, and what it meets is the ground of Box2D.
    here = np.interp(flat.hull.position[0], TERRAIN_STEP * np.arange(TERRAIN_LENGTH), flat.terrain_y)
    assert flat.lidar[0].p2[1] == pytest.approx(here, abs=0.05)


@needs_box2d
def test_poet_runs_on_the_walker():
    from rulax.envs.bipedal import Walkers

    agents = HostEvolvedAgents(Walkers(), Evolving(pairs=1, rollouts=1), horizon=20)
    poet = Poet(capacity=2, transfer_every=1, reproduce_every=1, lowest=-200, parents_from=-200, children=2)
    trail = Trailblazer(agents, poet, jax.random.key(0))
    for _ in range(2):
        trail.advance()
    assert len(trail.worlds) == 2
    np.testing.assert_allclose(np.asarray(trail.tasks)[1, 1:], [0, 0.5, 0, 0.2, 0, 0.1], atol=1e-6)
    assert np.isfinite(trail.scores).all()


def test_opposite_perturbations_meet_the_same_episode_and_pairs_another():
    agents = HostEvolvedAgents(Targets(), Evolving(pairs=3, rollouts=1), horizon=1)
    seen = []
    agents.play = lambda agents, tasks, seeds: seen.append(seeds) or np.zeros(len(seeds), np.float32)
    agents.improve(members_of(agents, 2), jnp.zeros((2, 2)), jax.random.key(0), 1)
    seeds = seen[0].reshape(2, 2, 3)  # members, signs, pairs
    np.testing.assert_array_equal(seeds[:, 0], seeds[:, 1])
    assert len(set(seeds[:, 0].reshape(-1).tolist())) == 6
