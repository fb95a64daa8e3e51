"""The episodic LSTM: equal to a plain loop in NumPy with a dictionary for a table, in acting and in learning."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents import make_agent
from rulax.agents.cores import RecurrentCore, make_core
from rulax.settings import Network
from rulax.types import Head, Level

FEATURES, HIDDEN, BITS, STREAMS = 3, 4, 2, 2


@pytest.fixture(scope="module")
def core():
    made, width = make_core(jax.random.key(0), "episodic_lstm", FEATURES, HIDDEN, Level.EPISODE, BITS, rows=2)
    assert width == HIDDEN
    return made


@pytest.fixture(scope="module")
def lived():
    """Inputs [T, B, FEATURES + BITS] and `first` [T, B]: episodes of one to five steps of three contexts, and two epochs."""
    rng = np.random.default_rng(2)
    first, contexts = np.zeros((40, STREAMS), np.int8), np.zeros((40, STREAMS, BITS), np.float32)
    for b in range(STREAMS):
        t = 0
        while t < 40:
            first[t, b] = Level.LIFE if t == 0 else Level.TRIAL if t in range(26, 31) else Level.EPISODE
            length = int(rng.integers(1, 6))
            contexts[t : t + length, b] = [[0, 1], [1, 0], [1, 1]][int(rng.integers(3))]
            t += length
    x = rng.standard_normal((40, STREAMS, FEATURES)).astype(np.float32)
    return jnp.concatenate([x, contexts], -1), jnp.asarray(first)


def by_hand(core, x, first, rows):
    """Outputs [T, H] of one stream: the paper's equations, with an ordered dictionary of at most `rows` cells."""

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    w, u, b = (np.asarray(part, np.float64) for part in (core.cell.weight_input, core.cell.weight_hidden, core.cell.bias))
    wr, ur, br = (np.asarray(part, np.float64) for part in (core.gate.weight, core.gate_hidden, core.gate.bias))
    table: dict = {}
    h = c = np.zeros(HIDDEN)
    before = None
    outputs = []
    for step, starts in zip(np.asarray(x, np.float64), np.asarray(first), strict=True):
        features, context = step[:FEATURES], tuple(step[FEATURES:])
        if starts and before is not None:
            table.pop(before, None)  # written last, so it is the last to go
            table[before] = c
            if len(table) > rows:
                del table[next(iter(table))]
        if starts >= Level.TRIAL:
            table = {}
        if starts:
            h = c = np.zeros(HIDDEN)
        i, g, f, o = np.split(features @ w + h @ u + b, 4)
        r = sigmoid(features @ wr + h @ ur + br)
        c = sigmoid(i) * np.tanh(g) + sigmoid(f + 1) * c + r * table.get(context, np.zeros(HIDDEN))
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
        before = context
    return np.stack(outputs)


def test_it_is_the_papers_equations_with_a_table(core, lived):
    x, first = lived
    memory = core.initial((STREAMS,))
    outputs = core.unroll(memory, x, first)
    for b in range(STREAMS):
        np.testing.assert_allclose(outputs[:, b], by_hand(core, x[:, b], first[:, b], rows=2), atol=1e-5)
    # With room for one context only, others are lost: the table is really read, and really full.
    assert not np.allclose(outputs[:, 0], by_hand(core, x[:, 0], first[:, 0], rows=1), atol=1e-3)


def test_acting_and_learning_write_and_read_alike_wherever_experience_is_cut(core, lived):
    x, first = lived
    memory = start = core.initial((STREAMS,))
    step = jax.jit(lambda memory, x, first: core.step(memory, x, first))
    acted = []
    for t in range(len(x)):
        memory, output = step(memory, x[t], first[t])
        acted.append(output)
    np.testing.assert_allclose(jnp.stack(acted), core.unroll(start, x, first), atol=1e-6)
    half = len(x) // 2  # in the middle of an episode of one stream at least
    assert not first[half].all()
    remember = jax.jit(lambda memory, x, first: core.remember(memory, x, first))  # of one length, so it compiles once
    middle = remember(start, x[:half], first[:half])
    np.testing.assert_allclose(core.unroll(middle, x[half:], first[half:]), jnp.stack(acted)[half:], atol=1e-6)
    after = remember(middle, x[half:], first[half:])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), after, memory)


def test_no_gradient_passes_through_what_is_stored(core):
    """The second episode of a context depends on the inputs of the first, but no gradient reaches them; its own inputs get one."""
    x = jax.random.normal(jax.random.key(2), (6, 1, FEATURES))
    first = jnp.array([3, 0, 0, 1, 0, 0], jnp.int8)[:, None]

    def second(x):
        x = jnp.concatenate([x, jnp.ones((6, 1, BITS))], -1)
        return jnp.sum(core.unroll(core.initial((1,)), x, first)[3:])

    evaluate = jax.jit(jax.value_and_grad(second))
    value, slope = evaluate(x)
    assert abs(float(value - evaluate(x.at[0].add(1.0))[0])) > 1e-4
    assert not slope[:3].any()
    assert (slope[3:] != 0).any(-1).all()


def test_a_closed_gate_leaves_a_plain_lstm(core, lived):
    x, first = lived
    closed = eqx.tree_at(lambda core: core.gate.bias, core, jnp.full(HIDDEN, -1e9))
    plain = RecurrentCore(core.cell)
    expected = plain.unroll(plain.initial((STREAMS,)), x[..., :FEATURES], first)
    np.testing.assert_allclose(closed.unroll(closed.initial((STREAMS,)), x, first), expected, atol=1e-6)


def test_a_table_that_would_never_be_written_and_observations_without_a_context_are_refused():
    with pytest.raises(ValueError, match="with memory_level life is nowhere"):
        make_core(jax.random.key(0), "episodic_lstm", 3, 4, Level.LIFE, 2, 1)
    network = Network(hidden=(4,), core="episodic_lstm", core_size=4)
    for observation in (
        jax.ShapeDtypeStruct((3,), jnp.float32),
        {"observation": jax.ShapeDtypeStruct((3,), jnp.float32)},
        {"context": jax.ShapeDtypeStruct((3, 3), jnp.float32)},
    ):
        with pytest.raises(ValueError, match="needs observations with a part 'context'"):
            make_agent(jax.random.key(0), observation, 2, {"value": Head(1)}, network)
