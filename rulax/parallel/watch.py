"""Notices within a stated time that another process is gone or stuck, and ends this one with a sentence that names it.

A collective computation waits for ever for a process that does not come, inside of the compiler, where no exception arrives. So a
thread of each process reads what the others have written, through the service that JAX's own runtime keeps in the first process.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Any

BEAT_SECONDS = 1.0
LOST_SECONDS = 30.0  # without a sign of life
STUCK_SECONDS = 1800.0  # behind all others, who wait for it
EXIT = 2  # as after any other error
BEATS, REASONS = "rulax/beats/", "rulax/reasons/"


class Watch:
    """The signs of life of all processes: a count of beats, a count of meetings, and whether it waits in one."""

    def __init__(self, own: int, number: int):
        self.own, self.number = own, number
        self.client = runtime().client
        self.meetings, self.waiting = 0, False
        self.ended = threading.Event()
        self.seen = {other: ("", time.monotonic(), time.monotonic()) for other in range(number) if other != own}
        self.told_at = time.monotonic()
        self.thread = threading.Thread(target=self.run, daemon=True, name="watch")
        self.thread.start()

    def arrive(self) -> None:
        """This process has come to where all others have to come too."""
        self.meetings, self.waiting = self.meetings + 1, True

    def went_on(self) -> None:
        """All were there."""
        self.waiting = False

    def tell(self, reason: str) -> None:
        """Say to the others why this process ends, and give them the time to read it."""
        self.ended.set()
        with contextlib.suppress(Exception):
            self.client.key_value_set(f"{REASONS}{self.own}", reason, allow_overwrite=True)
            time.sleep(3 * BEAT_SECONDS)

    def close(self) -> None:
        """Watch no more."""
        self.ended.set()
        self.thread.join()

    # -- the thread ---------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Beat and look, until the end."""
        beat = 0
        while not self.ended.wait(BEAT_SECONDS):
            beat += 1
            try:
                self.client.key_value_set(f"{BEATS}{self.own}", f"{beat} {self.meetings} {int(self.waiting)}", allow_overwrite=True)
                beats, reasons = (by_process(self.client.key_value_dir_get(folder)) for folder in (BEATS, REASONS))
            except Exception:
                # The service lives in the first process. It is asked again until it has been silent for too long.
                beats, reasons = {}, {}
            if self.ended.is_set():
                return
            if text := self.look(beats, reasons):
                end(text)

    def look(self, beats: dict[int, str], reasons: dict[int, str]) -> str:
        """What is wrong, as a sentence; empty if nothing is."""
        now = time.monotonic()
        if reasons:
            who = min(reasons)
            return f"{self.name(who)} ended: {reasons[who]}"
        if self.own in beats:
            self.told_at = now
        if now - self.told_at > LOST_SECONDS:
            return f"{self.name(0)}, which all others report to, gave no sign of life for {LOST_SECONDS:.0f} seconds{ADVICE}"
        for other, (last, alive, moved) in self.seen.items():
            beat = beats.get(other, last)
            meetings = beat.split()[1:], last.split()[1:]
            self.seen[other] = (beat, now if beat != last else alive, now if meetings[0] != meetings[1] else moved)
        return self.lost(now) or self.stuck(now)

    def lost(self, now: float) -> str:
        """Somebody who has stopped beating."""
        # Only while the service answers: if it does not, it is the first process that is silent.
        for other, (_, alive, _) in self.seen.items():
            if now - alive > LOST_SECONDS and now - self.told_at < BEAT_SECONDS:
                return f"{self.name(other)} gave no sign of life for {LOST_SECONDS:.0f} seconds{ADVICE}"
        return ""

    def stuck(self, now: float) -> str:
        """Somebody for whom this process waits, and who beats but does not come."""
        for other, (beat, _, moved) in self.seen.items():
            behind = beat and int(beat.split()[1]) < self.meetings
            if self.waiting and behind and now - moved > STUCK_SECONDS:
                return f"{self.name(other)} has been stuck for {STUCK_SECONDS / 60:.0f} minutes, and all others wait for it{ADVICE}"
        return ""

    def name(self, process: int) -> str:
        """One process in words."""
        return f"process {process} of {self.number}"


ADVICE = "; all processes end here, and go on from the last checkpoint when all are started again with --resume"


def runtime() -> Any:
    """JAX's own knowledge of the processes; its public functions would choose the platform, which is done later."""
    from jax._src import distributed

    return distributed.global_state


def by_process(entries: list[tuple[str, str]]) -> dict[int, str]:
    """What each process has left in a folder of the service."""
    return {int(key.rpartition("/")[2]): value for key, value in entries}


def end(text: str) -> None:
    """End this process at once: its main thread may wait for ever."""
    sys.stdout.flush()
    print(f"error: {text}", file=sys.stderr, flush=True)
    os._exit(EXIT)
