"""Gymnasium environments that raise, or kill their process; worker processes import them from here."""

import os
from pathlib import Path

import gymnasium
import numpy as np

ID = "RulaxFailing-v0"
HERE = "tests.envs.failing:"  # before an id: what a worker process must import to know it
FRAGILE = "RulaxFragile-v0"


class Failing(gymnasium.Env):
    """Shows [copies made before it, steps of this episode]; rewards 1; ends after four steps. A file per copy counts the copies.

    Copy n, counted from 0 over all streams with this folder, does `what` at the step `when` of its life if n is in `who`.
    The copy that the adapter makes to look at, which it resets with seed 0, neither counts nor fails.
    """

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 1000, (2,), np.float32)

    def __init__(self, folder: str, what: str = "raise", when: int = 3, who: tuple = (), every: bool = False):
        self.folder, self.what, self.when, self.every = Path(folder), what, when, every
        self.who = who
        self.copy = -1  # counted when it first does something: Gymnasium makes copies just to look at them
        self.life = self.count = 0
        self.looked_at = False

    def number(self):
        if self.copy < 0 and not self.looked_at:
            self.copy = len(list(self.folder.iterdir()))
            (self.folder / f"{self.copy}-{os.getpid()}").touch()
        return self.copy

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.looked_at = self.looked_at or seed == 0
        if self.what == "reset" and self.number() in self.who and self.life >= self.when:
            raise ValueError("the game would not start")
        return np.array([self.number(), 0], np.float32), {}

    def step(self, action):
        self.life += 1
        self.count += 1
        if self.life == self.when and not self.looked_at and (self.every or self.number() in self.who):
            if self.what == "exit":
                os._exit(7)
            if self.what == "raise":
                raise OSError("the emulator\nfell over")
        return np.array([self.number(), self.count], np.float32), 1.0, self.count == 4, False, {}


class Fragile(gymnasium.Env):
    """Draws what it shows, whether it ends and whether it raises: a seed determines all of it."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        drawn = self.np_random.random(2, np.float32)
        if drawn[0] < 0.2:
            raise OSError(f"broke at {drawn[0]:.6f}")
        return drawn, float(drawn[1]), bool(drawn[0] > 0.9), False, {}


class Plain(gymnasium.Wrapper):
    """A wrapper that does not record its arguments, as MiniGrid's, so that `gymnasium.make` could not repeat it from its spec."""


gymnasium.register(ID, f"{HERE}Failing", max_episode_steps=100)
gymnasium.register(FRAGILE, f"{HERE}Fragile", max_episode_steps=5)
