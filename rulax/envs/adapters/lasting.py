"""Noise and skills that last, for host environments: what `envs/lasting.py` is for compiled ones.

Every stream has its own generator, seeded by the streams' seed, the stream's number and what is drawn: draws depend neither on the
number of streams or processes nor on each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from rulax.envs.base import HostStreams, Timestep, WrappedHost
from rulax.envs.lasting import Draw, preprocess_shown
from rulax.types import PyTree, starts


@dataclasses.dataclass(frozen=True, eq=False)
class HostLasting(WrappedHost):
    """A host environment whose observations also show what was drawn."""

    draw: Draw

    @property
    def observation(self) -> PyTree:  # type: ignore[override]
        return self.draw.shown(self.environment.observation)

    @property
    def frames(self) -> int:  # type: ignore[override]
        return self.environment.frames

    def open(self, num_streams: int) -> LastingStreams:
        return LastingStreams(self.draw, self.environment.open(num_streams), num_streams)

    def preprocess(self, observation: PyTree) -> PyTree:
        return preprocess_shown(self.environment, self.draw, observation)


class LastingStreams(HostStreams):
    """Open streams, and what was drawn for each."""

    def __init__(self, draw: Draw, streams: HostStreams, num_streams: int):
        self.draw, self.streams, self.num_streams = draw, streams, num_streams

    @property
    def failed(self) -> Mapping[int, str]:  # type: ignore[override]
        return self.streams.failed

    def start(self, seed: int) -> Timestep:
        # The name sets two draws around one environment apart.
        seeds = np.random.SeedSequence([seed, *self.draw.name.encode()]).spawn(self.num_streams)
        self.generators = [np.random.default_rng(each) for each in seeds]
        self.drawn = np.zeros((self.num_streams, self.draw.size), np.float32)
        return self._show(self.streams.start(seed))

    def step(self, action: np.ndarray) -> Timestep:
        return self._show(self.streams.step(action))

    def close(self) -> None:
        self.streams.close()

    def abandon(self) -> None:
        self.streams.abandon()

    def _show(self, timestep: Timestep) -> Timestep:
        started = np.flatnonzero(starts(np.asarray(timestep.first), self.draw.level))
        if started.size:
            self.drawn = self.drawn.copy()  # the old array may still be in use
            for stream in started:
                self.drawn[stream] = self.draw.sample_on_host(self.generators[stream])
        return timestep._replace(observation=self.draw.show(timestep.observation, self.drawn))
