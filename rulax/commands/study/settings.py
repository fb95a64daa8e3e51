"""What a user may choose for `rulax study`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses

from rulax.commands.settings import LARGEST_SEED, Resumable
from rulax.settings import setting

WHAT = "what to study"


@dataclasses.dataclass(frozen=True)
class StudyConfig(Resumable):
    """Discover rules that differ in one thing, several times each, and show what that thing does; it goes on where it stopped."""

    study: str = setting("", WHAT, positional=True, metavar="NAME|FILE|list")
    """A study, or `list` for what there is; or your own, as a YAML file such as those of the package."""
    points: tuple[str, ...] = setting((), WHAT, metavar="POINT", on_resume=True)
    """Only these points of the study, and those that they are compared with [default: all]."""
    seeds: int = setting(3, WHAT, at_least=1, on_resume=True)
    """Discoveries per point, each from random weights of its own."""
    seed: int = setting(0, WHAT, at_least=0, at_most=LARGEST_SEED)
    """The first of these seeds."""
    steps: int = setting(0, WHAT, at_least=0)
    """Meta-steps of every discovery; 0 means what the study says."""
