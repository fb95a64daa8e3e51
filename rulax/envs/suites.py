"""Suites: groups of environments to compare on, by one name. Does not import JAX."""

from __future__ import annotations

from typing import NamedTuple

from rulax.envs.registry import families


class Suite(NamedTuple):
    """Several environments, in the order in which they are shown."""

    summary: str
    environments: tuple[str, ...]


def _gymnax(ending: str, *names: str) -> tuple[str, ...]:
    return tuple(f"gymnax/{name}-{ending}" for name in names)


SUITES = {
    "classic": Suite("four classic control tasks", ("cartpole", "mountain_car", "acrobot", "pendulum")),
    "grids": Suite("all grid environments", tuple(entry.name for entry in families()["grid"])),
    "minatar": Suite(
        "small Atari games, in gymnax", _gymnax("MinAtar", "Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
    ),
    "bsuite": Suite(
        "one skill each, in gymnax",
        _gymnax("bsuite", "Catch", "DeepSea", "DiscountingChain", "MemoryChain", "SimpleBandit", "UmbrellaChain"),
    ),
}
