"""The NetHack Learning Environment as a host environment; an observation is a dictionary of arrays.

NetHack is reproducible only where it neither reseeds itself nor looks at the moon, so it never does here: a seed determines a game.
"""

from __future__ import annotations

import inspect
from typing import Any

import jax
import numpy as np

from rulax.envs import adapters
from rulax.envs.actions import one_of
from rulax.envs.adapters.streams import CopiedEnvironment
from rulax.types import PyTree

KEYS = ("glyphs", "blstats")
QUANTITIES = ("blstats", "tty_cursor")  # hit points, depth, a place; everything else is codes, which stay whole numbers
NEVER = 2**31 - 1
CHARACTER = (  # what NetHack reads in a name such as Agent-mon-hum-neu-mal; what it cannot read it passes over
    "archeologist barbarian caveman cavewoman healer knight monk priest priestess rogue ranger samurai tourist valkyrie wizard",
    "human elf dwarf gnome orc",
    "lawful neutral chaotic",
    "male female",
)


def ids() -> list[str]:
    """Every task that nle registers."""
    adapters.load("nle", "nethack")
    return sorted(id for id in adapters.load("gymnasium", "nethack").registry if id.startswith("NetHack"))


def make(id: str, **options: Any) -> CopiedEnvironment:
    """The task of that id; `keys` says which parts of nle's observation are shown, by default the map and the status line.

    `max_episode_steps` and `character` are the task's own unless given: 5000 and a monk, in the Challenge 1,000,000 and any.
    """
    if id not in ids():
        raise adapters.unknown_id("NetHack", id, ids())
    read = adapters.read_options(f"nethack/{id}", {"keys": KEYS, **_defaults(_task(id))}, options)
    known = dict(adapters.load("nle.env.base", "nethack").NLE_SPACE_ITEMS)
    for key in read["keys"]:
        if key not in known:
            raise ValueError(f"'nethack/{id}': keys has no '{key}'; there are {', '.join(known)}")
    adapters.check_least(f"nethack/{id}", read, max_episode_steps=1)
    _check_character(id, read["character"])
    blank = {key: _read(key, np.zeros(known[key].shape, known[key].dtype)) for key in read["keys"]}
    observation = {key: jax.ShapeDtypeStruct(part.shape, part.dtype) for key, part in blank.items()}
    probe = NetHackCopy(id, read)
    actions = one_of(int(probe.environment.action_space.n))
    probe.close()
    return NetHackEnvironment(f"nethack/{id}", actions, observation, lambda: NetHackCopy(id, read))


class NetHackEnvironment(CopiedEnvironment):
    """One task of nle; `preprocess` reads nle's own observations."""

    def preprocess(self, observation: dict[str, Any]) -> PyTree:
        return {key: _read(key, np.asarray(observation[key])) for key in self.observation}

    def stacked(self, observations: list[PyTree]) -> PyTree:
        return self.preprocess({key: np.stack([one[key] for one in observations]) for key in self.observation})


def _task(id: str) -> Any:
    """nle's own class: Gymnasium's wrappers would only check again what is checked here."""
    module, _, name = str(adapters.load("gymnasium", "nethack").spec(id).entry_point).partition(":")
    return getattr(adapters.load(module, "nethack"), name)


def _defaults(task: Any) -> dict[str, Any]:
    """A task's own limit and character, which it may have from the class it is made of."""
    found: dict[str, Any] = {}
    # From the base class down, so that the task's own defaults win.
    for kind in reversed(task.__mro__):
        parameters = inspect.signature(kind.__init__).parameters
        found |= {name: parameters[name].default for name in ("max_episode_steps", "character") if name in parameters}
    return {**found, "max_episode_steps": int(found["max_episode_steps"])}  # the Challenge's is 1e6


def _check_character(id: str, character: str) -> None:
    """NetHack draws at random what it is not told, and says nothing about a word it does not know."""
    parts = character.lower().split("-")
    kinds = [i for part in parts for i, names in enumerate(CHARACTER) if _is_one_of(part, names)]
    if character != "@" and not len(parts) == len(kinds) == len(set(kinds)):
        raise ValueError(
            f"'nethack/{id}': character must be @ (drawn anew in each game), or at most one role, race, alignment and gender as in "
            f"mon-hum-neu-mal, not {character!r}"
        )


def _is_one_of(part: str, names: str) -> bool:
    return len(part) >= 3 and any(name.startswith(part) for name in names.split())


def _read(key: str, shown: np.ndarray) -> np.ndarray:
    """What an agent sees of one part, [...]. Bytes would be read as brightness: letters and colours are names.

    Quantities x become sign(x) log(1 + |x|): turns and points run to many thousands, and a network that reads them as they are is
    blind to all else. The conditions of the status line (stunned, blind, ...) are the bits of one of its numbers, and become its
    last entries, 0 or 1 each.
    """
    if key not in QUANTITIES:
        return shown.astype(np.int16) if shown.dtype.itemsize == 1 else shown
    numbers, bits = shown.astype(float), shown[..., :0]
    if key == "blstats":
        nethack = adapters.load("nle.nethack", "nethack")
        bits = shown[..., nethack.NLE_BL_CONDITION, None] >> np.arange(nethack.BL_MASK_BITS) & 1
        numbers = np.delete(numbers, nethack.NLE_BL_CONDITION, -1)
    return np.concatenate([np.sign(numbers) * np.log1p(np.abs(numbers)), bits], -1, dtype=np.float32, casting="unsafe")


class NetHackCopy:
    """One game. The limits are ours: nle's own quit the game, and the last observation then shows how it is being quit.

    nle 1.3 also counts a step without progress twice, and would give up after half as many as it says.
    """

    def __init__(self, id: str, options: dict[str, Any]):
        self.limit, self.keys = options["max_episode_steps"], options["keys"]
        shown = (*self.keys, *({"blstats"} - set(self.keys)))  # has the count of turns
        arguments = {"observation_keys": shown, "character": options["character"], "max_episode_steps": NEVER}
        self.environment = _task(id)(**arguments, fix_moon_phase=True)
        self.patience = getattr(self.environment, "no_progress_timeout", None)  # of the Challenge
        if self.patience is not None:
            self.environment.no_progress_timeout = NEVER
        self.time = int(adapters.load("nle.nethack", "nethack").NLE_BL_TIME)

    def reset(self, seed: int | None) -> dict[str, np.ndarray]:
        if seed is not None:
            self.seeds = np.random.default_rng(seed)
        core, display = (int(each) for each in self.seeds.integers(0, 2**31, 2))
        game = self.environment.nethack
        type(game).set_initial_seeds(game, core, display, False, None)  # the Challenge forbids it; underneath it is the same game
        observation = self.environment.reset()[0]
        self.steps, self.idle, self.turn = 0, 0, int(observation["blstats"][self.time])
        return self._copied(observation)

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool]:
        observation, reward, done, _, _ = self.environment.step(action)
        self.steps += 1
        cut = self.steps >= self.limit or self._stuck(observation)
        return self._copied(observation), float(reward), bool(done), cut and not done

    def close(self) -> None:
        self.environment.close()

    def _stuck(self, observation: dict[str, np.ndarray]) -> bool:
        """Whether the Challenge would give up a game that makes no progress: so many steps, and still the same turn."""
        if self.patience is None:
            return False
        turn = int(observation["blstats"][self.time])
        self.idle, self.turn = self.idle + 1 if turn == self.turn else 0, turn
        return self.idle >= self.patience

    def _copied(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {key: observation[key].copy() for key in self.keys}  # nle writes the next one into the same arrays
