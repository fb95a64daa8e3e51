"""Which methods there are. A new one is a file with `EXPERIMENTS`, and one row here."""

from __future__ import annotations

import importlib

from rulax.methods.base import Experiment

METHODS = {
    "maml": "meta-parameters from which one gradient step helps most (Finn et al. 2017), and its first-order form",
    "reptile": "meta-parameters moved to where ordinary learning ends (Nichol et al. 2018)",
    "rl2": "a recurrent policy whose memory learns within a trial (Duan et al. 2016; Wang et al. 2016)",
    "meta_gradient": "the discount and the trace of a rule learned within one life (Xu et al. 2018)",
    "hochreiter": "an LSTM that learns functions while its weights stay (Hochreiter et al. 2001)",
    "plain": "Disco103 as a plain learner in the same environments: no memory, no meta-training, only its updates",
}


def experiments_of(method: str) -> tuple[Experiment, ...]:
    """The experiments of one method."""
    return importlib.import_module(f"rulax.methods.{method}").EXPERIMENTS
