"""Turns Ctrl-C and SIGTERM into a request: the first finishes the current piece of work and saves, the second stops at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import TracebackType

from rulax.envs.adapters import limit

SIGNALS = (signal.SIGINT, signal.SIGTERM)
AGAIN = "(press Ctrl-C again to stop at once)"
NOTICE = f"stopping after this chunk and saving… {AGAIN}"


class StopRequest:
    """While open, signals only set `requested`.

    Python runs its signal handlers between bytecodes, so during a long compilation nothing would be heard. The interpreter's
    wake-up socket is written to at once, by the C handler, and a small thread listens to it.
    """

    def __init__(self, notify: Callable[[str], None]):
        self.requested = False
        self.notify, self.notice = notify, NOTICE
        # Signals belong to the main thread; elsewhere (a notebook's worker) training just runs to its end.
        self.active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> StopRequest:
        if self.active:
            self.reader, self.writer = socket.socketpair()
            # Required by set_wakeup_fd: the C handler must never wait in a write.
            self.writer.setblocking(False)
            # Before the handlers, and given back after them: at no moment is a signal heard by neither. A full socket already holds
            # more signals than anyone will act on; a warning for each further one would help nobody.
            self.previous_socket = signal.set_wakeup_fd(self.writer.fileno(), warn_on_full_buffer=False)
            # The usual handlers would raise KeyboardInterrupt in the middle of a chunk, or end the process at SIGTERM.
            self.previous = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
            self.listener = threading.Thread(target=self.listen, daemon=True)
            self.listener.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.active:
            limit.hurry(False)
            try:
                for number, handler in self.previous.items():
                    signal.signal(number, handler)
            # A Ctrl-C that arrives now raises again, from the line above; what this object holds is released all the same.
            finally:
                # Before the socket is closed, or a late signal would be written to a closed descriptor, or to a stranger's.
                signal.set_wakeup_fd(self.previous_socket)
                self.writer.close()  # ends the listener
                self.listener.join()
                self.reader.close()

    def listen(self) -> None:
        """Runs in the thread: one byte per signal, its number."""
        while data := self.reader.recv(1):
            # The socket hears every signal that has a Python handler, a child's end or a resized terminal included.
            if data[0] not in SIGNALS:
                continue
            if self.requested:
                # os._exit runs no clean-up: show the cursor again, which a progress bar may have hidden.
                os.write(2, b"\033[?25h\nstopped at once\n" if sys.stderr.isatty() else b"stopped at once\n")
                # Not sys.exit, which would only end this thread, nor an exception in the main one, which may be inside of the
                # compiler. Checkpoints are replaced as a whole, so the last one stays good.
                os._exit(130)
            self.requested = True
            limit.hurry(True)  # an environment that hangs would let nobody stop
            self.notify(self.notice)
