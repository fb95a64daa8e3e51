"""Host environments that survive errors: an environment that raises is replaced, its step is not valid, and restarts are counted.

There are two layers. `CopiedStreams` replace a single copy that raises, in this process or in those of `workers.py`: only its own
stream starts a new episode. `RestartingStreams` surround all streams, of any library: whatever still raises (a library in C++, a
worker process that died) costs the episodes of all of them, because the rest of a broken vector cannot be trusted. All streams are
opened again, and their first observations start a life (`Level.LIFE`): nothing that was drawn for the old ones is left. Restarts of
both kinds are counted, and too many end the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rulax.envs.adapters import quietly, said
from rulax.envs.base import EnvironmentFailed, HostEnvironment, HostStreams, Timestep

MOST_RESTARTS = 10


def with_levels(timestep: Timestep) -> Timestep:
    """The same timestep with `first` as levels, int8: a user's streams may say with booleans where an episode starts.

    Without this a run would train, but its state would not have the dtypes that a resumed run expects.
    """
    return timestep._replace(first=np.asarray(timestep.first, np.int8))  # type: ignore[arg-type]


class RestartingStreams(HostStreams):
    """Streams that go on after errors, until one of them has had more than `most`."""

    def __init__(self, environment: HostEnvironment, num_streams: int, most: int = MOST_RESTARTS):
        self.environment, self.num_streams, self.most = environment, num_streams, most
        self.streams = environment.open(num_streams)
        self.restarts = np.zeros(num_streams, np.int64)  # of each stream
        self.said = ""  # the text of the last error
        self.seed, self.closed, self.released = 0, False, False

    def start(self, seed: int) -> Timestep:
        if self.closed:  # the error of closed streams would otherwise open new ones, which nobody would close
            raise ValueError("these streams are closed; open new ones")
        self.seed = seed
        try:
            if self.released:
                self.streams, self.released = self.environment.open(self.num_streams), False
            timestep = self.streams.start(seed)
        except Exception as error:
            return self._open_again(error)
        self._count(self.streams.failed)
        return with_levels(timestep)

    def step(self, action: np.ndarray) -> Timestep:
        try:
            timestep = self.streams.step(action)
        except Exception as error:
            # Closed streams refuse calls on purpose, and must not be opened again.
            if self.closed:
                raise
            nothing: Any = np.zeros(self.num_streams, bool)
            return self._open_again(error)._replace(valid=nothing)  # nothing can be learned from the step that failed
        self._count(self.streams.failed)
        return with_levels(timestep)

    def release(self) -> None:
        """Close all environments until the next `start`."""
        if not self.released:
            self.released = True
            self.streams.close()

    def close(self) -> None:
        self.closed = True
        self.release()

    def _open_again(self, error: Exception) -> Timestep:
        """Open and start all streams again, as often as it takes."""
        while True:
            # By force, since broken streams may hang in `close`.
            quietly(self.streams.abandon)
            # Counted before each try, so that an environment that can never be opened ends the loop.
            self._count(dict.fromkeys(range(self.num_streams), said(error)), error)
            # All counts enter the seed: other episodes after each restart, and the same ones in a repeated run.
            seed = np.random.SeedSequence([self.seed, *self.restarts.tolist()]).generate_state(1)[0]
            try:
                self.streams, self.released = self.environment.open(self.num_streams), False
                timestep = self.streams.start(int(seed))
            except Exception as another:
                error = another
            else:
                self._count(self.streams.failed)
                return with_levels(timestep)

    def _count(self, failed: Mapping[int, str], cause: Exception | None = None) -> None:
        for stream, text in failed.items():
            self.restarts[stream] += 1
            self.said = text
            if self.restarts[stream] > self.most:
                allowed = "none is allowed" if not self.most else f"{self.most} per stream are allowed"
                raise EnvironmentFailed(
                    f"an environment had to be restarted too often (stream {stream}, {allowed}, see --most-restarts); the last "
                    f"time because of {text}",
                    int(self.restarts.sum()),
                ) from cause
