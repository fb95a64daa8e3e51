"""Noise and skills that last, for host environments: what `envs/lasting.py` is for compiled ones.

Every stream has its own generator, seeded by the streams' seed, the stream's number and what is drawn: draws depend neither on the
number of streams or processes nor on each other.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from rulax.envs.base import HostStreams, Timestep, WrappedHost, WrappedStreams
from rulax.envs.lasting import Draw, Showing
from rulax.types import starts


@dataclasses.dataclass(frozen=True, eq=False)
class HostLasting(Showing, WrappedHost):  # type: ignore[override]  # as in `WrappedHost`
    """A host environment whose observations also show what was drawn."""

    draw: Draw

    @property
    def frames(self) -> int:  # type: ignore[override]
        return self.environment.frames

    def open(self, num_streams: int) -> LastingStreams:
        return LastingStreams(self.draw, self.environment.open(num_streams), num_streams)


class LastingStreams(WrappedStreams):
    """Open streams, and what was drawn for each."""

    def __init__(self, draw: Draw, streams: HostStreams, num_streams: int):
        super().__init__(streams)
        self.draw, self.num_streams = draw, num_streams

    def start(self, seed: int) -> Timestep:
        # The name sets two draws around one environment apart.
        seeds = np.random.SeedSequence([seed, *self.draw.name.encode()]).spawn(self.num_streams)
        self.generators = [np.random.default_rng(each) for each in seeds]
        self.drawn = np.zeros((self.num_streams, self.draw.size), np.float32)
        return super().start(seed)

    def show(self, timestep: Timestep) -> Timestep:
        started = np.flatnonzero(starts(np.asarray(timestep.first), self.draw.level))
        if started.size:
            self.drawn = self.drawn.copy()  # the old array may still be in use
            for stream in started:
                self.drawn[stream] = self.draw.sample_on_host(self.generators[stream])
        return timestep._replace(observation=self.draw.show(timestep.observation, self.drawn))
