"""Agents: both readings agree, memory is cleared where episodes start, initialisation is the reference's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import make_agent
from rulax.settings import Network
from rulax.types import Experience, Head, now
from rulax.values.two_hot import Bins, expected_value

ACTIONS, TIME, STREAMS = 3, 6, 4
HEADS = {
    "policy": Head(ACTIONS),
    "value": Head(1),
    "action_prediction": Head(7, per_action=True),
    "next_policy": Head(ACTIONS, per_action=True),
}
NETWORKS = {
    "mlp": Network(hidden=(16, 8), action_model=10, action_hidden=(12,)),
    "lstm": Network(hidden=(8,), core="lstm", core_size=6, action_model=5, action_hidden=(4,), activate_last=False),
    "gru": Network(hidden=(8,), core="gru", core_size=6, action_model=5, action_hidden=()),
    "associative": Network(hidden=(8,), core="associative", core_size=6, core_rows=3, action_model=5, action_hidden=()),
    "conv": Network(torso="conv", hidden=(8,), channels=(4, 5), action_model=5, action_hidden=(4,)),
}


def make(name, shape=(4, 3, 2)):
    spec = jax.ShapeDtypeStruct(shape, jnp.float32)
    return make_agent(jax.random.key(1), spec, ACTIONS, HEADS, NETWORKS[name])


def experience(agent, first=None):
    rng = np.random.default_rng(0)
    first = rng.random((TIME + 1, STREAMS)) < 0.3 if first is None else first
    return Experience(
        observation=jnp.asarray(rng.normal(size=(TIME + 1, STREAMS, 4, 3, 2)), jnp.float32),
        action=jnp.asarray(rng.integers(0, ACTIONS, (TIME, STREAMS))),
        reward=jnp.zeros((TIME, STREAMS)),
        discount=jnp.ones((TIME, STREAMS)),
        first=jnp.asarray(first),
        valid=jnp.ones((TIME, STREAMS), bool),
        behaviour=jnp.zeros((TIME, STREAMS, ACTIONS)),
        memory=agent.initial_memory(STREAMS),
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_taken_reading_is_the_full_reading_at_the_taken_action(name):
    agent = make(name)
    data = experience(agent)
    seen = agent.embed(data)
    every, taken = agent.predict(now(seen)), agent.predict_taken(now(seen), data.action)
    assert set(every) == set(taken) == set(HEADS)
    for head, spec in HEADS.items():
        expected = every[head]
        if spec.per_action:
            assert expected.shape == (TIME, STREAMS, ACTIONS, spec.size)
            expected = jnp.take_along_axis(expected, data.action[..., None, None], axis=2)[:, :, 0]
        np.testing.assert_allclose(taken[head], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NETWORKS)
def test_acting_step_by_step_reads_the_same_policy_as_learning(name):
    agent = make(name)
    data = experience(agent)
    learned = agent.predict(agent.embed(data))["policy"]
    memory, acted = data.memory, []
    for t in range(TIME + 1):
        logits, memory = agent.act(data.observation[t], data.first[t], memory)
        acted.append(logits)
    np.testing.assert_allclose(np.stack(acted), learned, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "gru", "associative"])
def test_memory_is_cleared_before_the_first_observation_of_an_episode(name):
    agent = make(name)
    first = np.zeros((TIME + 1, STREAMS), bool)
    first[3] = True
    data = experience(agent, first)
    policy = agent.predict(agent.embed(data))["policy"]
    other_past = data._replace(observation=data.observation.at[:3].add(5.0))
    np.testing.assert_array_equal(agent.predict(agent.embed(other_past))["policy"][3:], policy[3:])
    never_cleared = agent.predict(agent.embed(data._replace(first=jnp.zeros_like(data.first))))["policy"]
    assert np.abs(np.asarray(never_cleared[3:] - policy[3:])).max() > 1e-5, "the past should matter without the reset"


@pytest.mark.parametrize("torso", [pytest.param("mlp", marks=pytest.mark.slow), "conv"])
def test_a_torso_that_ends_linear_is_folded_into_the_heads_without_a_difference(torso):
    network = Network(torso=torso, hidden=(8, 6), channels=(4,), activate_last=False, action_model=5, action_hidden=(4,))
    with jax.enable_x64(True):
        agent = make_agent(jax.random.key(1), jax.ShapeDtypeStruct((4, 3, 2), jnp.float64), ACTIONS, HEADS, network)
        agent = jax.tree.map(lambda x: x.astype(jnp.float64), agent)
        agent = eqx.tree_at(lambda a: a.torso.mlp.layers[-1].bias, agent, jnp.arange(6.0))  # zero at birth: would hide errors
        data = experience(agent)
        assert data.first.size > sum(layer.bias.size for layer in agent.heads.first_layers()), "else nothing is folded"

        def loss(agent, embed):
            seen = embed(agent)
            predictions = [*agent.predict(seen).values(), *agent.predict_taken(now(seen), data.action).values()]
            return sum(jnp.sum(jnp.sin(values)) for values in predictions)

        folded = jax.value_and_grad(loss)(agent, lambda agent: agent.embed(data))
        plain = jax.value_and_grad(loss)(agent, lambda agent: agent.heads.begin(agent.torso(data.observation)))
    for a, b in zip(jax.tree.leaves(folded), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_initial_scales_are_those_of_the_reference():
    agent = make_agent(
        jax.random.key(0), jax.ShapeDtypeStruct((64,), jnp.float32), ACTIONS, {"policy": Head(500), "z": Head(300, True)},
        Network(hidden=(256,), action_model=128, action_hidden=(128,)),
    )  # fmt: skip
    shrink = 0.8796  # standard deviation of a standard normal cut at two
    assert np.std(agent.heads.state["policy"].weight) == pytest.approx(1e-2 * shrink, rel=0.02)
    assert np.abs(agent.heads.state["policy"].weight).max() <= 2e-2
    assert np.std(agent.torso.mlp.layers[0].weight) == pytest.approx(64**-0.5 * shrink, rel=0.03)
    assert np.std(agent.heads.action.heads["z"].layers[-1].weight) == pytest.approx(128**-0.5 * shrink, rel=0.03)
    assert np.std(agent.heads.action.step.weight_hidden) == pytest.approx((128 + ACTIONS) ** -0.5 * shrink, rel=0.03)


def test_bytes_are_scaled_to_the_unit_interval():
    spec = jax.ShapeDtypeStruct((2, 2, 1), jnp.uint8)
    agent = make_agent(jax.random.key(0), spec, ACTIONS, {"policy": Head(ACTIONS)}, Network(hidden=(4,)))
    white, ones = jnp.full((1, 2, 2, 1), 255, jnp.uint8), jnp.ones((1, 2, 2, 1))
    np.testing.assert_allclose(agent.torso(white), agent.torso(ones), rtol=1e-6)


def test_an_image_network_says_what_it_cannot_read():
    with pytest.raises(ValueError, match=r"needs images.*use 'mlp'"):
        make_agent(jax.random.key(0), jax.ShapeDtypeStruct((4,), jnp.float32), 2, {"policy": Head(2)}, Network(torso="conv"))


def test_values_of_a_fresh_agent_start_at_zero_if_asked():
    """Drawn weights make 601 bins all but equally likely, and their mean anything; the other agent differs in nothing else."""
    heads = {"policy": Head(ACTIONS), "value": Head(601, per_action=True), "next_policy": Head(ACTIONS, per_action=True)}
    spec, found = jax.ShapeDtypeStruct((4, 3, 2), jnp.float32), {}
    for start in ("drawn", "zero"):
        network = Network(hidden=(32,), value_init=start)
        agent = make_agent(jax.random.key(1), spec, ACTIONS, heads, network)
        found[start] = agent.predict(agent.embed(experience(agent)))
    drawn, zero = (np.asarray(expected_value(found[start]["value"], Bins())) for start in ("drawn", "zero"))
    assert np.abs(drawn).max() > 1, "else this test shows nothing"
    assert np.abs(zero).max() < 0.2
    for name in ("policy", "next_policy"):
        np.testing.assert_array_equal(found["zero"][name], found["drawn"][name])
