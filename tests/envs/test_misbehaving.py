"""Environments that hang, show something else, or want to end Python: one sentence, in time, and no process is left over."""

import multiprocessing
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from rulax.envs import make
from rulax.envs.adapters import limit
from rulax.envs.adapters.checking import Checker
from rulax.envs.adapters.restart import RestartingStreams
from rulax.envs.base import EnvironmentFailed, Episode, HostEnvironment, Timestep
from rulax.errors import UserError
from rulax.settings import STEP_LIMIT

pytest.importorskip("gymnasium")

from . import misbehaving

HERE = misbehaving.HERE + misbehaving.ID
ABOUT = f"environment '{HERE}'"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Half a second for everything, and copies that are counted anew."""
    for name in ("SETUP", "CLOSING", "HURRY"):
        monkeypatch.setattr(limit, name, 0.5)
    monkeypatch.setattr(misbehaving.Misbehaving, "made", 0)
    limit.allow(0.5)
    yield
    limit.allow(STEP_LIMIT)


def live(environment, steps=9, most=0, num_streams=2):
    streams = RestartingStreams(environment, num_streams, most)
    try:
        streams.start(0)
        for _ in range(steps):
            streams.step(np.zeros(num_streams, int))
    finally:
        streams.close()
    return streams


@pytest.mark.parametrize("what", ["hang", "hang_inside"])
def test_what_hangs_in_this_process_ends_in_a_sentence(what):
    began = time.monotonic()
    words = (
        r"did not come back from step within 0.5 seconds \(--step-limit\) in stream 0 \(misbehaving.py, line \d+\); .* a process"
    )
    with pytest.raises(EnvironmentFailed, match=f"^{ABOUT} {words}") as failed:
        live(make(HERE, what=what), most=9)
    assert failed.value.limits == {"step_limit": 0.5}
    assert time.monotonic() - began < 10


def test_a_reset_and_a_close_may_hang_as_well(capsys):
    with pytest.raises(EnvironmentFailed, match=r"did not come back from reset within 0\.5 seconds"):
        live(make(HERE, what="hang", where="reset", when=0))
    misbehaving.Misbehaving.made = 0
    live(make(HERE, what="hang", where="close", when=0), steps=1)
    assert f"note: {ABOUT} did not come back from being closed within 0.5 seconds" in capsys.readouterr().err


def test_a_constructor_may_hang_or_exit():
    with pytest.raises(UserError, match=r"^environment .*Misbehaving-v0' did not come back from being made within 0.5 seconds"):
        make(HERE, what="hang", where="make", when=0, before=0)
    with pytest.raises(UserError, match=r"cannot be made: it asked Python to exit \(SystemExit: game over\)$"):
        make(HERE, what="end_python", where="make", when=0, before=0)
    misbehaving.Misbehaving.made = 0
    environment = make(HERE, what="hang", where="make", when=0)
    with pytest.raises(EnvironmentFailed, match=r"did not come back from being opened within 0\.5 seconds"):
        RestartingStreams(environment, 2)


def test_progress_is_no_hanging():
    class Slow:
        def __init__(self):
            self.count = 0

        def __call__(self):
            for stream in range(6):
                limit.place.value = stream
                time.sleep(0.2)
            return "done"

    assert limit.Guard("slow").run("step", Slow()) == "done"
    limit.allow(0)
    limit.Guard("slow").run("step", time.sleep, 0.7)


def test_who_waits_for_the_end_waits_less():
    limit.allow(STEP_LIMIT)
    limit.hurry(True)
    try:
        with pytest.raises(EnvironmentFailed, match=r"from step within 0\.5 seconds of the request to stop in stream 0"):
            live(make(HERE, what="hang"))
    finally:
        limit.hurry(False)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("hold", r"the process of streams 0 to 1 did not come back from step within 0.5 seconds \(--step-limit\) in stream 0 "),
        ("end_python", r"SystemExit: game over \(misbehaving.py, line \d+\)"),
        ("interrupt", r"KeyboardInterrupt \(misbehaving.py, line \d+\)"),
        ("crash", "the process of streams 0 to 1 died with exit code -11"),
    ],
)
def test_a_process_is_restarted_whatever_it_does(monkeypatch, what, words):
    for name in ("SETUP", "CLOSING"):  # it imports JAX
        monkeypatch.setattr(limit, name, 60.0)
    environment = make(HERE, what=what, processes=1)
    streams = RestartingStreams(environment, 2, 1)
    try:
        streams.start(0)
        timestep = [streams.step(np.zeros(2, int)) for _ in range(3)][-1]
        assert streams.restarts.tolist() == [1, 1]
        assert not timestep.valid[0]
        streams.step(np.zeros(2, int))
        streams.step(np.zeros(2, int))
        with pytest.raises(EnvironmentFailed, match=rf"1 per stream are allowed, .*{words}"):
            streams.step(np.zeros(2, int))
    finally:
        streams.close()
    assert multiprocessing.active_children() == []


def test_what_wants_to_end_python_only_ends_its_episode():
    assert live(make(HERE, what="end_python"), most=9).restarts.tolist() == [3, 3]


def test_ctrl_c_is_not_taken_for_the_environments_doing():
    """Both raise KeyboardInterrupt; while Python's own handler is in place it is the user's."""
    with pytest.raises(KeyboardInterrupt):
        live(make(HERE, what="interrupt"), most=9)
    before = signal.signal(signal.SIGINT, lambda *_: None)  # as during a run, which listens to Ctrl-C itself
    try:
        misbehaving.Misbehaving.made = 0
        assert live(make(HERE, what="interrupt"), most=9).restarts.tolist() == [3, 3]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_call_in_another_thread_is_interrupted_too():
    def spin():
        while True:
            pass

    with ThreadPoolExecutor(1) as thread, pytest.raises(limit.Hung, match="did not come back from step"):
        thread.submit(limit.Guard("spinning").run, "step", spin).result(10)


LEAVES = {
    "longer": r"showed an observation of shape \(3,\) and type float32 at step 3, where shape \(2,\) and type float32 is declared$",
    "text": r"showed an observation that cannot be read \(of kind str: .*\) in stream 0, where shape \(2,\) .*at step 3\)$",
    "nan": r"showed an observation that is not a finite number \(nan\) at step 3 of stream 0$",
    "inf": r"showed an observation that is not a finite number \(inf\) at step 3 of stream 0$",
    "paid nan": r"paid a reward that is not a finite number \(nan\) at step 3 of stream 0$",
    "paid list": r"paid rewards of shape \(2, 2\) at step 3, where \(2,\) belongs: one number for each stream$",
}


@pytest.mark.parametrize(("what", "processes"), [*((what, 0) for what in LEAVES), ("text", 1)])
def test_what_is_not_what_was_declared_is_named(monkeypatch, what, processes):
    for name in ("SETUP", "CLOSING"):
        monkeypatch.setattr(limit, name, 60.0)
    with pytest.raises(EnvironmentFailed, match=rf"^{ABOUT} {LEAVES[what]}"):
        live(make(HERE, what=what, processes=processes), most=9)


def test_one_copy_that_shows_something_else_is_found():
    observations = [np.zeros(2, np.float32), np.zeros(3, np.float32)]
    streams = make(HERE).open(2)
    with pytest.raises(
        EnvironmentFailed, match=r"showed an observation of shape \(3,\) and type float32 in stream 1, where shape \(2,\)"
    ):
        streams._stacked(observations)
    streams.close()


class Declared(HostEnvironment):
    """Shows nothing; only says what it would."""

    num_actions, name = 2, "declared"

    def __init__(self):
        self.observation = {"image": jax.ShapeDtypeStruct((2, 2), np.uint8), "speed": jax.ShapeDtypeStruct((1,), np.float32)}

    def open(self, num_streams):
        raise NotImplementedError


def shown(**parts):
    ones, flags = np.ones(3, np.float32), np.zeros(3, bool)
    return Timestep(parts, flags, ones, ones, ~flags, Episode(flags, ones, ones.astype(np.int32)))


IMAGE, SPEED = np.zeros((3, 2, 2), np.uint8), np.zeros((3, 1), np.float32)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"image": IMAGE}, "showed an observation with the parts image at step 5, where the parts image, speed are declared"),
        (
            {"image": IMAGE + 0.5, "speed": SPEED},
            r"an observation 'image' of shape \(2, 2\) and type float64 at step 5, .* type uint8 is",
        ),
        ({"image": IMAGE, "speed": SPEED[:2]}, r"an observation 'speed' of shape \(2, 1\) and type float32 at step 5"),
        (
            {"image": IMAGE, "speed": SPEED * np.nan},
            r"an observation 'speed' that is not a finite number \(nan\) at step 5 of stream 0",
        ),
    ],
)
def test_parts_are_checked_by_name(parts, words):
    with pytest.raises(EnvironmentFailed, match=words):
        Checker(Declared(), 3)(shown(**parts), 5)


def test_what_can_be_read_is_left_alone():
    check = Checker(Declared(), 3)
    check(shown(image=IMAGE, speed=SPEED), 0)
    check(shown(image=IMAGE.astype(np.int64), speed=SPEED.astype(np.float64)), 1)
    check(shown(image=IMAGE, speed=SPEED + 3e38), 2)  # whose square is beyond what its type can hold
