"""What is known about small tasks without any learning: exact optima, and classical algorithms to run on the same tasks.

References are code rather than constants, so that they can be run on the very tasks of a result. NumPy only.
"""

from rulax.evaluation.references.bandit_optimal import (
    bernoulli_bandit,
    dependent_arms_regret,
    informative_arm,
    two_armed_bandit,
    two_armed_regret,
    two_step,
    two_step_ceiling,
)
from rulax.evaluation.references.bandit_policies import Policy, epsilon_greedy, gittins, gittins_indices, greedy, thompson, ucb1
from rulax.evaluation.references.bandit_policies import play as play_bandits
from rulax.evaluation.references.bandit_policies import random as random_arms
from rulax.evaluation.references.linear_filter import Filtered, bayes_linear_filter, quadratic_features, sample_quadratics
from rulax.evaluation.references.mdp_planners import (
    Evidence,
    MDPs,
    Planner,
    optimistic_psrl,
    oracle,
    posterior_mean_greedy,
    psrl,
    sample_mdps,
    value_iteration,
)
from rulax.evaluation.references.mdp_planners import play as play_mdps
from rulax.evaluation.references.mdp_planners import random as random_actions

__all__ = [
    "Evidence",
    "Filtered",
    "MDPs",
    "Planner",
    "Policy",
    "bayes_linear_filter",
    "bernoulli_bandit",
    "dependent_arms_regret",
    "epsilon_greedy",
    "gittins",
    "gittins_indices",
    "greedy",
    "informative_arm",
    "optimistic_psrl",
    "oracle",
    "play_bandits",
    "play_mdps",
    "posterior_mean_greedy",
    "psrl",
    "quadratic_features",
    "random_actions",
    "random_arms",
    "sample_mdps",
    "sample_quadratics",
    "thompson",
    "two_armed_bandit",
    "two_armed_regret",
    "two_step",
    "two_step_ceiling",
    "ucb1",
    "value_iteration",
]
