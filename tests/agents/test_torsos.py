"""Readers of observations, against convolutions written with NumPy and scipy, and counts of parameters done by hand."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import make_agent
from rulax.agents.torsos import Images, Numbers, Symbols, make_torso
from rulax.commands.train.agent import AgentHandle
from rulax.learning.life import after_burn_in
from rulax.settings import Network
from rulax.types import Head
from tests.agents.test_agent import NETWORKS, experience, make
from tests.agents.test_convolution import correlated

IMAGE = jax.ShapeDtypeStruct((84, 84, 4), jnp.uint8)
NETHACK = {"blstats": jax.ShapeDtypeStruct((27,), jnp.float32), "glyphs": jax.ShapeDtypeStruct((21, 79), jnp.int16)}


def test_a_residual_section_is_what_it_says():
    torso = make_torso(jax.random.key(1), jax.ShapeDtypeStruct((10, 9, 2), jnp.float32), Network(torso="impala", channels=(3,)))
    section = torso.readers[0].network.sections[0]
    image = np.random.default_rng(1).normal(size=(10, 9, 2)).astype(np.float32)
    x = correlated(image, section.conv, True)
    # "SAME" pooling of 3 with stride 2: even sizes are padded behind, odd ones on both sides.
    rows = [range(max(2 * i - 0, 0), min(2 * i + 3, 10)) for i in range(5)]
    columns = [range(max(2 * j - 1, 0), min(2 * j + 2, 9)) for j in range(5)]
    x = np.stack([np.stack([x[r][:, c].max((0, 1)) for c in columns]) for r in rows])
    for first, second in section.blocks:
        x = x + correlated(np.maximum(correlated(np.maximum(x, 0), first, True), 0), second, True)
    np.testing.assert_allclose(torso.flat(jnp.asarray(image)), np.maximum(x, 0).reshape(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("torso", ["conv", "strided", "impala"])
def test_gradients_inside_of_a_loop_are_those_outside(torso):
    """Where PPO makes its passes over a batch; what JAX knows of a pooling outside of a loop it may not know inside."""
    spec = jax.ShapeDtypeStruct((36, 36, 1), jnp.float32)
    made = make_torso(jax.random.key(0), spec, Network(torso=torso, channels=(2, 2, 2), hidden=(3,)))
    images = jax.random.normal(jax.random.key(1), (2, 1, *spec.shape))
    gradient = jax.grad(lambda made, image: jnp.sum(jnp.square(made(image))))
    inside = jax.jit(lambda: jax.lax.scan(lambda _, image: (None, gradient(made, image)), None, images)[1])()
    outside = [jax.jit(gradient)(made, image) for image in images]
    jax.tree.map(lambda a, *b: np.testing.assert_allclose(a, np.stack(b), rtol=1e-4, atol=1e-5), inside, *outside)


@pytest.mark.parametrize(("torso", "kind"), [("auto", "Convolutions"), ("impala", "Residual"), ("mlp", None)])
def test_bytes_are_scaled_on_the_device_and_any_leading_axes_are_kept(torso, kind):
    network = Network(torso=torso, hidden=(6,))
    made = make_torso(jax.random.key(0), IMAGE, network)
    reader = made.readers[0]
    assert isinstance(reader, Numbers) if kind is None else type(reader.network).__name__ == kind
    frames = np.random.default_rng(0).integers(0, 256, (2, 3, 84, 84, 4), np.uint8)
    both = made(jnp.asarray(frames))
    assert both.shape == (2, 3, 6)
    np.testing.assert_allclose(made(jnp.asarray(frames[1, 2] / 255, jnp.float32)), both[1, 2], rtol=1e-4, atol=1e-5)


def test_a_dictionary_is_read_part_by_part_and_symbols_are_names():
    torso = make_torso(jax.random.key(0), NETHACK, Network(hidden=(5,), symbols=50, embedding=4))
    numbers, glyphs = torso.readers
    assert isinstance(numbers, Numbers)
    assert isinstance(glyphs, Symbols)
    assert isinstance(glyphs.image, Images)
    rng = np.random.default_rng(0)
    seen = {"blstats": rng.normal(size=(3, 27)), "glyphs": rng.integers(0, 50, (3, 21, 79))}
    seen = {"blstats": jnp.asarray(seen["blstats"], jnp.float32), "glyphs": jnp.asarray(seen["glyphs"], jnp.int16)}
    assert torso(seen).shape == (3, 5)
    # Names have no order: with the table's rows swapped, swapped names look the same.
    order = rng.permutation(50)
    other = eqx.tree_at(lambda t: t.readers[1].table, torso, jnp.zeros_like(glyphs.table).at[order].set(glyphs.table))
    renamed = seen | {"glyphs": jnp.asarray(order)[seen["glyphs"]].astype(jnp.int16)}
    np.testing.assert_allclose(other(renamed), torso(seen), rtol=1e-5, atol=1e-6)


def test_a_map_with_several_symbols_in_each_place_is_an_image_of_their_vectors():
    """As a stack of NetHack's maps is: the newest symbol of a place is the last of its vectors."""
    maps = jax.ShapeDtypeStruct((9, 11, 3), jnp.int16)
    torso = make_torso(jax.random.key(0), maps, Network(hidden=(5,), symbols=50, embedding=4))
    glyphs = torso.readers[0]
    assert glyphs.image.network.convs[0].weight.shape[2] == 3 * 4
    seen = np.random.default_rng(0).integers(0, 50, (2, 9, 11, 3))
    vectors = np.concatenate([np.asarray(glyphs.table)[seen[..., symbol]] for symbol in range(3)], -1)
    read = glyphs(jnp.asarray(seen, jnp.int16), jnp.float32)
    np.testing.assert_allclose(read, glyphs.image(jnp.asarray(vectors), jnp.float32), rtol=1e-6)
    assert torso(jnp.asarray(seen, jnp.int16)).shape == (2, 5)


