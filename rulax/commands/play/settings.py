"""What a user may choose for `rulax play`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rulax.commands.evaluate.settings import HOW, WHAT, AgentsConfig, check, with_ranges
from rulax.commands.settings import assemble, read_values
from rulax.errors import UserError
from rulax.settings import setting


@dataclasses.dataclass(frozen=True)
class PlayConfig(AgentsConfig):
    """Watch a trained agent in the terminal, or save a film of it."""

    agent: int = setting(0, WHAT, at_least=0)
    """Which of a run's agents, by its number; they are numbered from 0."""
    episodes: int = setting(3, HOW, at_least=1)
    """Episodes to play, one after the other."""
    greedy: bool = setting(True, HOW)
    """Whether it takes the most likely actions; --no-greedy draws them as in training."""
    fps: float = setting(15.0, HOW, above=0, at_most=100)
    """Steps per second."""
    gif: str = setting("", "films", metavar="FILE")
    """Save an animated gif instead."""
    mp4: str = setting("", "films", metavar="FILE")
    """Save an mp4 instead; needs `pip install 'rulax[video]'`."""
    most: int = setting(2000, "films", at_least=1)
    """Longest film, in pictures: episodes beyond that are cut off."""


def build_play(values: Mapping[str, Any]) -> PlayConfig:
    """A configuration from what the user gave."""
    config = assemble(PlayConfig, with_ranges(read_values(PlayConfig, values)))
    check(config, "play")
    for name, ending in (("gif", ".gif"), ("mp4", ".mp4")):
        if getattr(config, name) and not getattr(config, name).endswith(ending):
            raise UserError(f"--{name} expects a file that ends in {ending}, not '{getattr(config, name)}'")
    return config
