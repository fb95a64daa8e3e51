"""The replay buffer: writes over the oldest, samples only what is there, mixes in the stated proportion."""

import jax
import jax.numpy as jnp
import numpy as np

from rulax.learning import replay as ring
from rulax.types import Experience

TIME = 2


def trajectories(labels):
    """Experience whose every number is the label of its trajectory."""
    labels = jnp.asarray(labels, jnp.float32)
    per_step = jnp.broadcast_to(labels, (TIME, len(labels)))
    per_observation = jnp.broadcast_to(labels, (TIME + 1, len(labels)))
    logits = per_step[..., None]
    return Experience(
        per_observation,
        per_step.astype(int),
        per_step,
        per_step,
        per_observation > 0,
        per_step > 0,
        logits,
        {"h": labels[:, None]},
    )


def test_the_oldest_is_overwritten_and_capacity_is_rounded_up():
    buffer = ring.start(trajectories([0, 0]), 5)
    assert buffer.storage.action.shape == (TIME, 6)
    for step in range(4):
        buffer = ring.add(buffer, trajectories([2 * step + 1, 2 * step + 2]))
        assert int(buffer.filled) == min(2 * step + 2, 6)
    np.testing.assert_array_equal(buffer.storage.reward[0], [7, 8, 3, 4, 5, 6])
    np.testing.assert_array_equal(buffer.storage.memory["h"][:, 0], [7, 8, 3, 4, 5, 6])


def test_samples_are_uniform_over_what_is_there_and_keep_trajectories_whole():
    buffer = ring.add(ring.start(trajectories([0, 0, 0]), 9), trajectories([1, 2, 3]))
    buffer = ring.add(buffer, trajectories([4, 5, 6]))
    drawn = ring.mix(buffer, trajectories([4, 5, 6]), 6000, 1.0, jax.random.key(0))
    labels, counts = np.unique(np.asarray(drawn.reward[0]), return_counts=True)
    np.testing.assert_array_equal(labels, [1, 2, 3, 4, 5, 6])
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)
    np.testing.assert_array_equal(drawn.reward, drawn.observation[:-1])
    np.testing.assert_array_equal(drawn.reward[0], drawn.memory["h"][:, 0])


def test_a_batch_mixes_fresh_and_replayed_in_proportion():
    fresh = trajectories([11, 12, 13, 14])
    buffer = ring.add(ring.start(fresh, 8), trajectories([1, 2, 3, 4]))
    for fraction, replayed in [(0.75, 6), (0.5, 4), (1.0, 8)]:
        batch = ring.mix(buffer, fresh, 8, fraction, jax.random.key(1))
        labels = np.asarray(batch.reward[0])
        assert labels.shape == (8,)
        assert (labels < 10).sum() == replayed
        assert len(set(labels[labels > 10])) == 8 - replayed, "fresh trajectories are used at most once"
        np.testing.assert_array_equal(labels, batch.memory["h"][:, 0])
