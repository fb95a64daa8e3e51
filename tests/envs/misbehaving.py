"""A Gymnasium environment that misbehaves in one of many ways; worker processes, and runs in processes of their own, import it."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np

ID = "RulaxMisbehaving-v0"
HERE = "tests.envs.misbehaving:"


def hang():
    """For ever, in Python."""
    while True:
        time.sleep(60)


def hang_inside():
    """For ever inside of a library, which a signal brings back to Python for a moment."""
    libc = ctypes.CDLL(None)
    while libc.pause():
        pass


def deadlock():
    """For ever inside of a library, in a wait that no signal ends."""
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def hold():
    """For ever without letting go of the interpreter."""
    while True:
        ctypes.PyDLL(None).pause()


def stop_itself():
    """Stopped from outside, as by a debugger: neither dead nor alive."""
    os.kill(os.getpid(), signal.SIGSTOP)


def end_python():
    sys.exit("game over")


def interrupt():
    raise KeyboardInterrupt


def crash():
    """A segmentation fault."""
    os.kill(os.getpid(), signal.SIGSEGV)


DEEDS = {each.__name__: each for each in (hang, hang_inside, deadlock, hold, stop_itself, end_python, interrupt, crash)}
SHOWN = {
    "longer": np.zeros(3, np.float32),
    "text": "three",
    "nothing": None,
    "nan": np.array([0, np.nan], np.float32),
    "inf": np.array([np.inf, 0], np.float32),
}
PAID = {"paid nan": float("nan"), "paid inf": -float("inf"), "paid list": [1.0, 2.0]}


class Misbehaving(gymnasium.Env):
    """Shows [0, steps of this episode], pays 1, ends after four steps, and does `what` from step `when` of its life on.

    The first copies of a process are for looking at the environment: so many, `before`, behave well. `where` is the call in which
    it happens: step, reset, close or make. `tell` names a file that is made just before.
    """

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 1000, (2,), np.float32)
    made = 0

    def __init__(self, what="hang", when=3, where="step", before=1, tell=""):
        self.what, self.when, self.where, self.tell = what, when, where, tell
        self.life = self.count = 0
        self.good = Misbehaving.made < before
        Misbehaving.made += 1
        self.do("make")

    def do(self, where):
        if self.good or where != self.where or self.life < self.when:
            return
        if self.tell:
            Path(self.tell).touch()
        if self.what in DEEDS:
            DEEDS[self.what]()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.do("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.life, self.count = self.life + 1, self.count + 1
        self.do("step")
        shown, paid = np.array([0, self.count], np.float32), 1.0
        if self.where == "step" and self.life >= self.when and not self.good:
            shown, paid = SHOWN.get(self.what, shown), PAID.get(self.what, paid)
        return shown, paid, self.count == 4, False, {}

    def close(self):
        self.do("close")


gymnasium.register(ID, f"{HERE}Misbehaving", max_episode_steps=100)
