"""Which methods there are. A new one is a file with `EXPERIMENTS`, and one row here."""

from __future__ import annotations

import importlib

from rulax.methods.base import Experiment

METHODS = {
    "maml": "meta-parameters from which one gradient step helps most (Finn et al. 2017), and its first-order form",
    "reptile": "meta-parameters moved to where ordinary learning ends (Nichol et al. 2018)",
    "rl2": "a recurrent policy whose memory learns within a trial (Duan et al. 2016; Wang et al. 2016)",
    "plain": "Disco103 as a plain learner in the same worlds: no memory, no meta-training, only its updates",
}


def experiments_of(method: str) -> tuple[Experiment, ...]:
    """The experiments of one method."""
    return importlib.import_module(f"rulax.methods.{method}").EXPERIMENTS
