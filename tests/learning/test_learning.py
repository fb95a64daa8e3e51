"""Every rule solves what it should: a bandit, Catch, and PPO CartPole. Thresholds are returns over the last tenth of training."""

import jax
import numpy as np
import pytest

import rulax
from rulax.envs.registry import make


def last_tenth(env, rule, steps, seeds=2, **settings):
    run = rulax.train(env, rule=rule, steps=steps, seeds=seeds, quiet=True, **settings)
    return np.array(run.final_returns, float), run


pytestmark = pytest.mark.learning


@pytest.mark.slow  # who solves the probes (contracts/test_rules.py) and Catch can do this
@pytest.mark.parametrize(
    ("rule", "steps"),
    [("policy_gradient", 60_000), ("actor_critic", 60_000), ("ppo", 100_000), ("ppo_targets", 60_000), ("q_learning", 24_000)],
)
def test_a_bandit_is_exploited(rule, steps):
    environment = make("bandit/bernoulli")
    means = np.asarray(environment.default_task().means)
    returns, _ = last_tenth("bandit/bernoulli", rule, steps, hidden=(16,), action_model=16)
    best, second = np.sort(means)[::-1][:2]
    floor = means.mean() + 0.8 * (best - means.mean())
    assert (returns > floor).all(), f"{rule}: {returns}, best arm {best:.2f}, mean arm {means.mean():.2f}, second {second:.2f}"


@pytest.mark.parametrize(
    ("rule", "steps", "goal"),
    [
        ("policy_gradient", 150_000, 0.9),
        ("actor_critic", 150_000, 0.9),
        ("ppo", 150_000, 0.9),
        ("dpo", 150_000, 0.9),
        ("ppo_targets", 120_000, 0.9),
        ("rulax5", 150_000, 0.9),
        ("dqn", 60_000, 0.8),  # a twentieth of its steps are random
        ("q_learning", 120_000, 0.7),  # a tenth of its steps are random: flawless values would earn 0.83
    ],
)
def test_catch_is_solved(rule, steps, goal):
    returns, _ = last_tenth("catch", rule, steps)
    assert (returns > goal).all(), f"{rule}: {returns}"


def test_ppo_balances_the_pole():
    returns, run = last_tenth("cartpole", "ppo", 500_000)
    assert returns.mean() >= 475, returns
    _, observation = make("cartpole").reset(make("cartpole").default_task(), jax.random.key(0))
    assert int(run.agent.act(observation)) in (0, 1)
