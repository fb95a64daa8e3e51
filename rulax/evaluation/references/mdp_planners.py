"""Planners that learn random tabular MDPs episode by episode, on many MDPs at once: what RL^2 is compared with.

A task: P(. | s, a) ~ Dirichlet(1), mean rewards ~ N(1, 1), rewards with unit normal noise, episodes of H steps from state 0. A
planner knows this family and its own prior, computes Q-values before each episode from its observations, and acts greedily.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

REWARD_MEAN = 1.0  # of the tasks' mean rewards: the true prior


class MDPs(NamedTuple):
    """Many MDPs."""

    rewards: np.ndarray  # [N, S, A] means
    transitions: np.ndarray  # [N, S, A, S] probabilities


class Evidence(NamedTuple):
    """What has been observed in each MDP."""

    rewards: np.ndarray  # [N, S, A] sums of rewards
    transitions: np.ndarray  # [N, S, A, S] counts


# (evidence, steps left in the episode, random numbers) -> Q-values [steps left, N, S, A]
Planner = Callable[[Evidence, int, np.random.Generator], np.ndarray]


def sample_mdps(count: int, states: int = 10, actions: int = 5, *, seed: int) -> MDPs:
    """Draw tasks from the family: P(. | s, a) ~ Dirichlet(1), R(s, a) ~ N(1, 1)."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(REWARD_MEAN, 1.0, (count, states, actions))
    return MDPs(rewards, _dirichlet(np.ones((count, states, actions, states)), rng))


def value_iteration(mdps: MDPs, horizon: int) -> np.ndarray:
    """Optimal Q-values with 0, 1, ... steps of the episode made, [H, N, S, A].

    Q_h(s, a) = R(s, a) + sum_s' P(s' | s, a) max_a' Q_{h+1}(s', a'),   Q_H = 0.
    """
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, not {horizon}")
    count, states, actions = mdps.rewards.shape
    # A flat table [S A, S] per MDP, so that a sweep is one batched matrix product.
    table = np.ascontiguousarray(mdps.transitions).reshape(count, states * actions, states)
    q = np.empty((horizon, *mdps.rewards.shape))
    q[-1] = mdps.rewards
    for h in reversed(range(horizon - 1)):
        q[h] = mdps.rewards + (table @ q[h + 1].max(-1)[..., None]).reshape(mdps.rewards.shape)
    return q


def oracle(mdps: MDPs, episodes: int = 10, horizon: int = 10) -> np.ndarray:
    """Expected total reward [N] of a planner that knows the MDP: episodes * max_a Q_0(0, a)."""
    return episodes * value_iteration(mdps, horizon)[0, :, 0].max(-1)


def play(
    planner: Planner, mdps: MDPs, episodes: int = 10, horizon: int = 10, *, seed: int, plan_every: int | None = None
) -> np.ndarray:
    """Total reward [N] of a planner that starts from its prior. It is credited with mean rewards and observes noisy ones.

    Args:
        planner: computes Q-values from the evidence so far.
        mdps: the N tasks.
        episodes: per task.
        horizon: steps of an episode.
        seed: of rewards, transitions and ties.
        plan_every: the planner is called at the start of an episode and after every so many steps; by default, as these
            algorithms are published, only at the start.

    Among equal Q-values the planner keeps to one action per state until it plans again. This matters to a greedy planner, which
    has many ties: on 10 episodes of 10 steps it gets 149.6, with ties broken anew at each step 154.5, and planning at each step
    158.4.
    """
    every = horizon if plan_every is None else plan_every
    if episodes < 1 or every < 1:
        raise ValueError(f"episodes and plan_every must be at least 1, not {episodes} and {every}")
    rng = np.random.default_rng(seed)
    count, states, actions = mdps.rewards.shape
    cumulative = mdps.transitions.cumsum(-1)
    evidence = Evidence(np.zeros((count, states, actions)), np.zeros((count, states, actions, states)))
    tasks, total = np.arange(count), np.zeros(count)
    for _ in range(episodes):
        state = np.zeros(count, np.int64)
        for h in range(horizon):
            if h % every == 0:
                q, preferred = planner(evidence, horizon - h, rng), rng.random(mdps.rewards.shape, np.float32)
            # Entry 0 of a plan is for the step at which it was made.
            here = q[h % every, tasks, state]
            equals = here == here.max(-1, keepdims=True)
            action = np.where(equals, preferred[tasks, state], -1.0).argmax(-1)
            credited = mdps.rewards[tasks, state, action]
            # Inverse transform sampling, since `rng.choice` takes one distribution and here every MDP has its own.
            below = cumulative[tasks, state, action] < rng.random((count, 1))
            following = np.minimum(below.sum(-1), states - 1)  # probabilities may add up to slightly less than one
            evidence.rewards[tasks, state, action] += credited + rng.normal(size=count)
            evidence.transitions[tasks, state, action, following] += 1
            total += credited
            state = following
    return total


def random(evidence: Evidence, horizon: int, rng: np.random.Generator) -> np.ndarray:
    """A uniformly random policy: an action is drawn for each state and step of each episode."""
    return rng.random((horizon, *evidence.rewards.shape))


def posterior_mean_greedy(reward_mean: float = REWARD_MEAN) -> Planner:
    """Plan in the posterior mean: rewards (mu + sum) / (1 + n), transitions (1 + n_s') / (S + n). It explores only by chance."""

    def plan(evidence: Evidence, horizon: int, rng: np.random.Generator) -> np.ndarray:
        mean, _ = _reward_posterior(evidence, reward_mean)
        weights = 1 + evidence.transitions
        return value_iteration(MDPs(mean, weights / weights.sum(-1, keepdims=True)), horizon)

    return plan


def psrl(reward_mean: float = REWARD_MEAN) -> Planner:
    """Posterior sampling (Osband et al., 2013): plan in one MDP drawn from the posterior before each episode.

    R ~ N((mu + sum) / (1 + n), 1 / (1 + n)),   P(. | s, a) ~ Dirichlet(1 + n_s').
    """

    def plan(evidence: Evidence, horizon: int, rng: np.random.Generator) -> np.ndarray:
        mean, deviation = _reward_posterior(evidence, reward_mean)
        drawn = MDPs(mean + deviation * rng.normal(size=mean.shape), _dirichlet(1 + evidence.transitions, rng))
        return value_iteration(drawn, horizon)

    return plan


def optimistic_psrl(samples: int = 10, reward_mean: float = REWARD_MEAN) -> Planner:
    """Optimistic posterior sampling: the greatest of each Q-value among several draws, max_k Q_h^(k)(s, a)."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    draw = psrl(reward_mean)

    def plan(evidence: Evidence, horizon: int, rng: np.random.Generator) -> np.ndarray:
        q = draw(evidence, horizon, rng)
        for _ in range(samples - 1):
            np.maximum(q, draw(evidence, horizon, rng), out=q)
        return q

    return plan


def _reward_posterior(evidence: Evidence, reward_mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each mean reward: prior N(mu, 1), unit noise."""
    precision = 1 + evidence.transitions.sum(-1)
    return (reward_mean + evidence.rewards) / precision, precision**-0.5


def _dirichlet(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    # Normalised gammas, because NumPy's `dirichlet` takes one vector of weights at a time.
    drawn = rng.standard_gamma(weights)
    return drawn / drawn.sum(-1, keepdims=True)
