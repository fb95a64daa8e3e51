"""The NetHack Learning Environment as a host environment; an observation is a dictionary of arrays.

NetHack is reproducible only where it does not reseed itself, so it never does here: a seed determines a game.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import one_of
from rulax.envs.adapters.streams import CopiedEnvironment

DEFAULTS = {"keys": ("glyphs", "blstats"), "max_episode_steps": 5000, "character": "mon-hum-neu-mal"}
FLOATS = ("blstats",)  # quantities: hit points, depth, ...; everything else is codes, which stay whole numbers


def ids() -> list[str]:
    """Every task that nle registers."""
    adapters.load("nle", "nethack")
    return sorted(id for id in adapters.load("gymnasium", "nethack").registry if id.startswith("NetHack"))


def make(id: str, **options: Any) -> CopiedEnvironment:
    """The task of that id; `keys` says which parts of nle's observation are shown, by default the map and the status line."""
    if id not in ids():
        raise adapters.unknown_id("NetHack", id, ids())
    read = adapters.read_options(f"nethack/{id}", DEFAULTS, options)
    known = dict(adapters.load("nle.env.base", "nethack").NLE_SPACE_ITEMS)
    for key in read["keys"]:
        if key not in known:
            raise ValueError(f"'nethack/{id}': keys has no '{key}'; there are {', '.join(known)}")
    observation = {
        key: jax.ShapeDtypeStruct(known[key].shape, np.float32 if key in FLOATS else known[key].dtype) for key in read["keys"]
    }
    probe = NetHackCopy(id, read)
    actions = one_of(int(probe.world.action_space.n))
    probe.close()
    return CopiedEnvironment(f"nethack/{id}", actions, observation, lambda: NetHackCopy(id, read))


class NetHackCopy:
    """One game. The time limit is ours: nle's own quits the game, and the last observation then shows how it is being quit."""

    def __init__(self, id: str, options: dict[str, Any]):
        self.limit = options["max_episode_steps"]
        arguments = {"observation_keys": options["keys"], "character": options["character"], "max_episode_steps": 2**31 - 1}
        # Made by nle's own class: Gymnasium's wrappers would only check again what is checked here.
        spec = adapters.load("gymnasium", "nethack").spec(id)
        module, _, name = str(spec.entry_point).partition(":")
        self.world = getattr(adapters.load(module, "nethack"), name)(**{**spec.kwargs, **arguments})

    def reset(self, seed: int | None) -> dict[str, np.ndarray]:
        if seed is not None:
            self.seeds = np.random.default_rng(seed)
        self.steps = 0
        core, display = (int(each) for each in self.seeds.integers(0, 2**31, 2))
        self._seed(core, display)
        return self._copied(self.world.reset()[0])

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool]:
        observation, reward, done, truncated, info = self.world.step(action)
        self.steps += 1
        # NetHackChallenge gives up a game that makes no progress: nle calls that an abortion (StepStatus -1), not an end.
        aborted = bool(truncated) or int(info["end_status"]) == -1 or (self.steps >= self.limit and not done)
        return self._copied(observation), float(reward), bool(done) and not aborted, aborted

    def close(self) -> None:
        self.world.close()

    def _seed(self, core: int, display: int) -> None:
        """NetHackChallenge forbids to set seeds; underneath it is the same game."""
        self.world.nethack.set_initial_seeds(core, display, False, None)

    def _copied(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {key: value.copy() for key, value in observation.items()}  # nle writes the next one into the same arrays
