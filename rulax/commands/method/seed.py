"""One seed of an experiment on its way: how far it has come, and the checkpoint from which it goes on."""

from __future__ import annotations

import math
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from rulax.commands.driver import Clock
from rulax.files import jsonable
from rulax.methods.base import Progress, SeedRun
from rulax.records import checkpoint


class SeedInProgress:
    """One seed, taken up from its checkpoint if there is one."""

    def __init__(self, path: Path, study: SeedRun):
        self.path, self.study, self.clock = path, study, Clock()
        self.latest: Progress | None = None
        self.curve: list[tuple[int, float]] = []
        if study.kept and path.exists():
            self.take_up()

    def take_up(self) -> None:
        """Go on from the checkpoint."""
        found = checkpoint.load(self.path)
        on_device = checkpoint.unpack(found, self.parts(on_host=False), self.path)
        for name, now in self.parts(on_host=True).items():
            put(self.study, name, int(found.pending[name]) if isinstance(now, int) else np.array(found.pending[name], now.dtype))
        for name, value in on_device.items():
            put(self.study, name, value)
        facts = found.facts
        self.clock = Clock(facts["seconds"], facts["cpu_seconds"])
        self.curve = [(step, number(value)) for step, value in facts["curve"]]
        if facts["latest"]:
            fraction, updates, steps, value = facts["latest"]
            self.latest = Progress(fraction, updates, steps, number(value))

    def advance(self) -> Progress:
        """About a second of training."""
        self.latest = self.study.advance()
        self.curve.append((self.latest.env_steps, self.latest.value))
        return self.latest

    def save(self) -> None:
        """Write the checkpoint, of a seed that can be saved."""
        if not self.study.kept:
            return
        facts = {"seconds": self.clock.seconds, "cpu_seconds": self.clock.cpu_seconds}
        facts |= {"curve": jsonable(self.curve), "latest": jsonable(list(self.latest or ()))}
        pending = {name: np.asarray(value) for name, value in self.parts(on_host=True).items()}
        checkpoint.save(self.path, self.parts(on_host=False), pending, facts)

    def parts(self, on_host: bool) -> dict[str, Any]:
        """What is kept of the seed, by name: numbers and arrays of numpy, or trees of arrays on the device."""
        found = {name: attrgetter(name)(self.study) for name in self.study.kept}
        return {name: value for name, value in found.items() if isinstance(value, int | np.ndarray) == on_host}

    def remove(self) -> None:
        """The seed is finished: nothing goes on from here."""
        for path in self.path.parent.glob(f"{self.path.stem}*{self.path.suffix}"):
            path.unlink(missing_ok=True)


def put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute, which may be one of a part."""
    *parts, last = name.split(".")
    for part in parts:
        owner = getattr(owner, part)
    setattr(owner, last, value)


def number(value: float | None) -> float:
    """As JSON has it: null is NaN."""
    return math.nan if value is None else value
