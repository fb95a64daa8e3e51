"""How long one call of a host environment may take, and what becomes of a call that takes longer.

A thread looks on while a call is under way. A call that makes no progress for `allowed` seconds is interrupted by `Hung`. One that
cannot be interrupted, because it waits inside of a library, ends this process, after those who asked for it saved what they have
(`last_resort`). Code that never lets go of the interpreter stops the onlooker, too; only processes of their own help against that
(`workers.py`), and there this file's clock runs in the parent.

The limit is one for the whole process: commands set it (`allow`), and a request to stop shortens it (`hurry`).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from rulax.errors import UserError
from rulax.settings import STEP_LIMIT

SETUP = 60.0  # making environments imports libraries and loads files: it may take that long, however short the limit
CLOSING = 30.0  # what closing them may take: by then everything is saved
HURRY = 10.0  # once the user asked to stop
GRACE = 5.0  # for a call that was interrupted to come back
TICK = 0.1  # seconds between two looks
SIGNAL = signal.SIGURG  # makes a call that waits return to Python; where nobody listens it does nothing


class Hung(BaseException):
    """A call took longer than it may; no `Exception`, so that no environment swallows it by mistake. The text ends a sentence."""


class Place:
    """Where this process is among the environments that it steps one after the other: if that changes, nothing hangs."""

    value = -1  # the number of a stream; -1 in none


class _Now:
    """What holds in this process now."""

    seconds = STEP_LIMIT
    hurried = False


place: Any = Place()  # processes that belong to a parent put theirs where the parent sees it
_active: set[Guard] = set()  # calls that are under way
_resorts: list[Callable[[], None]] = []
_onlooker: list[threading.Thread] = []


def allow(seconds: float) -> None:
    """Set the limit of every call from now on; 0 is none."""
    _Now.seconds = seconds or math.inf


def hurry(yes: bool) -> None:
    """Whether the user waits for this process to stop."""
    _Now.hurried = yes


def hurried() -> bool:
    """Whether the user does."""
    return _Now.hurried


def allowed(least: float = 0.0, most: float = math.inf) -> float:
    """Seconds that a call may take without any progress."""
    return min(max(_Now.seconds, least), most, HURRY if _Now.hurried else math.inf)


def too_long(call: str, seconds: float) -> str:
    """The end of a sentence about an environment."""
    why = " (--step-limit)" if seconds == _Now.seconds else " of the request to stop" if _Now.hurried else ""
    return f"did not come back from {call} within {seconds:g} seconds{why}"


@contextlib.contextmanager
def last_resort(save: Callable[[], None]) -> Iterator[None]:
    """While open, `save` is called by another thread before a call that cannot be interrupted ends this process."""
    _resorts.append(save)
    try:
        yield
    finally:
        _resorts.remove(save)


def set_up(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function makes; one that hangs or wants to end this process is refused."""
    try:
        return Guard(name, least=SETUP).run("being made", function, *arguments)
    except Hung as error:
        raise UserError(f"environment '{name}' {error}") from error
    except SystemExit as error:
        raise UserError(f"environment '{name}' cannot be made: it asked Python to exit (SystemExit: {error})") from error


class Waited:
    """Adds up seconds without progress, but none in which this process was stopped itself (Ctrl-Z, a closed laptop)."""

    def __init__(self) -> None:
        self.shown: Any = None
        self.seconds, self.looked = 0.0, time.monotonic()

    def since(self, shown: Any) -> float:
        """Seconds for which the same was shown; to be asked again after every TICK."""
        now = time.monotonic()
        passed, self.looked = min(now - self.looked, 2 * TICK), now
        same = (shown, _Now.hurried) == self.shown
        self.shown, self.seconds = (shown, _Now.hurried), self.seconds + passed if same else 0.0
        return self.seconds


class Guard:
    """Makes calls that may hang, one at a time."""

    def __init__(self, name: str, least: float = 0.0, most: float = math.inf):
        self.name, self.bounds = name, (least, most)  # the environment's
        self.number = 0  # of calls so far
        self.call, self.where, self.thread = "", "", 0
        self.waited, self.late_after, self.given_up = Waited(), 0.0, False
        _look_on()

    def run(self, call: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns; `Hung` if it took too long. `call` is the word for it in that sentence."""
        self.call, self.thread, place.value = call, threading.get_ident(), -1
        self.number += 1
        try:
            _active.add(self)
            return function(*arguments)
        finally:
            # In this frame: from here on the interruption, should it still come, finds nothing to interrupt.
            _active.discard(self)
            if self.late_after:
                self._hung()

    def _hung(self) -> None:
        """Leave a call that was too long."""
        while self.given_up:  # the other thread is saving what this one would change
            time.sleep(1)
        _raise_in(self.thread, None)
        seconds, self.late_after = self.late_after, 0.0
        stream = f" in stream {place.value}" if place.value >= 0 else ""
        raise Hung(f"{too_long(self.call, seconds)}{stream}{self.where}")

    def look(self) -> None:
        """Once in every TICK of a call, by the onlooker."""
        seconds, most = self.waited.since((self.number, place.value)), allowed(*self.bounds)
        if seconds <= most:
            return
        if not self.late_after:
            self.late_after, self.where = most, ""
        if seconds < most + GRACE:
            _interrupt(self.thread)
        elif not self.given_up:
            self.given_up = True
            _leave(f"environment '{self.name}' {too_long(self.call, most)} and cannot be interrupted, so this process ends")


# -- the onlooker ----------------------------------------------------------------------------------------------------------------


def _look_on() -> None:
    if threading.current_thread() is threading.main_thread() and signal.getsignal(SIGNAL) in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(SIGNAL, _interrupted)
    if not _onlooker or not _onlooker[0].is_alive():  # a process that was forked has none
        _onlooker[:] = [threading.Thread(target=_watch, name="onlooker", daemon=True)]
        _onlooker[0].start()


def _watch() -> None:
    while True:
        time.sleep(TICK)
        for guard in tuple(_active):
            guard.look()


def _interrupt(thread: int) -> None:
    if thread == threading.main_thread().ident and signal.getsignal(SIGNAL) is _interrupted:
        signal.pthread_kill(thread, SIGNAL)
    else:
        _raise_in(thread, Hung)  # heard once the thread is back in Python


def _interrupted(number: int, frame: FrameType | None) -> None:
    """The handler of the signal, which Python calls in the main thread."""
    for guard in tuple(_active):
        if guard.late_after and guard.thread == threading.get_ident():
            if frame is not None:
                guard.where = guard.where or f" ({os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno})"
            raise Hung


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    kind = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)


def _leave(sentence: str) -> None:
    """End this process, whose thread will not come back."""
    for save in reversed(_resorts):
        with contextlib.suppress(Exception):
            save()
    print(f"error: {sentence}", file=sys.stderr, flush=True)
    os._exit(2)
