"""Bandits, chains, random MDPs and probes against what can be computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.envs import list_environments, make
from rulax.envs.bandit import BernoulliBandit, GaussianBandit
from rulax.envs.chain import DelayedChain
from rulax.envs.mdp import RandomMDP, optimal_values, optimal_values_to_go

KEY = jax.random.key(0)


@pytest.mark.parametrize("kind", [BernoulliBandit, GaussianBandit])
def test_arms_pay_their_means(kind):
    environment = kind(arms=3)
    task = environment.default_task()
    pull = jax.jit(jax.vmap(lambda action, key: environment.step(task, jnp.int32(0), action, key)[1].reward, in_axes=(None, 0)))
    for action in range(3):
        rewards = pull(action, jax.random.split(KEY, 4000))
        assert abs(float(rewards.mean() - task.means[action])) < 0.06


def test_bernoulli_arms_pay_zero_or_one():
    environment = BernoulliBandit(arms=2)
    _, transition = environment.step(environment.sample_task(KEY), jnp.int32(0), jnp.int32(0), KEY)
    assert float(transition.reward) in (0.0, 1.0)


@pytest.mark.parametrize("pulls", [1, 3])
def test_a_bandit_ends_at_its_last_pull(pulls):
    environment = GaussianBandit(pulls=pulls)
    task = environment.default_task()
    state, _ = environment.reset(task, KEY)
    ends = []
    for _ in range(pulls):
        state, transition = environment.step(task, state, jnp.int32(0), KEY)
        ends.append(bool(transition.terminated))
    assert ends == [False] * (pulls - 1) + [True]


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_action_decides_the_end_of_the_chain(first):
    environment = DelayedChain(shortest=2, longest=6)
    task = environment.default_task()
    state, observation = environment.reset(task, KEY)
    assert observation.tolist() == [1.0] + [0.0] * 7
    rewards = []
    for t in range(6):
        state, transition = environment.step(task, state, jnp.int32(first if t == 0 else 1 - first), KEY)
        rewards.append(float(transition.reward))
        assert bool(transition.terminated) is (t == 5)
        assert transition.observation[6 + first] == 1
    assert rewards == [0.0] * 5 + [1.0 if first == 1 else -1.0]


def test_a_noisy_chain_pays_random_rewards_on_the_way_only():
    environment = DelayedChain(longest=6, noise=1.0, distractors=4)
    task = environment.default_task()
    state, observation = environment.reset(task, KEY)
    assert observation.shape == (12,)
    rewards = []
    for t in range(6):
        state, transition = environment.step(task, state, jnp.int32(1), jax.random.fold_in(KEY, t))
        rewards.append(float(transition.reward))
    assert rewards[0] == 0.0
    assert set(rewards[1:5]) <= {-1.0, 1.0}
    assert rewards[5] == 1.0


def policy_iteration(task, discount):
    """Exact: solve the linear equations of a policy, improve it, repeat until it stays."""
    transition, reward = np.asarray(task.transition, np.float64), np.asarray(task.reward, np.float64)
    shrink = discount * (1 - float(task.termination))
    states = np.arange(reward.shape[0])
    policy = np.zeros(reward.shape[0], int)
    while True:
        matrix = np.eye(len(states)) - shrink * transition[states, policy]
        values = reward + shrink * transition @ np.linalg.solve(matrix, reward[states, policy])
        if (values.argmax(1) == policy).all():
            return values
        policy = values.argmax(1)


@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
def test_optimal_values_equal_policy_iteration(discount):
    environment = RandomMDP(states=6, actions=3)
    tasks = jax.vmap(environment.sample_task)(jax.random.split(KEY, 4))
    found = jax.jit(jax.vmap(lambda task: optimal_values(task, discount)))(tasks)
    for i in range(4):
        expected = policy_iteration(jax.tree.map(lambda x, i=i: x[i], tasks), discount)
        np.testing.assert_allclose(found[i], expected, rtol=1e-4, atol=1e-3)


def test_optimal_values_to_go_equal_backward_induction():
    task = RandomMDP(states=4, actions=2).sample_task(KEY)
    found = optimal_values_to_go(task, 0.9, 3)
    transition, reward = np.asarray(task.transition), np.asarray(task.reward)
    values = np.zeros(4)
    for t in (2, 1, 0):
        expected = reward + 0.9 * (1 - float(task.termination)) * np.einsum("sap,p->sa", transition, values)
        np.testing.assert_allclose(found[t], expected, rtol=1e-5)
        values = expected.max(1)


def test_the_mdp_follows_its_tables():
    environment = RandomMDP(states=3, actions=2, noise=0.0, termination=0.0, horizon=2)
    task = environment.sample_task(KEY)
    state, observation = environment.reset(task, KEY)
    assert observation.tolist() == [1.0, 0.0, 0.0]
    step = jax.jit(jax.vmap(lambda key: environment.step(task, state, jnp.int32(1), key)))
    after, transition = step(jax.random.split(KEY, 5000))
    np.testing.assert_allclose(transition.reward, task.reward[0, 1])
    np.testing.assert_allclose(transition.observation.mean(0), task.transition[0, 1], atol=0.03)
    assert not transition.terminated.any()
    last = jax.tree.map(lambda x: x[0], after)
    assert bool(environment.step(task, last, jnp.int32(0), KEY)[1].terminated)


PROBES = [entry.name for entry in list_environments() if entry.family == "probe"]


def returns_from(environment, observation, action, discount):
    """Discounted return of an episode that begins with this observation and always takes this action."""
    task, state, weight, total = environment.default_task(), jnp.float32(observation[0]), 1.0, 0.0
    for _ in range(2):
        state, transition = environment.step(task, state, jnp.int32(action), KEY)
        total, weight = total + weight * float(transition.reward), weight * discount
        if transition.terminated:
            return total
    raise AssertionError("a probe lasts two steps at most")


@pytest.mark.parametrize("name", PROBES)
def test_probes_are_worth_what_they_say(name):
    environment, discount = make(name), 0.9
    for observation, value, action in environment.expectations(discount):
        by_action = [returns_from(environment, observation, each, discount) for each in range(environment.num_actions)]
        assert max(by_action) == pytest.approx(value)
        if action is None:
            assert environment.num_actions == 1
        else:
            assert int(np.argmax(by_action)) == action
            assert min(by_action) < value


@pytest.mark.parametrize("name", PROBES)
def test_probes_expect_something_at_every_first_observation(name):
    environment = make(name)
    expected = {float(each.observation[0]) for each in environment.expectations(0.9)}
    seen = {float(environment.reset(environment.default_task(), jax.random.key(seed))[1][0]) for seed in range(20)}
    assert seen <= expected
    assert seen == expected or name == "probe/discount"
