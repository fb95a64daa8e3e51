"""Signals around the moments in which a request to stop begins and ends to listen: none may be lost."""

import os
import signal
import threading

import pytest

from rulax.commands.signals import StopRequest


@pytest.mark.parametrize("moment", ["begins", "ends"])
def test_a_signal_while_handlers_change_is_not_lost(monkeypatch, moment) -> None:
    real, calls = signal.set_wakeup_fd, []

    def set_wakeup_fd(*arguments, **options):
        """As the real one, with a Ctrl-C between the change of the socket and that of the handlers."""
        calls.append(arguments)
        if moment == "begins" and len(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        found = real(*arguments, **options)
        if moment == "ends" and len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return found

    monkeypatch.setattr(signal, "set_wakeup_fd", set_wakeup_fd)
    with pytest.raises(KeyboardInterrupt), StopRequest(lambda _: None):
        pass
    assert real(-1) == -1


def test_what_listens_is_released_when_a_signal_arrives_at_the_end(monkeypatch) -> None:
    before, handler = threading.active_count(), signal.getsignal(signal.SIGTERM)
    real = signal.signal

    def restored(number, new):
        found = real(number, new)
        if number == signal.SIGINT and callable(new) and new is signal.default_int_handler:
            raise KeyboardInterrupt
        return found

    with pytest.raises(KeyboardInterrupt), StopRequest(lambda _: None):
        monkeypatch.setattr(signal, "signal", restored)
    assert threading.active_count() == before
    assert signal.set_wakeup_fd(-1) == -1
    real(signal.SIGTERM, handler)
