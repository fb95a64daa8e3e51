"""Folded stacks of frames unfold to what they were, bit by bit, wherever episodes begin; and what is no stack is refused."""

import jax
import numpy as np
import pytest

from rulax.learning.frames import fold, folded_form, unfold

STEPS, STREAMS, SIDE, FRAMES = 12, 3, 5, 4


def stacks(padding, starts, seed=0, colours=1):
    """[B, T+1, H, W, F C] as a stacking wrapper makes them: a queue of the last frames, padded where an episode starts."""
    generator = np.random.default_rng(seed)
    rows = []
    for stream in range(STREAMS):
        queue = [generator.integers(0, 256, (SIDE, SIDE, colours), np.uint8) for _ in range(FRAMES)]  # an episode is under way
        row = []
        for time in range(STEPS + 1):
            new = generator.integers(0, 256, (SIDE, SIDE, colours), np.uint8) * (generator.random() > 0.2)  # some are black
            if (stream, time) in starts:
                queue = [np.zeros_like(new) if padding == "black" else new] * FRAMES
            queue = [*queue[1:], new]
            row.append(np.concatenate(queue, -1))
        rows.append(row)
    return np.array(rows, np.uint8)


@pytest.mark.parametrize(("colours", "dtype"), [(1, np.uint8), (3, np.uint8), (1, np.int16), (2, np.float32)])
@pytest.mark.parametrize("padding", ["black", "repeated"])
def test_folding_is_exact(padding, colours, dtype):
    # Episodes that start at the first observation, in the middle, twice within one stack, at the last one, and never.
    shown = stacks(padding, {(0, 0), (0, 5), (0, 6), (0, 8), (1, STEPS)}, colours=colours)
    shown = shown if dtype == np.uint8 else (shown * 23.7).astype(dtype)  # symbols beyond a byte, fractions
    folded = fold(shown, FRAMES)
    form = folded_form(jax.ShapeDtypeStruct(shown.shape[1:], dtype), FRAMES)
    assert jax.tree.map(lambda x: (x.shape[1:], x.dtype), folded) == jax.tree.map(lambda x: (x.shape, x.dtype), form)
    assert folded.frames.nbytes == STREAMS * (STEPS + FRAMES) * SIDE**2 * colours * np.dtype(dtype).itemsize
    in_time = jax.tree.map(lambda x: np.swapaxes(x, 0, 1), folded)
    np.testing.assert_array_equal(jax.jit(unfold)(in_time), np.swapaxes(shown, 0, 1))


def test_long_trajectories_need_larger_numbers():
    shown = np.zeros((1, 300, 1, 1, 2), np.uint8)
    shown[0, :, 0, 0, 1] = np.arange(300) % 256
    shown[0, 1:, 0, 0, 0] = shown[0, :-1, 0, 0, 1]
    folded = fold(shown, 2)
    assert folded.number.dtype == np.uint16
    np.testing.assert_array_equal(unfold(jax.tree.map(lambda x: np.swapaxes(x, 0, 1), folded))[:, 0], shown[0])


def test_what_is_no_stack_is_refused():
    shown = stacks("black", {})
    shown[1, 7, 0, 0, 1] ^= 1
    with pytest.raises(ValueError, match="set `frames` of the environment to 1"):
        fold(shown, FRAMES)
