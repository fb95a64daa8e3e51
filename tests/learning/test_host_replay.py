"""Replay in host memory: number by number what the buffer on the device gives; its size is predicted, and limited."""

import jax
import numpy as np
import pytest

from rulax.learning import host_replay
from rulax.learning import replay as ring
from rulax.parallel import machine
from rulax.text import bytes_text
from rulax.types import Experience

TIME, STREAMS, SEEDS = 3, 4, 2


def random_experience(generator):
    """[K, T, B, ...] as the device has it."""

    def numbers(*shape, dtype=np.float32):
        return generator.normal(size=(SEEDS, *shape)).astype(dtype)

    observation = {"image": numbers(TIME + 1, STREAMS, 2, 2, dtype=np.uint8), "vector": numbers(TIME + 1, STREAMS, 3)}
    per_step = [numbers(TIME, STREAMS) for _ in range(4)]
    return Experience(
        observation, per_step[0].astype(np.int32), *per_step[1:3], numbers(TIME + 1, STREAMS) > 0, per_step[3] > 0,
        numbers(TIME, STREAMS, 2), (numbers(STREAMS, 5),),
    )  # fmt: skip


def by_trajectory(experience):
    """[K, T, B, ...] -> [K, B, T, ...], memory as it is."""
    turned = jax.tree.map(lambda x: np.swapaxes(x, 1, 2), experience._replace(memory=()))
    return turned._replace(memory=experience.memory)


@pytest.mark.parametrize(("fraction", "batch"), [(0.5, 6), (1.0, 5), (0.25, 4)])
def test_the_same_batches_as_on_the_device(fraction, batch):
    generator = np.random.default_rng(0)
    add, mix = jax.jit(ring.add), jax.jit(ring.mix, static_argnums=(2, 3))
    example = jax.tree.map(lambda x: x[0], random_experience(generator))
    device = [ring.start(example, 10) for _ in range(SEEDS)]
    form = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), by_trajectory(random_experience(generator)))
    host = host_replay.HostReplay(form, SEEDS, STREAMS, 10)
    assert host.capacity == 12, "rounded up to a multiple of the streams"
    for step in range(5):  # goes round once and a half
        fresh, keys = random_experience(generator), jax.random.split(jax.random.key(step), SEEDS)
        host.add(by_trajectory(fresh))
        drawn = host_replay.mix(host, by_trajectory(fresh), batch, fraction, keys)
        for seed in range(SEEDS):
            own = jax.tree.map(lambda x, seed=seed: x[seed], fresh)
            device[seed] = add(device[seed], own)
            assert int(device[seed].filled) == host.filled
            wanted = mix(device[seed], own, batch, fraction, keys[seed])
            got = jax.tree.map(lambda x, seed=seed: x[seed : seed + 1], drawn)
            got = jax.tree.map(lambda x: x[0], by_trajectory(got))
            jax.tree.map(np.testing.assert_array_equal, got, wanted)
            assert got.observation["image"].dtype == np.uint8


def test_without_a_buffer_a_batch_is_some_of_the_fresh_streams():
    fresh, keys = random_experience(np.random.default_rng(1)), jax.random.split(jax.random.key(0), SEEDS)
    drawn = host_replay.mix(None, by_trajectory(fresh), 3, 0.0, keys)
    wanted = ring.mix(None, jax.tree.map(lambda x: x[1], fresh), 3, 0.0, keys[1])
    np.testing.assert_array_equal(np.swapaxes(drawn.reward[1], 0, 1), wanted.reward)


def test_the_size_is_what_it_takes_and_the_limit_says_what_fits():
    form = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), by_trajectory(random_experience(np.random.default_rng(0)))
    )
    replay = host_replay.HostReplay(form, SEEDS, STREAMS, 98)
    taken = sum(leaf.nbytes for leaf in jax.tree.leaves(replay.storage))
    assert taken == host_replay.size_of(form) * 100 * SEEDS
    assert (
        host_replay.reserve(form, SEEDS, STREAMS, 98, taken)
        == f"replay: 100 trajectories x 2 seeds, {taken / 1024:.3g} KiB in host memory"
    )
    with pytest.raises(ValueError, match=r"--capacity 96 would fit"):
        host_replay.reserve(form, SEEDS, STREAMS, 98, taken - 1)
    with pytest.raises(ValueError, match="lower --streams"):
        host_replay.reserve(form, SEEDS, STREAMS, 98, 10)
    free = machine.free_memory()
    if free:
        beyond = int(free / host_replay.size_of(form))
        with pytest.raises(ValueError, match="80 % of what is free"):
            host_replay.reserve(form, 1, STREAMS, beyond)
        host_replay.reserve(form, 1, STREAMS, beyond // 4)


def test_sizes_read_well():
    assert [bytes_text(size) for size in (100, 2040109466, 3 * 2**40)] == ["0.0977 KiB", "1.9 GiB", "3 TiB"]


def test_the_cache_of_files_is_free_memory(monkeypatch):
    """A container with a limit of 32 GiB in which 30 are used, 28 of them by files that were read."""
    files = {
        "/proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {100 * 2**20} kB\n",
        "/sys/fs/cgroup/memory.max": str(32 * 2**30),
        "/sys/fs/cgroup/memory.current": str(30 * 2**30),
        "/sys/fs/cgroup/memory.stat": f"anon {2 * 2**30}\ninactive_file {28 * 2**30}\n",
    }
    monkeypatch.setattr(machine.Path, "read_text", lambda self, *_: files[str(self)])
    assert machine.free_memory() == 30 * 2**30
    files["/sys/fs/cgroup/memory.max"] = "max"
    assert machine.free_memory() == 100 * 2**30
