"""What a user may choose for `rulax method`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
from typing import Literal

from rulax.commands.config import setting


@dataclasses.dataclass(frozen=True)
class MethodConfig:
    """Run the experiments of a method of the meta-RL family, and judge them by exact references."""

    method: str = setting("", "what to run", positional=True, metavar="NAME|list|all")
    """A method, or `list` for what there is, or `all` for every experiment of every method."""
    experiment: str = setting("", "what to run", metavar="NAME")
    """One experiment of the method [default: all of its experiments]."""
    suite: Literal["quick", "full"] = setting("full", "what to run")
    """Sizes and goals: quick takes seconds to a minute per experiment, full minutes."""
    seeds: int = setting(3, "what to run")
    """How often each experiment is repeated from scratch; all seeds are reported."""
    seed: int = setting(0, "what to run")
    """The first of the seeds."""
    budget: float = setting(0.0, "what to run", metavar="SECONDS")
    """Seconds of training per seed, after which it is tested as it is; 0 means no limit."""
    out: str = setting("", "run", metavar="DIR")
    """Folder for the records [default: runs/method-NAME-NUMBER]."""
    resume: str = setting("", "run", metavar="DIR")
    """Go on in this folder: seeds that are finished stay; other settings than its own are refused."""
    platform: Literal["auto", "cpu", "gpu", "tpu"] = setting("auto", "run")
    """Where to compute; auto takes an accelerator if there is one."""
    quiet: bool = setting(False, "run")
    """Show no progress and no table; print only the folder."""
