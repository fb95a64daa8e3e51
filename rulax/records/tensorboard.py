"""TensorBoard's event files, written in the run's own thread.

The package's own writer hands every number to a thread. When the disk is full that thread dies, its queue fills, and the run waits
for it for ever; here a full disk is an error where the row is written, as for `metrics.jsonl`.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoard:
    """One event file.

    Args:
        folder: of all event files of a run.
        step: where the run goes on: what earlier files hold from there on is hidden, since it will be written again.
    """

    def __init__(self, folder: Path, step: int = 0):
        folder.mkdir(exist_ok=True)
        # Nanoseconds, because two parts of a run may begin within a second.
        self.path = folder / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{time.time_ns()}"
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # half a second to import, so only where there is a folder

        self.add(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if step:
            self.add(Event(wall_time=time.time(), step=step, session_log=SessionLog(status=SessionLog.START)))

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        """The numbers of one step."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import Summary, scalar

        values = [value for name, number in numbers.items() for value in scalar(name, number).value]
        self.add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def add(self, event: Any) -> None:
        """Append one record: its length and its bytes, each with a checksum."""
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        # Opened anew: a folder that was moved is noticed, and no buffer is left that a full disk refuses once more at the end.
        with self.path.open("ab") as file:
            file.write(length + checksum(length) + data + checksum(data))

    def close(self) -> None:
        """Nothing is open."""


def checksum(data: bytes) -> bytes:
    """The masked CRC of the format."""
    from tensorboardX.record_writer import masked_crc32c

    return struct.pack("<I", masked_crc32c(data))
