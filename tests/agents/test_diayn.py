"""An agent that is paid for being recognisable: the states that count, the reward, and a discriminator that finds Bayes' answer."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.base import split
from rulax.agents.diayn import arrivals, make_skilled_agent, skilled
from rulax.agents.normalising import normalising
from rulax.envs.base import Episode
from rulax.settings import Network
from rulax.types import Experience, Head

T, B, CELLS, SKILLS = 7, 3, 4, 3
NETWORK = Network(hidden=(8,), activation="tanh")
SHAPES = {
    "observation": jax.ShapeDtypeStruct((CELLS,), jnp.float32),
    "skill": jax.ShapeDtypeStruct((SKILLS,), jnp.float32),
}


def fresh(observation=SHAPES, **options):
    return make_skilled_agent(jax.random.key(0), observation, 2, {"policy": Head(2)}, NETWORK, **options)


def life(seed=0, streams=B, time=T):
    """Random cells, skills and ends of episodes; the skill changes where one starts, and nowhere else."""
    draw = np.random.default_rng(seed)
    first = np.where(draw.random((time + 1, streams)) < 0.3, 1, 0).astype(np.int8)
    skill = draw.integers(SKILLS, size=(time + 1, streams))
    for t in range(1, time + 1):
        skill[t] = np.where(first[t] > 0, skill[t], skill[t - 1])
    cell = draw.integers(CELLS, size=(time + 1, streams))
    seen = {"observation": np.eye(CELLS, dtype=np.float32)[cell], "skill": np.eye(SKILLS, dtype=np.float32)[skill]}
    zeros = jnp.zeros((time, streams))
    experience = Experience(
        jax.tree.map(jnp.asarray, seen), zeros.astype(jnp.int32), zeros + 5, zeros + 1, jnp.asarray(first),
        jnp.asarray(draw.random((time, streams)) < 0.8), jnp.zeros((time, streams, 2)), (),
    )  # fmt: skip
    return experience, cell, skill


EPISODES = Episode(jnp.zeros((T, B), bool), jnp.zeros((T, B)), jnp.zeros((T, B), jnp.int32))


def test_a_step_is_judged_by_the_last_state_of_its_own_episode():
    experience, cell, skill = life()
    arrived = arrivals(experience)
    first = np.asarray(experience.first)
    assert first[1:].any()
    assert set(arrived.states) == {"observation"}
    for t in range(T):
        for b in range(B):
            state = cell[t, b] if first[t + 1, b] else cell[t + 1, b]
            assert int(arrived.states["observation"][t, b].argmax()) == state
            assert int(arrived.skill[t, b].argmax()) == skill[t, b]


def test_the_reward_is_what_the_discriminator_said_before_it_learned():
    experience, cell, skill = life()
    agent = fresh(steps=3)
    # Large weights: a fresh discriminator says the same of every state.
    agent = eqx.tree_at(lambda a: a.learned.value[0].last.weight, agent, jax.random.normal(jax.random.key(1), (64, SKILLS)))
    after, learned_from = agent.written(experience, EPISODES)
    first = np.asarray(experience.first)
    says = np.asarray(agent.discriminator({"observation": jnp.eye(CELLS)}), np.float64)
    np.testing.assert_allclose(np.exp(says).sum(-1), 1, rtol=1e-5)
    for t in range(T):
        for b in range(B):
            state = cell[t, b] if first[t + 1, b] else cell[t + 1, b]
            expected = says[state, skill[t, b]] - np.log(1 / SKILLS)
            np.testing.assert_allclose(learned_from.reward[t, b], expected, rtol=1e-4, atol=1e-5)
    changed = jax.tree.map(lambda new, old: bool((new != old).any()), after.discriminator, agent.discriminator)
    assert all(jax.tree.leaves(changed))
    assert eqx.tree_equal(after.agent, agent.agent)
    # At the start nothing is known, so nothing is paid.
    assert abs(np.asarray(fresh().written(experience, EPISODES)[1].reward)).max() < 0.1


def test_the_discriminator_finds_bayes_rule():
    """On one large unroll, again and again: q(z | s) becomes the share of skill z among the valid visits of s."""
    experience, cell, skill = life(seed=3, streams=64, time=40)
    agent = fresh(rate=0.02, steps=600)
    zeros = jnp.zeros((40, 64))
    after, _ = jax.jit(lambda a, e: a.written(e, Episode(zeros > 0, zeros, zeros)))(agent, experience)
    first, valid = np.asarray(experience.first), np.asarray(experience.valid)
    counts = np.zeros((CELLS, SKILLS))
    for t in range(40):
        for b in range(64):
            state = cell[t, b] if first[t + 1, b] else cell[t + 1, b]
            counts[state, skill[t, b]] += valid[t, b]
    found = np.exp(np.asarray(after.discriminator({"observation": jnp.eye(CELLS)})))
    np.testing.assert_allclose(found, counts / counts.sum(-1, keepdims=True), atol=0.005)


def test_no_gradient_and_no_optimiser_sees_the_discriminator():
    agent = fresh()
    trained, carried = split(agent)
    assert not jax.tree.leaves(trained.learned)
    assert len(jax.tree.leaves(carried.learned)) == len(jax.tree.leaves(agent.learned))


def test_it_is_found_inside_of_others():
    agent = fresh()
    around = normalising(agent, SHAPES, B, observations=True, rewards=False)
    assert skilled(around) is agent
    assert skilled(agent.agent) is None


def test_images_are_read_as_the_agent_reads_them():
    shapes = {"observation": jax.ShapeDtypeStruct((10, 10, 3), jnp.uint8), "skill": SHAPES["skill"]}
    assert len(fresh(shapes).discriminator.torso.readers) == 1
    said = fresh(shapes, hidden=5).discriminator({"observation": jnp.zeros((2, 4, 10, 10, 3), jnp.uint8)})
    assert said.shape == (2, 4, SKILLS)


def test_an_environment_without_skills_is_refused():
    with pytest.raises(ValueError, match="needs an environment that shows one"):
        fresh(SHAPES["observation"])
