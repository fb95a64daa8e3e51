"""Which methods there are. A new one is a file with `EXPERIMENTS`, and one row here."""

from __future__ import annotations

import importlib

from rulax.methods.base import Experiment

METHODS = {
    "rl2": "a recurrent policy whose memory learns within a trial (Duan et al. 2016; Wang et al. 2016)",
    "plain": "Disco103 as a plain learner in the same worlds: no memory, no meta-training, only its updates",
}


def experiments_of(method: str) -> tuple[Experiment, ...]:
    """The experiments of one method."""
    return importlib.import_module(f"rulax.methods.{method}").EXPERIMENTS
