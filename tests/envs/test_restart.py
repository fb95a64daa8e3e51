"""Environments that raise or die: only what must be lost is lost, the step teaches nothing, and a limit ends it in a sentence."""

import jax
import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.actions import one_of
from rulax.envs.adapters.restart import RestartingStreams
from rulax.envs.adapters.streams import CopiedEnvironment
from rulax.envs.base import EnvironmentFailed, HostEnvironment, HostStreams, Timestep
from rulax.types import Level

pytest.importorskip("gymnasium")

from rulax.envs.adapters import gymnasium as adapter

from .failing import HERE, ID


def live(environment, steps, most=10, num_streams=2):
    """Timesteps [T+1, B], and how often each stream was restarted."""
    streams = RestartingStreams(environment, num_streams, most)
    try:
        timesteps = [streams.start(0)] + [streams.step(np.zeros(num_streams, int)) for _ in range(steps)]
    finally:
        streams.close()
    return jax.tree.map(lambda *parts: np.stack(parts), *timesteps), streams.restarts


def columns(timesteps, stream):
    """Observation, first, valid, ended, total and length of one stream, in columns."""
    one = jax.tree.map(lambda x: x[:, stream], timesteps)
    statistics = [np.where(one.episode.ended, x, 0) for x in one.episode[1:]]
    return [
        x.tolist() for x in (one.observation[:, 0], one.observation[:, 1], one.first, one.valid, one.episode.ended, *statistics)
    ]


def test_one_stream_starts_again_and_the_other_goes_on(tmp_path):
    timesteps, restarts = live(adapter.make(ID, folder=str(tmp_path), who=(0,)), 7)
    assert restarts.tolist() == [1, 0]
    copy, count, first, valid, ended, total, length = columns(timesteps, 0)
    # The third step raises: it leads to the start of copy 2, whose own episode of four steps then counts alone.
    assert copy == [0, 0, 0, 2, 2, 2, 2, 2]
    assert count == [0, 1, 2, 0, 1, 2, 3, 0]
    assert first == [Level.LIFE, False, False, True, False, False, False, True]
    assert valid == [True, True, True, False, True, True, True, True]
    assert ended == [False] * 7 + [True]
    assert (total[-1], length[-1]) == (4.0, 4)
    assert timesteps.reward[3, 0] == 0
    copy, count, _, valid, ended, total, length = columns(timesteps, 1)
    assert copy == [1] * 8
    assert count == [0, 1, 2, 3, 0, 1, 2, 3]
    assert valid == [True] * 8
    assert (ended.index(True), total[4], length[4]) == (4, 4.0, 4)


def test_an_environment_that_fails_at_the_start_costs_no_other_stream(tmp_path):
    timesteps, restarts = live(adapter.make(ID, folder=str(tmp_path), what="reset", when=0, who=(0,)), 2)
    assert restarts.tolist() == [1, 0]
    assert columns(timesteps, 0)[1] == columns(timesteps, 1)[1] == [0, 1, 2]


def test_an_environment_that_fails_to_reset_is_replaced_too(tmp_path):
    timesteps, restarts = live(adapter.make(ID, folder=str(tmp_path), what="reset", when=4, who=(0,)), 6)
    assert restarts.tolist() == [1, 0]
    copy, count, first, valid, ended, *_ = columns(timesteps, 0)
    assert copy == [0, 0, 0, 0, 2, 2, 2]
    assert count == [0, 1, 2, 3, 0, 1, 2]
    assert first == [Level.LIFE, False, False, False, True, False, False]
    assert valid == [True] * 7, "what led to the end did happen"
    assert ended == [False, False, False, False, True, False, False], "that episode had ended before, and counts"
    assert (timesteps.episode.total[4, 0], timesteps.episode.length[4, 0]) == (4.0, 4)


def test_too_many_failures_end_the_run_in_one_sentence(tmp_path):
    environment = adapter.make(ID, folder=str(tmp_path), every=True)
    _, restarts = live(environment, 9, most=3)
    assert restarts.tolist() == [3, 3]
    with pytest.raises(
        EnvironmentFailed, match=r"3 per stream are allowed.*OSError: the emulator fell over \(failing.py, line \d+\)$"
    ):
        live(environment, 12, most=3)


