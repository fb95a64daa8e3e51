"""Host environments in processes: the option `processes=4` of every environment whose streams are copies (Gymnasium, Crafter,
NetHack, ...).

The streams are distributed over that many processes. Each process makes the environment from its name, and `CopiedStreams` step
its share there as they would here, with the same seeds: observations do not depend on the number of processes. All processes
receive their actions before the first one is asked for its answer, so they step in parallel.

A copy that raises costs its own stream, in its process. Any other failure (a process dies or hangs, a copy cannot be replaced)
raises here and ends all processes by force; `restart.py` handles it. A process ends with its parent, however that ends and whatever
it does.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import jax
import numpy as np

from rulax.envs.adapters import limit, quietly, said
from rulax.envs.adapters.streams import CheckedStreams
from rulax.envs.base import EnvironmentFailed, HostEnvironment, Timestep, WrappedHost
from rulax.envs.registry import make

PARENTS = (signal.SIGINT, signal.SIGTERM)  # often sent to a whole group of processes; only the parent handles them
PATIENCE = 5.0  # seconds that processes get to close what they hold
PR_SET_PDEATHSIG = 1  # of Linux's prctl
CALLS = {"start_each": "reset", "step_each": "step"}  # what sentences call them
THREADS = {"atari": "threads", "envpool": "num_threads"}  # families whose vector is in C++, and their own option


def share(name: str, options: dict[str, Any], environment: Any, processes: Any) -> Any:
    """The environment that `make(name, **options)` gave, with its streams in processes; 0 leaves them in this one."""
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 0:
        raise ValueError(
            f"'{name}': processes must be the number of processes that share the streams, 0 for this one alone, not {processes!r}"
        )
    if processes == 0:
        return environment
    if not isinstance(environment, HostEnvironment):
        raise ValueError(f"'{name}' runs inside of JAX; processes are for environments that run on the host: leave the option out")
    if not environment.one_copy_per_stream:
        raise ValueError(f"'{name}' cannot be shared out over processes: {_why(name, options)}")
    try:
        # Tried here, where the error can name the environment, with the pickler that starts processes.
        ForkingPickler.dumps(options)
    except Exception as error:  # of many kinds
        raise ValueError(f"'{name}' has options that cannot be sent to a process: {error}") from error
    return Shared(environment, name, options, processes)


def _why(name: str, options: dict[str, Any]) -> str:
    own = THREADS.get(name.partition("/")[0])
    if own:
        return f"it has threads of its own, see its option {own}"
    if "autoreset" in options:
        return "autoreset asks for Gymnasium's vector environment, which stays in one piece; leave one of the two out"
    return "its streams are no copies of one environment"


@dataclasses.dataclass(frozen=True, eq=False)
class Shared(WrappedHost):
    """A host environment whose copies are made and stepped in `processes` processes; the one inside is never opened."""

    name: str
    options: dict[str, Any]
    processes: int

    def open(self, num_streams: int) -> WorkerStreams:
        return WorkerStreams(self, num_streams)


class Answer(NamedTuple):
    """What a process sends after each call, and once when its streams are open."""

    timestep: Timestep | None = None
    failed: Mapping[int, str] = {}  # by its own numbers
    error: str = ""  # why it ended, if it did
    final: bool = False  # whether it is no use to start again


def _serve(pipe: Connection, place: Any, dies_with: bool, name: str, options: dict[str, Any], num_streams: int) -> None:
    """The main loop of a process, which ends with its pipe: when the streams are closed or the parent is dead."""
    for each in PARENTS:
        signal.signal(each, signal.SIG_IGN)
    _end_with_parent(dies_with)
    limit.place = place
    limit.allow(0)  # the parent looks on
    streams: Any = None
    try:
        environment: Any = make(name, **options)
        streams, answer = environment.open(num_streams), Answer()
    except BaseException as error:
        answer = Answer(error=said(error))
    # The parent ends a process by closing the pipe, so the end of the pipe is no error.
    with contextlib.suppress(EOFError, OSError):
        pipe.send(answer)
        while not answer.error:
            answer = _answer(streams, *pipe.recv())
            pipe.send(answer)
    if streams is not None:
        quietly(streams.close)


def _answer(streams: CheckedStreams, call: str, argument: np.ndarray) -> Answer:
    limit.place.value = -1
    try:
        return Answer(getattr(streams, call)(argument), streams.failed)
    except EnvironmentFailed as error:
        return Answer(error=str(error), final=True)
    except BaseException as error:
        return Answer(error=said(error))


def _end_with_parent(dies_with: bool) -> None:
    """End this process when its parent dies, be it in the middle of a step that never returns."""
    if dies_with and sys.platform == "linux":  # even where a step holds the interpreter
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()  # of a parent that is dead already, too
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class Worker:
    """The parent's handle of one process, and the numbers of the streams that it steps."""

    def __init__(self, environment: Shared, streams: range):
        self.streams = streams
        context = multiprocessing.get_context("spawn")  # JAX runs threads, and a process that is forked beside them may hang
        self.pipe, theirs = context.Pipe()
        self.poller = select.poll()  # `Connection.poll` would make one every time
        self.poller.register(self.pipe.fileno(), select.POLLIN)
        self.place = context.RawValue("q", -1)  # the stream that the process is at, by its own numbers
        self.call, self.least = "being opened", limit.SETUP
        # Linux takes the end of the thread that started a process for that of the parent; only the main thread lasts as long.
        dies_with = threading.current_thread() is threading.main_thread()
        arguments = (theirs, self.place, dies_with, environment.name, environment.options, len(streams))
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        with _inherited():
            self.process.start()
        theirs.close()  # so that the pipe ends with the process
        # At exit Python would end the process by a signal that it ignores, and wait for ever.
        self._at_exit = util.Finalize(None, _kill, (self.process,), exitpriority=1)

    def __str__(self) -> str:
        first, last = self.streams[0], self.streams[-1]
        return f"the process of stream {first}" if first == last else f"the process of streams {first} to {last}"

    def ask(self, call: str, argument: np.ndarray) -> None:
        """Send a call without waiting for the answer."""
        self.call, self.least = CALLS.get(call, call), 0.0
        with self._alive():
            self.pipe.send((call, argument))

    def answer(self) -> Answer:
        """The answer to the call; a RuntimeError if the process cannot go on."""
        with self._alive():
            if not self.poller.poll(1000 * limit.TICK):
                self._wait()
            answer = self.pipe.recv()
        if answer.final:
            raise EnvironmentFailed(f"{answer.error}, in {self}")
        if answer.error:
            raise RuntimeError(f"{answer.error}, in {self}")
        return answer

    def _wait(self) -> None:
        """Wait for an answer that takes long, as long as the process gets on with its streams."""
        waited = limit.Waited()
        while not self.poller.poll(1000 * limit.TICK):
            limit.place.value += 1  # this process is doing what it should
            at = self.place.value
            if waited.since(at) > limit.allowed(self.least):
                where = f" in stream {self.streams[at]}" if at >= 0 else ""
                text = f"{self} {limit.too_long(self.call, limit.allowed(self.least))}{where}"
                # Nobody who waits for the end wants it to be started again.
                raise limit.Hung(text) if limit.hurried() else RuntimeError(text)

    def end(self, patience: float) -> None:
        """Let the process close what it holds for `patience` seconds, then kill it."""
        self._at_exit.cancel()
        # The end of the pipe asks the process to close.
        self.pipe.close()
        self.process.join(patience)
        self.process.kill()
        self.process.join()
        self.process.close()

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self.process.join(1)  # a pipe may end before its process
            raise RuntimeError(f"{self} died with exit code {self.process.exitcode}") from error


