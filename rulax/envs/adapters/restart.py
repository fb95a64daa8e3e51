"""Host environments that survive errors: an environment that raises is replaced, its step is not valid, and restarts are counted.

There are two layers. `CopiedStreams` replace a single copy that raises, in this process or in those of `workers.py`: only its own
stream starts a new episode. `RestartingStreams` surround all streams, of any library: whatever still raises (a library in C++, a
worker process that died) costs the episodes of all of them, because the rest of a broken vector cannot be trusted. All streams are
opened again, and their first observations start a life (`Level.LIFE`): nothing that was drawn for the old ones is left. Restarts of
both kinds are counted, and too many end the run.

What no restart mends ends the run at once: observations and rewards that are not what was declared (`checking.py`), and a call that
hangs in this process (`limit.py`); a process that hangs is killed, and counts as one that died.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rulax.envs.adapters import is_an_environments, limit, said
from rulax.envs.adapters.checking import Checker, name_of
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
        name = name_of(environment)
        self.setup, self.calls = limit.Guard(name, least=limit.SETUP), limit.Guard(name)
        self.closing = limit.Guard(name, least=limit.CLOSING, most=limit.CLOSING)
        self.check = Checker(environment, num_streams)
        self.restarts = np.zeros(num_streams, np.int64)  # of each stream
        self.said = ""  # the text of the last error
        self.seed, self.steps, self.closed, self.released = 0, 0, False, False
        self.streams: HostStreams = self._call(self.setup, "being opened", environment.open, num_streams)

    def start(self, seed: int) -> Timestep:
        if self.closed:  # the error of closed streams would otherwise open new ones, which nobody would close
            raise ValueError("these streams are closed; open new ones")
        self.seed, self.steps = seed, 0
        try:
            timestep = self._started(seed)
        except BaseException as error:
            if _is_final(error):
                raise
            return self._open_again(error)
        return self._checked(timestep)

    def step(self, action: np.ndarray) -> Timestep:
        self.steps += 1
        try:
            timestep = self._call(self.calls, "step", self.streams.step, action)
        except BaseException as error:
            # Closed streams refuse calls on purpose, and must not be opened again.
            if self.closed or _is_final(error):
                raise
            nothing: Any = np.zeros(self.num_streams, bool)
            return self._open_again(error)._replace(valid=nothing)  # nothing can be learned from the step that failed
        return self._checked(timestep)

    def release(self) -> None:
        """Close all environments until the next `start`."""
        if self.released:
            return
        self.released = True
        try:
            self.closing.run("being closed", self.streams.close)
        except limit.Hung as error:
            print(f"note: environment '{self.closing.name}' {error}", file=sys.stderr)
        except BaseException as error:
            if _is_final(error):
                raise

    def close(self) -> None:
        self.closed = True
        self.release()

    def guarded(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Another call of an environment that may hang; what it raises is not counted."""
        return self._call(self.calls, name, function, *arguments)

    def _started(self, seed: int) -> Timestep:
        if self.released:
            self.streams = self._call(self.setup, "being opened", self.environment.open, self.num_streams)
            self.released = False
        return self._call(self.calls, "reset", self.streams.start, seed)

    def _open_again(self, error: BaseException) -> Timestep:
        """Open and start all streams again, as often as it takes."""
        while True:
            # By force, since broken streams may hang in `close`.
            try:
                self._call(self.closing, "being closed", self.streams.abandon)
            except BaseException as another:
                if _is_final(another):
                    raise
            self.released = True
            # Counted before each try, so that an environment that can never be opened ends the loop.
            self._count(dict.fromkeys(range(self.num_streams), said(error)), error)
            # All counts enter the seed: other episodes after each restart, and the same ones in a repeated run.
            seed = np.random.SeedSequence([self.seed, *self.restarts.tolist()]).generate_state(1)[0]
            try:
                timestep = self._started(int(seed))
            except BaseException as another:
                if _is_final(another):
                    raise
                error = another
            else:
                return self._checked(timestep)

    def _call(self, guard: limit.Guard, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns; EnvironmentFailed if it hangs or shows what was never declared."""
        try:
            return guard.run(name, function, *arguments)
        except limit.Hung as error:
            self.released = True  # what hangs is not asked to close
            raise EnvironmentFailed(
                f"environment '{guard.name}' {error}; what hangs in this process cannot be restarted, only what has "
                "a process of its own (--env-options processes=1)",
                int(self.restarts.sum()),
                {"step_limit": limit.allowed()},
            ) from error
        except EnvironmentFailed as error:
            raise EnvironmentFailed(f"{error} (at step {self.steps})", int(self.restarts.sum())) from error

    def _checked(self, timestep: Timestep) -> Timestep:
        failed = self.streams.failed
        if failed:
            self._count(failed)
        self.check(timestep, self.steps)
        return with_levels(timestep)

    def _count(self, failed: Mapping[int, str], cause: BaseException | None = None) -> None:
        for stream, text in failed.items():
            self.restarts[stream] += 1
            self.said = text
            if self.restarts[stream] > self.most:
                allowed = "none is allowed" if not self.most else f"{self.most} per stream are allowed"
                raise EnvironmentFailed(
                    f"an environment had to be restarted too often (stream {stream}, {allowed}, see --most-restarts); the last "
                    f"time because of {text}",
                    int(self.restarts.sum()),
                    {"most_restarts": self.most},
                ) from cause


def _is_final(error: BaseException) -> bool:
    """Whether no restart mends it."""
    return isinstance(error, EnvironmentFailed) or not is_an_environments(error)