def test_what_gymnasiums_own_vector_raises_costs_all_streams(tmp_path):
    timesteps, restarts = live(adapter.make(ID, autoreset="next_step", folder=str(tmp_path), when=2, who=(0,)), 3)
    assert restarts.tolist() == [1, 1]
    for stream in range(2):
        _, count, first, valid, *_ = columns(timesteps, stream)
        assert (count, first, valid) == ([0, 1, 0, 1], [Level.LIFE, False, Level.LIFE, False], [True, True, False, True])


def test_the_death_of_a_process_costs_all_streams(tmp_path):
    environment = make(HERE + ID, processes=2, folder=str(tmp_path), what="exit", when=2, who=(0,))
    timesteps, restarts = live(environment, 5)
    assert restarts.tolist() == [1, 1]
    for stream in range(2):
        _, count, first, valid, ended, *_ = columns(timesteps, stream)
        assert count == [0, 1, 0, 1, 2, 3]
        assert first == [Level.LIFE, False, Level.LIFE, False, False, False]
        assert valid == [True, True, False, True, True, True]
        assert not any(ended)


def test_a_dead_process_is_named(tmp_path):
    environment = make(HERE + ID, processes=1, folder=str(tmp_path), what="exit", when=1, every=True)
    with pytest.raises(EnvironmentFailed, match=r"none is allowed.*the process of stream 0 died with exit code 7"):
        live(environment, 2, most=0, num_streams=1)


class Brittle(HostEnvironment, HostStreams):
    """A vector that some library steps as a whole: it raises at its third step, for the first two times that it is opened."""

    num_actions, observation = 2, jax.ShapeDtypeStruct((1,), np.float32)

    def __init__(self):
        self.opened, self.seeds = 0, []

    def open(self, num_streams):
        self.opened, self.steps, self.num_streams = self.opened + 1, 0, num_streams
        return self

    def start(self, seed):
        self.seeds.append(seed)
        return self.show(True)

    def step(self, action):
        self.steps += 1
        if self.steps == 3 and self.opened < 3:
            raise RuntimeError("out of cheese")
        return self.show(False)

    def show(self, first):
        flags, numbers = np.full(self.num_streams, first), np.full(self.num_streams, self.steps, np.float32)
        return Timestep(numbers[:, None], flags, numbers, numbers + 1, ~np.zeros_like(flags), (flags & False, numbers, numbers))

    def close(self):
        pass


def test_a_vector_that_raises_is_opened_again_with_another_seed():
    environment = Brittle()
    timesteps, restarts = live(environment, 8)
    assert restarts.tolist() == [2, 2]
    assert timesteps.observation[:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert timesteps.valid[:, 0].tolist() == [True, True, True, False, True, True, False, True, True]
    assert len(set(environment.seeds)) == 3, "the same seed would lead to the same failure"


class Tired:
    """One copy of a library without vectors: the first to be made raises at its second step."""

    made = 0

    def __init__(self):
        self.number, self.count = Tired.made, 0
        Tired.made += 1

    def reset(self, seed):
        self.count = 0
        return np.array([self.number, 0], np.float32)

    def step(self, action):
        self.count += 1
        if self.number == 0 and self.count == 2:
            raise KeyError("sleep")
        return np.array([self.number, self.count], np.float32), 1.0, False, self.count == 3

    def close(self):
        raise RuntimeError("too tired to close")


def test_a_single_copy_is_replaced(monkeypatch):
    monkeypatch.setattr(Tired, "made", 0)
    environment = CopiedEnvironment("tired", one_of(2), jax.ShapeDtypeStruct((2,), np.float32), Tired)
    streams = RestartingStreams(environment, 2)
    timesteps = [streams.start(0)] + [streams.step(np.zeros(2, int)) for _ in range(5)]
    timesteps = jax.tree.map(lambda *parts: np.stack(parts), *timesteps)
    assert streams.restarts.tolist() == [1, 0]
    copy, count, first, valid, ended, total, length = columns(timesteps, 0)
    assert copy == [0, 0, 2, 2, 2, 2]
    assert count == [0, 1, 0, 1, 2, 3]
    assert first == [Level.LIFE, False, True, False, False, False]
    assert valid == [True, True, False, True, True, True]
    assert (ended, total[-1], length[-1]) == ([False] * 5 + [True], 3.0, 3)
    assert columns(timesteps, 1)[1] == [0, 1, 2, 3, 0, 1]