def _kill(process: Any) -> None:
    with contextlib.suppress(ValueError):  # closed already
        process.kill()


class WorkerStreams(CheckedStreams):
    """Open streams of an environment whose copies live in processes."""

    def __init__(self, environment: Shared, num_streams: int):
        super().__init__(num_streams, environment.num_actions, environment.action_dimensions, environment.real_dimensions)
        number = min(environment.processes, num_streams)
        # Contiguous shares: a batch is cut by slices, and the answers are concatenated in order.
        ends = [i * num_streams // number for i in range(number + 1)]
        self.workers: list[Worker] = []
        try:
            for first, end in itertools.pairwise(ends):
                self.workers.append(Worker(environment, range(first, end)))
            # Waited for only after all are started, so that they import and open in parallel.
            for worker in self.workers:
                worker.answer()
        except BaseException as error:
            # For Ctrl-C as well: no process may be left behind.
            self.abandon()
            if not isinstance(error, RuntimeError):
                raise
            raise ValueError(
                f"'{environment.name}' cannot be opened in a process ({error}); there an id that this program registers itself is "
                "written 'module:Id', and a script needs the usual `if __name__ == \"__main__\":`"
            ) from error

    def start_each(self, seeds: np.ndarray) -> Timestep:
        return self._ask_all("start_each", seeds)

    def step_each(self, action: np.ndarray) -> Timestep:
        return self._ask_all("step_each", action)

    def _ask_all(self, call: str, argument: np.ndarray) -> Timestep:
        try:
            for worker in self.workers:
                worker.ask(call, argument[worker.streams.start : worker.streams.stop])
            answers = [worker.answer() for worker in self.workers]
        except BaseException:
            self.abandon()  # an answer that was not fetched would be mistaken for the next one
            raise
        parts: Sequence[Any] = [answer.timestep for answer in answers]
        self.failed = {
            # A process numbers its streams from 0.
            worker.streams[stream]: text
            for worker, answer in zip(self.workers, answers, strict=True)
            for stream, text in answer.failed.items()
        }
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)

    def close_all(self) -> None:
        self._end(PATIENCE)

    def abandon(self) -> None:
        if not self.closed:
            self.closed = True
            self._end(0)

    def _end(self, patience: float) -> None:
        # One deadline for all of them together.
        until = time.monotonic() + patience
        for worker in self.workers:
            worker.pipe.close()  # all of them first, so that they shut down in parallel
        for worker in self.workers:
            worker.end(max(0, until - time.monotonic()))


@contextlib.contextmanager
def _inherited() -> Iterator[None]:
    """The environment in which processes start: no accelerator, which belongs to the parent, and signals blocked during imports."""
    resource_tracker.ensure_running()  # otherwise the first process would start it, and that unblocks Ctrl-C
    # A process takes its environment variables over when it starts, so they are changed only for that moment.
    platforms = os.environ.get("JAX_PLATFORMS")
    os.environ["JAX_PLATFORMS"] = "cpu"
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        if platforms is None:
            del os.environ["JAX_PLATFORMS"]
        else:
            os.environ["JAX_PLATFORMS"] = platforms