@pytest.mark.parametrize(
    ("network", "observation", "said"),
    [
        (Network(torso="impala"), jax.ShapeDtypeStruct((4,), jnp.float32), "needs images"),
        (Network(torso="strided"), jax.ShapeDtypeStruct((10, 10, 3), jnp.float32), "use 'conv'"),
        (Network(torso="strided", channels=(1, 2, 3, 4)), IMAGE, "at most 3 layers"),
        (Network(hidden=()), IMAGE, "hidden layer"),
    ],
)
def test_a_torso_that_does_not_fit_says_so(network, observation, said):
    with pytest.raises(ValueError, match=said):
        make_torso(jax.random.key(0), observation, network)


def test_the_paper_s_network_has_the_parameters_that_its_sizes_ask_for():
    network = Network(torso="impala", channels=(256, 384, 384, 256), hidden=(768,), action_model=1024, action_hidden=(1024,))
    heads = {"policy": Head(18), "z": Head(600, per_action=True)}
    agent = jax.eval_shape(lambda key: make_agent(key, IMAGE, 18, heads, network), jax.random.key(0))
    counted, inputs = 0, 4
    for outputs in network.channels:
        counted += 9 * inputs * outputs + outputs + 4 * (9 * outputs * outputs + outputs)  # a convolution and two blocks of two
        inputs = outputs
    counted += 6 * 6 * 256 * 768 + 768  # 84 -> 42 -> 21 -> 11 -> 6
    counted += 768 * 18 + 18
    counted += 768 * 1024 + 1024 + (18 + 1024) * 4096 + 4096  # root, action LSTM
    counted += 1024 * 1024 + 1024 + 1024 * 600 + 600
    assert sum(leaf.size for leaf in jax.tree.leaves(agent)) == counted


@pytest.mark.parametrize("name", ["lstm", "gru", "mlp"])
def test_burn_in_refreshes_the_memory_and_changes_nothing_else(name):
    """From the right memory, and an agent that has not changed: the rest of a trajectory is read as if all of it had been."""
    agent = make(name)
    data = experience(agent)
    whole = agent.predict(agent.embed(data))["policy"]
    rest = after_burn_in(agent, data, 2)
    assert rest.action.shape[0] == data.action.shape[0] - 2
    np.testing.assert_allclose(agent.predict(agent.embed(rest))["policy"], whole[2:], rtol=1e-5, atol=1e-6)
    if NETWORKS[name].core != "none":
        stale = rest._replace(memory=data.memory)
        assert np.abs(np.asarray(agent.predict(agent.embed(stale))["policy"][0] - whole[2])).max() > 1e-6


def test_the_handle_of_an_agent_takes_dictionaries():
    """What `rulax train nethack/...` tells users to call at the end."""
    network = Network(hidden=(5,), symbols=50, embedding=4)
    agent = make_agent(jax.random.key(0), NETHACK, 3, {"policy": Head(3)}, network)
    environment = SimpleNamespace(
        observation=NETHACK, native_action=lambda action: action, preprocess=lambda observation: observation
    )
    handle = AgentHandle(agent, environment)
    one = {"glyphs": np.ones((21, 79), np.int16), "blstats": np.arange(27.0)}
    assert handle.act(one) in (0, 1, 2)
    assert AgentHandle(agent, environment).act({name: np.stack([part] * 4) for name, part in one.items()}).shape == (4,)
    with pytest.raises(ValueError, match="an observation has shape"):
        handle.act({"glyphs": np.ones((21, 78), np.int16), "blstats": np.arange(27.0)})
