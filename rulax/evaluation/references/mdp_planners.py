"""Planners that learn random tabular MDPs episode by episode, on many MDPs at once: what RL^2 is compared with.

A task: P(. | s, a) ~ Dirichlet(1), mean rewards ~ N(1, 1), rewards with unit normal noise, episodes of H steps from state 0. A
planner knows this family and its own prior, makes Q-values before each episode from what it has seen, and acts greedily on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

REWARD_MEAN = 1.0  # of the tasks' mean rewards: the true prior


class MDPs(NamedTuple):
    """Many MDPs: mean rewards [N, S, A], and transition probabilities [N, S, A, S]."""

    rewards: np.ndarray
    transitions: np.ndarray


class Seen(NamedTuple):
    """What was seen in each MDP: sums of rewards [N, S, A], and how often which state followed [N, S, A, S]."""

    rewards: np.ndarray
    followed: np.ndarray


# (what was seen, steps left in the episode, random numbers) -> Q-values [steps left, N, S, A]
Planner = Callable[[Seen, int, np.random.Generator], np.ndarray]


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
    table = np.ascontiguousarray(mdps.transitions).reshape(count, states * actions, states)
    q = np.empty((horizon, *mdps.rewards.shape))
    q[-1] = mdps.rewards
    for h in reversed(range(horizon - 1)):
        q[h] = mdps.rewards + (table @ q[h + 1].max(-1)[..., None]).reshape(mdps.rewards.shape)
    return q


def oracle(mdps: MDPs, episodes: int = 10, horizon: int = 10) -> np.ndarray:
    """Expected total reward [N] of who knows the MDP: episodes * max_a Q_0(0, a)."""
    return episodes * value_iteration(mdps, horizon)[0, :, 0].max(-1)


def play(
    planner: Planner, mdps: MDPs, episodes: int = 10, horizon: int = 10, *, seed: int, plan_every: int | None = None
) -> np.ndarray:
    """Total reward [N] of a planner that starts knowing nothing. Mean rewards are credited; the planner sees noisy ones.

    It plans at the start of an episode and after each `plan_every` steps of it; by default, as these algorithms are published,
    only at the start. Among equal Q-values it keeps to one action of each state until it plans again. This matters to a greedy
    planner, which has many equals: on 10 episodes of 10 steps it gets 149.6, with ties broken anew at each step 154.5, and
    planning at each step 158.4.
    """
    every = horizon if plan_every is None else plan_every
    if episodes < 1 or every < 1:
        raise ValueError(f"episodes and plan_every must be at least 1, not {episodes} and {every}")
    rng = np.random.default_rng(seed)
    count, states, actions = mdps.rewards.shape
    cumulative = mdps.transitions.cumsum(-1)
    seen = Seen(np.zeros((count, states, actions)), np.zeros((count, states, actions, states)))
    tasks, total = np.arange(count), np.zeros(count)
    for _ in range(episodes):
        state = np.zeros(count, np.int64)
        for h in range(horizon):
            if h % every == 0:
                q, preferred = planner(seen, horizon - h, rng), rng.random(mdps.rewards.shape, np.float32)
            here = q[h % every, tasks, state]
            equals = here == here.max(-1, keepdims=True)
            action = np.where(equals, preferred[tasks, state], -1.0).argmax(-1)
            credited = mdps.rewards[tasks, state, action]
            below = cumulative[tasks, state, action] < rng.random((count, 1))
            following = np.minimum(below.sum(-1), states - 1)  # probabilities may add up to slightly less than one
            seen.rewards[tasks, state, action] += credited + rng.normal(size=count)
            seen.followed[tasks, state, action, following] += 1
            total += credited
            state = following
    return total


def random(seen: Seen, horizon: int, rng: np.random.Generator) -> np.ndarray:
    """A random policy: any action, drawn anew for each state and step of each episode."""
    return rng.random((horizon, *seen.rewards.shape))


def posterior_mean_greedy(reward_mean: float = REWARD_MEAN) -> Planner:
    """Plan in the mean of the posterior: rewards (mu + sum) / (1 + n), transitions (1 + n_s') / (S + n). It explores by chance."""

    def plan(seen: Seen, horizon: int, rng: np.random.Generator) -> np.ndarray:
        mean, _ = _reward_posterior(seen, reward_mean)
        weights = 1 + seen.followed
        return value_iteration(MDPs(mean, weights / weights.sum(-1, keepdims=True)), horizon)

    return plan


def psrl(reward_mean: float = REWARD_MEAN) -> Planner:
    """Posterior sampling (Osband et al., 2013): plan in one MDP drawn from the posterior before each episode.

    R ~ N((mu + sum) / (1 + n), 1 / (1 + n)),   P(. | s, a) ~ Dirichlet(1 + n_s').
    """

    def plan(seen: Seen, horizon: int, rng: np.random.Generator) -> np.ndarray:
        mean, deviation = _reward_posterior(seen, reward_mean)
        drawn = MDPs(mean + deviation * rng.normal(size=mean.shape), _dirichlet(1 + seen.followed, rng))
        return value_iteration(drawn, horizon)

    return plan


def optimistic_psrl(samples: int = 10, reward_mean: float = REWARD_MEAN) -> Planner:
    """Optimistic posterior sampling: the greatest of each Q-value among several draws, max_k Q_h^(k)(s, a)."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    draw = psrl(reward_mean)

    def plan(seen: Seen, horizon: int, rng: np.random.Generator) -> np.ndarray:
        q = draw(seen, horizon, rng)
        for _ in range(samples - 1):
            np.maximum(q, draw(seen, horizon, rng), out=q)
        return q

    return plan


def _reward_posterior(seen: Seen, reward_mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each mean reward: prior N(mu, 1), unit noise."""
    precision = 1 + seen.followed.sum(-1)
    return (reward_mean + seen.rewards) / precision, precision**-0.5


def _dirichlet(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = rng.standard_gamma(weights)
    return drawn / drawn.sum(-1, keepdims=True)
