"""How trials are scored and compared: with exact optima where they are known, and with classical policies on the same tasks.

Shared by the experiments of RL² and of `plain`, which play the same environments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rulax.evaluation.references import bandit_optimal, bandit_policies, mdp_planners
from rulax.methods.base import WORST_MARGIN, Reference, Tested
from rulax.types import Experience

BASELINE_SEED = 7
LEAST_INTERACTION = 0.5  # what an agent with a model of the two-step task must reach


class Scoring(NamedTuple):
    """What the rewards of trials mean in one experiment."""

    score: Callable[[np.ndarray, Any], Tested]  # (total rewards [tasks], the tasks they were earned in) -> test result
    metric: Callable[[float], float] = lambda value: value  # the mean reward of a trial -> the experiment's metric
    details: Callable[[Experience], dict[str, float]] = lambda played: {}  # played trials -> further numbers for the record


def on_tasks(policies: dict[str, bandit_policies.Policy], means: np.ndarray, pulls: int) -> dict[str, np.ndarray]:
    """What each policy earns in each task, [tasks]; `means` [tasks, arms]."""
    return {name: bandit_policies.play(policy, means, pulls, BASELINE_SEED) for name, policy in policies.items()}


def classical(pulls: int) -> dict[str, bandit_policies.Policy]:
    """The policies that bandits are usually compared with."""
    return {
        "gittins": bandit_policies.gittins(pulls),
        "ucb1 (c = 0.2)": bandit_policies.ucb1(0.2),
        "thompson": bandit_policies.thompson,
        "greedy": bandit_policies.greedy,
    }


def bandit(pulls: int) -> Scoring:
    """Total reward with independent arms. It is measured through the regret, because the best arm's mean is known to be K / (K + 1)
    on average: the expectation stays the same, and the luck of which tasks were drawn cancels."""

    def score(totals: np.ndarray, tasks: Any) -> Tested:
        means = tasks.means.astype(np.float64)
        arms = means.shape[1]
        expected = pulls * arms / (arms + 1)
        earned = on_tasks(classical(pulls), means, pulls)
        baselines = {name: float(expected - np.mean(pulls * means.max(1) - total)) for name, total in earned.items()}
        exact = Reference("Bayes-optimal", bandit_optimal.bernoulli_bandit(arms, pulls), "exact") if pulls <= 10 else None
        reference = exact or Reference("finite-horizon Gittins index", baselines["gittins"], "planner")
        values = expected - (pulls * means.max(1) - totals)
        return Tested(values, pulls / 2, reference, baselines)

    return Scoring(score)


def two_arms(pulls: int = 100) -> Scoring:
    """The regret of two independent arms."""

    def score(totals: np.ndarray, tasks: Any) -> Tested:
        means = tasks.means.astype(np.float64)
        best = pulls * means.max(1)
        earned = on_tasks(classical(pulls), means, pulls)
        baselines = {name: float(np.mean(best - total)) for name, total in earned.items()}
        reference = Reference("Bayes-optimal", bandit_optimal.two_armed_regret(pulls), "exact")
        return Tested(best - totals, pulls / 6, reference, baselines)  # E|p1 - p2| / 2 per pull is 1/6

    return Scoring(score, lambda value: pulls * 2 / 3 - value)


def dependent_arms(low: float, pulls: int = 100) -> Scoring:
    """The regret of two arms that pay with p and 1 - p; p is uniform if `low` is negative, else `low` or 1 - `low`."""

    def score(totals: np.ndarray, tasks: Any) -> Tested:
        means = tasks.means.astype(np.float64)
        best = pulls * means.max(1)
        thompson = bandit_policies.play(bandit_policies.thompson, means, pulls, BASELINE_SEED)
        optimum = bandit_optimal.dependent_arms_regret(pulls, None if low < 0 else (low, 1 - low))
        reference = Reference("Bayes-optimal", optimum, "exact")
        random = pulls * float(np.mean(means.max(1) - 0.5))
        return Tested(best - totals, random, reference, {"thompson, arms taken as independent": float(np.mean(best - thompson))})

    return Scoring(score, lambda value: pulls * (0.75 if low < 0 else 1 - low) - value)


def informative_arm() -> Scoring:
    """Total reward. The optimum asks once, for 0.1 times the target's number, and then collects 5 four times."""

    def score(totals: np.ndarray, tasks: Any) -> Tested:
        reference = Reference("optimal", bandit_optimal.informative_arm(), "exact")
        return Tested(totals, 5 * float(tasks.means.mean()), reference)

    return Scoring(score)


def two_step(choices: int) -> Scoring:
    """The reward of a choice, whichever place it led to."""

    def score(totals: np.ndarray, tasks: Any) -> Tested:
        reference = Reference("Bayes-optimal", bandit_optimal.two_step(choices), "exact")
        return Tested(totals / choices, 0.5, reference, {"knows the good place": bandit_optimal.two_step_ceiling()})

    return Scoring(score, lambda value: value / choices, stay_probabilities)


def stay_probabilities(played: Experience, choices: int = 10) -> dict[str, float]:
    """How often a choice is repeated, by whether the previous one was rewarded and whether its transition was the common one.

    A model-free learner repeats whatever was rewarded; a learner with a model of the transitions switches after a reward that
    followed a rare one. The interaction of the two factors tells them apart (Daw et al. 2011). Only the first `choices` choices
    of each trial [steps, tasks] count.
    """
    shown = np.asarray(played.observation)[: 2 * choices + 1]
    action = np.asarray(played.action)[: 2 * choices : 2]  # a choice, a step in the place it led to, a choice, ...
    common = shown[1::2, :, 1:3].argmax(-1) == action
    rewarded = shown[2::2, :, 3 + 2] > 0  # the trial shows the reward after the place (3) and the previous action (2)
    stayed = action[1:] == action[:-1]
    chance = {
        f"{outcome} {transition}": float(stayed[(rewarded[:-1] == paid) & (common[:-1] == usual)].mean())
        for outcome, paid in (("rewarded", True), ("unrewarded", False))
        for transition, usual in (("common", True), ("rare", False))
    }
    after_reward, after_none = (chance[f"{outcome} common"] - chance[f"{outcome} rare"] for outcome in ("rewarded", "unrewarded"))
    interaction = after_reward - after_none
    stays = {f"stays after {name}": value for name, value in chance.items()}
    return stays | {"stay interaction": interaction, WORST_MARGIN: interaction - LEAST_INTERACTION}


def random_mdp(episodes: int, planned: int = 2_000) -> Scoring:
    """Total reward in tabular MDPs. Planners are slow, so they play only the first `planned` of the test tasks."""

    def score(totals: np.ndarray, tasks: Any) -> Tested:
        mdps = mdp_planners.MDPs(*(np.asarray(x, np.float64) for x in (tasks.reward, tasks.transition)))
        some = mdp_planners.MDPs(*(x[:planned] for x in mdps))

        def earns(planner: mdp_planners.Planner, plan_every: int | None = None) -> float:
            return float(mdp_planners.play(planner, some, episodes, seed=BASELINE_SEED, plan_every=plan_every).mean())

        greedy = mdp_planners.posterior_mean_greedy(1.0)
        baselines = {
            "posterior-mean greedy": earns(greedy),
            "the same, planning at every step": earns(greedy, 1),
            "psrl": earns(mdp_planners.psrl(1.0)),
        }
        random = earns(mdp_planners.random)
        reference = Reference("value iteration, which knows the MDP", float(mdp_planners.oracle(mdps, episodes).mean()), "oracle")
        return Tested(totals, random, reference, baselines)

    return Scoring(score)
