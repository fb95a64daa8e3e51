"""What the tests of host adapters share: a stream that is written down by hand from the bare library, action by action."""

import jax
import numpy as np

from rulax.types import Level


def live(environment, actions, seed=0):
    """Timesteps, each leaf stacked to [T+1, B, ...], of actions [T, B]."""
    streams = environment.open(actions.shape[1])
    try:
        timesteps = [streams.start(seed)]
        timesteps += [streams.step(action) for action in actions]
    finally:
        streams.close()
    return jax.tree.map(lambda *parts: np.stack(parts), *timesteps)


def seeds(seed, num_streams):
    """One seed per stream, as `ResettingStreams.start` says."""
    return [int(each) for each in np.random.SeedSequence(seed).generate_state(num_streams)]


def by_hand(reset, step, actions, dummy_after):
    """The rows of one stream: `reset()` gives an observation, `step(action)` observation, reward, terminated, truncated.

    `dummy_after` names the ends that are followed by a dummy step; after the others the next episode shows at once.
    """
    rows = [(reset(), True, 0.0, 1.0, True, False, 0.0, 0)]
    total, length, dummy = 0.0, 0, False
    for action in actions:
        if dummy:
            rows.append((reset(), True, 0.0, 1.0, False, False, 0.0, 0))
            dummy = False
            continue
        observation, reward, terminated, truncated = step(int(action))
        total, length = total + reward, length + 1
        end = "terminated" if terminated else "truncated" if truncated else ""
        dummy = bool(end) and end in dummy_after
        first = bool(end) and not dummy
        if first:
            observation = reset()
        rows.append((observation, first, reward, 0.0 if terminated else 1.0, True, bool(end), total, length))
        if end:
            total, length = 0.0, 0
    return rows


def assert_same(timesteps, stream, rows):
    """Stream number `stream` is what was written down by hand, in every field; statistics where an episode ended."""
    one = jax.tree.map(lambda x: x[:, stream], timesteps)
    observation, first, reward, discount, valid, ended, total, length = zip(*rows, strict=True)
    expected = jax.tree.map(lambda *parts: np.stack(parts), *observation)
    jax.tree.map(np.testing.assert_array_equal, one.observation, expected)
    np.testing.assert_array_equal(one.first > 0, first)
    assert one.first[0] == Level.LIFE
    assert one.first[1:].max() <= Level.EPISODE
    np.testing.assert_allclose(one.reward, np.float32(reward), rtol=1e-6)
    np.testing.assert_array_equal(one.discount, discount)
    np.testing.assert_array_equal(one.valid, valid)
    np.testing.assert_array_equal(one.episode.ended, ended)
    where = np.array(ended)
    np.testing.assert_allclose(one.episode.total[where], np.array(total)[where], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(one.episode.length[where], np.array(length)[where])


def assert_declared(environment, timesteps):
    """Observations are as declared, everything else as `envs/base.py` says."""
    steps, streams = timesteps.reward.shape
    shown = jax.tree.map(lambda x: (x.shape[2:], x.dtype), timesteps.observation)
    assert shown == jax.tree.map(lambda spec: (spec.shape, np.dtype(spec.dtype)), environment.observation)
    for field in (timesteps.reward, timesteps.discount, timesteps.episode.total):
        assert (field.dtype, field.shape) == (np.float32, (steps, streams))
    assert (timesteps.first.dtype, timesteps.first.shape) == (np.int8, (steps, streams))
    for field in (timesteps.valid, timesteps.episode.ended):
        assert (field.dtype, field.shape) == (bool, (steps, streams))
    assert timesteps.episode.length.dtype == np.int32
