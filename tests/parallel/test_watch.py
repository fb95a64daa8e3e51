"""What the watch says of the others' signs of life, without any processes."""

import time

import pytest

from rulax.parallel import watch
from rulax.parallel.watch import Watch


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0


@pytest.fixture
def watching(monkeypatch):
    """The watch of process 1 of 3, whose thread does nothing."""
    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    monkeypatch.setattr(Watch, "run", lambda self: None)
    monkeypatch.setattr(watch, "runtime", lambda: type("Runtime", (), {"client": None}))
    Clock.now = 0.0
    return Watch(1, 3)


def later(seconds: float) -> None:
    Clock.now += seconds


def test_a_process_that_stops_beating_is_named(watching):
    assert not watching.look({0: "1 0 0", 1: "1 0 0", 2: "1 0 0"}, {})
    later(20)
    assert not watching.look({0: "2 0 0", 1: "2 0 0", 2: "1 0 0"}, {})
    later(11)
    assert watching.look({0: "3 0 0", 1: "3 0 0", 2: "1 0 0"}, {}).startswith("process 2 of 3 gave no sign of life for 30 seconds")


def test_a_silent_service_means_the_first_process(watching):
    assert not watching.look({0: "1 0 0", 1: "1 0 0", 2: "1 0 0"}, {})
    later(31)
    assert watching.look({}, {}).startswith("process 0 of 3, which all others report to, gave no sign of life")


def test_the_reason_of_another_is_passed_on(watching):
    assert watching.look({}, {2: "the disk is full"}) == "process 2 of 3 ended: the disk is full"


def test_a_process_that_beats_but_never_comes_is_stuck(watching):
    watching.arrive()
    for beat in range(1, 21):
        later(100)
        said = watching.look({each: f"{beat} {int(each != 2)} 1" for each in range(3)}, {})
        assert bool(said) == (beat == 20)
    assert said.startswith("process 2 of 3 has been stuck for 30 minutes")
    watching.went_on()
    assert not watching.look(dict.fromkeys(range(3), "21 1 0"), {})
