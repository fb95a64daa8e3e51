"""What a user may choose for `rulax method`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from rulax.commands.settings import LARGEST_SEED, Resumable
from rulax.settings import setting

WHAT = "what to run"


@dataclasses.dataclass(frozen=True)
class MethodConfig(Resumable):
    """Run the meta-RL family on its own experiments, beside exact references."""

    method: str = setting("", WHAT, positional=True, metavar="NAME|list|all")
    """A method, or `list` for what there is, or `all` for every experiment of every method; or your own experiments, as
    file.py:name."""
    experiment: str = setting("", WHAT, metavar="NAME")
    """One experiment of the method [default: all of its experiments]."""
    suite: Literal["quick", "full"] = setting("full", WHAT)
    """Sizes and goals: quick takes seconds to a minute per experiment, full minutes."""
    options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the experiment, where it has some, for example env=mine.py:Terrain agents=ppo of poet's experiment own."""
    seeds: int = setting(3, WHAT, at_least=1)
    """How often each experiment is repeated from scratch; all seeds are reported."""
    seed: int = setting(0, WHAT, at_least=0, at_most=LARGEST_SEED)
    """The first of the seeds."""
    budget: float = setting(0.0, WHAT, metavar="SECONDS", at_least=0)
    """Seconds of training per seed, after which it is tested as it is; 0 means no limit."""
