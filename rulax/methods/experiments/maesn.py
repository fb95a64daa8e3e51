"""MAESN's experiment: a point that has to find its goal on a half circle, where nothing is paid until it is met."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.agents.latent import make_latent_agent
from rulax.envs.lasting import with_noise
from rulax.envs.point import HalfCircle, best_sparse_return
from rulax.envs.tasks import finite_set
from rulax.methods.adaptation import Adaptation, MetaState, adapt, environment_tasks
from rulax.methods.base import WORST_MARGIN, Experiment, Reference, SeedRun, Suite, Tested
from rulax.methods.experiments.adaptation import (
    TEST_SEED,
    AdaptationRun,
    AdaptationSetup,
    AdaptationTest,
    PolicySizes,
    init_gaussian,
    joint_setup,
    policy_cost,
    policy_learner,
    policy_optimiser,
    sampled_tasks,
)
from rulax.methods.maesn import MAESN, init_params, latent_learner, meta_update, rule_without_noise, start_from_prior, training_tasks
from rulax.methods.maml import MAML
from rulax.methods.maml import meta_update as maml_update
from rulax.rules.likelihood_ratio import likelihood_ratio
from rulax.settings import Network
from rulax.types import Array, PyTree, now

SIZES = {
    "quick": PolicySizes(total=60, updates=1, hidden=(32, 32), tested=100, chunk=5),
    "full": PolicySizes(total=600, updates=1, chunk=10),
}
TASKS = 100  # of training
LATENT = 2  # numbers of the latent variable
LATENT_RATE = 20.0  # a latent variable is drawn once per episode, but gradients are means over its 20 steps
RATE = 0.1  # of all other parameters
KL_WEIGHT = 0.1
EPISODES = 20  # of a test task before its update, and after it
SHARE, HITS, COVERAGE = 0.6, 0.7, 3.0  # goals: share of the oracle's return, of episodes that meet the goal, ratio to MAML's coverage
SECTORS = 36  # in which the half circle's angles are counted
