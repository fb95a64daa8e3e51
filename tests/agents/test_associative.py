"""The associative core: equal to a list of all that was written, in acting and in learning, and aligned to the step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.cores import make_core
from rulax.types import Level

FEATURES, HIDDEN, ROWS, TIME, STREAMS = 3, 4, 2, 12, 2


@pytest.fixture(scope="module")
def core():
    made, width = make_core(jax.random.key(0), "associative", FEATURES, HIDDEN, Level.TRIAL, rows=ROWS)
    assert width == HIDDEN
    return made


@pytest.fixture(scope="module")
def lived():
    """Inputs [T, B, FEATURES] and `first` [T, B]: episodes, which the memory outlasts, and in one stream a second trial."""
    x = np.random.default_rng(1).standard_normal((TIME, STREAMS, FEATURES)).astype(np.float32)
    first = np.zeros((TIME, STREAMS), np.int8)
    first[0], first[3], first[7, 1] = Level.LIFE, Level.EPISODE, Level.TRIAL
    return jnp.asarray(x), jnp.asarray(first)


def by_hand(core, x, first):
    """Outputs [T, H] of one stream: attention over the list of (address, what came after it), without any matrix."""
    layers = (core.address, core.content, core.output)
    (wk, bk), (wv, bv), (wo, bo) = ((np.asarray(part.weight, np.float64), np.asarray(part.bias, np.float64)) for part in layers)
    written, before, outputs = [], None, []
    for step, starts in zip(np.asarray(x, np.float64), np.asarray(first), strict=True):
        if starts >= Level.TRIAL:
            written, before = [], None
        if before is not None:
            written.append((before, step @ wv + bv))
        before = (step @ wk + bk) / np.linalg.norm(step @ wk + bk)
        found = sum((address @ before * content for address, content in written), np.zeros(HIDDEN))
        squashed = np.sign(found) * np.log1p(np.abs(found))
        outputs.append(np.maximum(0, np.concatenate([squashed, step]) @ wo + bo))
    return np.stack(outputs)


def test_it_is_attention_over_all_that_was_written(core, lived):
    x, first = lived
    found = core.unroll(core.initial((STREAMS,)), x, first)
    for b in range(STREAMS):
        np.testing.assert_allclose(found[:, b], by_hand(core, x[:, b], first[:, b]), rtol=2e-4, atol=2e-5)


def test_acting_and_learning_read_the_same_memory(core, lived):
    x, first = lived
    memory = core.initial((STREAMS,))
    learned, end = core.unroll(memory, x, first), core.remember(memory, x, first)
    for t in range(TIME):
        memory, acted = core.step(memory, x[t], first[t])
        np.testing.assert_allclose(acted, learned[t], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(memory.table, end.table, rtol=1e-5, atol=1e-6)


def test_what_a_step_brought_is_found_where_the_step_was_made(core):
    """With addresses that are the first two numbers and contents that are the third: a reward, shown one observation later, is read
    where the observation before it comes back, and nowhere else."""
    content = np.zeros((FEATURES, HIDDEN), np.float32)
    content[2, 0] = 1
    weights = jnp.eye(FEATURES, ROWS), jnp.asarray(content)
    made = eqx.tree_at(lambda each: (each.address.weight, each.content.weight), jax.tree.map(jnp.zeros_like, core), weights)
    place_a, place_b = [1, 0], [0, 1]
    seen = [[*place_a, 0], [*place_b, 5], [*place_b, -3], [*place_a, 2], [*place_b, 0]]
    x = jnp.asarray(seen, jnp.float32)[:, None]
    first = jnp.asarray([Level.LIFE, 0, 0, 0, 0], jnp.int8)[:, None]
    memory = made.remember(made.initial((1,)), x, first)
    # In A once: 5 followed. In B twice: -3 and 2. What followed the second time in A is 0.
    np.testing.assert_allclose(memory.table[0, :, 0], [5 + 0, -3 + 2], atol=1e-4)
    np.testing.assert_allclose(memory.address[0], place_b, atol=1e-4)
