"""The list of methods. A new one is a file `methods/<name>.py`, a file `methods/experiments/<name>.py`, and a row here."""

from __future__ import annotations

import importlib

from rulax.methods.base import Experiment

METHODS = {
    "maml": "an initialisation from which one gradient step helps most (Finn et al. 2017), and its first-order form",
    "reptile": "an initialisation moved towards where ordinary learning ends (Nichol et al. 2018)",
    "maesn": "a latent variable per episode, whose distribution a few episodes of a task move (Gupta et al. 2018)",
    "rl2": "a recurrent policy whose memory learns within a trial (Duan et al. 2016; Wang et al. 2016)",
    "episodic_lstm": "an LSTM that gets back what it knew when the same context was met before (Ritter et al. 2018)",
    "meta_gradient": "the discount and the trace of a rule, learned within one lifetime (Xu et al. 2018)",
    "hochreiter": "an LSTM that learns functions while its weights stay fixed (Hochreiter et al. 2001)",
    "diayn": "skills without a reward, each recognisable by where it goes (Eysenbach et al. 2018)",
    "unsupervised": "tasks that an environment makes of itself, for MAML and for RL² (Gupta et al. 2018)",
    "domain_randomisation": "one policy for a range of dynamics, drawn for every episode (Packer et al. 2018)",
    "episodic_control": "tables of what followed, so that one good episode is enough (Blundell et al. 2016; Pritzel et al. 2017)",
    "lpg": "an update rule without a value function, found from random weights by back-propagation (Oh et al. 2020)",
    "drift": "what keeps a proximal rule near its data: DPO's closed form, and a drift that is evolved here (Lu et al. 2022)",
    "epg": "a loss network, evolved over whole lives of agents that learn by it (Houthooft et al. 2018)",
    "pbt": "agents that learn side by side; bad ones go on as copies of good ones, with other settings (Jaderberg et al. 2017)",
    "poet": "environments and agents that make each other harder and better (Wang et al. 2019)",
    "plain": "Disco103 as a plain learner in the same environments: no memory, no meta-training, only its updates",
}


def experiments_of(method: str) -> tuple[Experiment, ...]:
    """The experiments of one method, a key of `METHODS`."""
    return importlib.import_module(f"rulax.methods.experiments.{method}").EXPERIMENTS
