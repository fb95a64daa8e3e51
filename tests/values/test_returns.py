import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings

from rulax.values import returns
from rulax.values.policies import at_action
from tests.shared import golden

T, A = 7, 3


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    discounts = 0.9 * (rng.random(T) > 0.2)
    return {
        "rewards": jnp.asarray(rng.normal(size=T), jnp.float32),
        "discounts": jnp.asarray(discounts, jnp.float32),
        "values": jnp.asarray(rng.normal(size=T + 1), jnp.float32),
        "q": jnp.asarray(rng.normal(size=(T + 1, A)), jnp.float32),
        "policy": jax.nn.softmax(jnp.asarray(rng.normal(size=(T + 1, A)), jnp.float32)),
        "behaviour": jax.nn.softmax(jnp.asarray(rng.normal(size=(T + 1, A)), jnp.float32)),
        "actions": jnp.asarray(rng.integers(0, A, T + 1), jnp.int32),
        "ratios": jnp.asarray(rng.exponential(size=T), jnp.float32),
    }


def close(ours, theirs, tolerance=1e-5):
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("trace", [0.0, 0.7, 1.0, "per step"])
def test_lambda_returns_and_advantages_equal_rlax(data, trace):
    trace = jnp.linspace(0.1, 1.0, T) if trace == "per step" else trace
    rewards, discounts, values = data["rewards"], data["discounts"], data["values"]
    ours = returns.lambda_returns(rewards, discounts, values, trace=trace)
    close(ours, rlax.lambda_returns(rewards, discounts, values[1:], trace))
    ours = returns.generalised_advantages(rewards, discounts, values, trace=trace)
    close(ours, rlax.truncated_generalized_advantage_estimation(rewards, discounts, trace, values))


@pytest.mark.parametrize(("trace", "clip_error", "clip_advantage"), [(1.0, 1.0, 1.0), (0.8, 1.0, 1.0), (0.8, 2.0, 1.5)])
def test_vtrace_equals_rlax(data, trace, clip_error, clip_advantage):
    rewards, discounts, values, ratios = (data[name] for name in ("rewards", "discounts", "values", "ratios"))
    ours = returns.vtrace(rewards, discounts, values, ratios, trace=trace, clips=returns.Clips(clip_error, 1.0, clip_advantage))
    theirs = rlax.vtrace_td_error_and_advantage(
        values[:-1], values[1:], rewards, discounts, ratios, trace, clip_error, clip_advantage
    )
    close(ours.targets, theirs.errors + values[:-1])
    close(ours.advantages, theirs.pg_advantage)


@pytest.mark.parametrize("trace", [0.0, 0.7, 1.0])
def test_retrace_equals_rlax(data, trace):
    q, policy, behaviour, actions = (data[name] for name in ("q", "policy", "behaviour", "actions"))
    values, taken = jnp.sum(policy * q, -1), at_action(q, actions)
    mu = at_action(behaviour, actions)
    ratios = at_action(policy, actions) / mu
    ours = returns.retrace(data["rewards"], data["discounts"], values, taken[:-1], ratios[:-1], trace=trace)
    errors = rlax.retrace(q[:-1], q[1:], actions[:-1], actions[1:], data["rewards"], data["discounts"], policy[1:], mu[1:], trace)
    close(ours, taken[:-1] + errors)
    corrections = trace * jnp.minimum(1, ratios[1:-1])
    direct = rlax.general_off_policy_returns_from_q_and_v(taken[1:-1], values[1:], data["rewards"], data["discounts"], corrections)
    close(ours, direct)


def test_q_lambda_equals_rlax_in_both_forms(data):
    q, actions, best = data["q"], data["actions"], data["q"].max(-1)
    greedy = actions == q.argmax(-1)
    for trace, given_greedy, their_trace in (
        (0.8, None, 0.8),
        (0.8, greedy[:-1], jnp.append(0.8 * greedy[1:-1], 0.0)),
    ):
        ours = returns.q_lambda(data["rewards"], data["discounts"], best, greedy=given_greedy, trace=trace)
        errors = rlax.q_lambda(q[:-1], actions[:-1], data["rewards"], data["discounts"], q[1:], their_trace)
        close(ours, at_action(q[:-1], actions[:-1]) + errors)


def test_a_cut_off_step_is_where_returns_bootstrap():
    """Five steps of reward 1; step 2 is the dummy after a time limit. By hand, discount 1/2, lambda 1."""
    rewards = jnp.array([1.0, 1.0, 77.0, 1.0, 1.0])
    values = jnp.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    valid = jnp.array([True, True, False, True, True])
    discounts = jnp.full(5, 0.5)
    targets = returns.lambda_returns(rewards, discounts, values, valid)
    close(targets, [1 + 0.5 * (1 + 0.5 * 30), 1 + 0.5 * 30, 30.0, 1 + 0.5 * (1 + 0.5 * 60), 1 + 0.5 * 60])
    advantages = returns.generalised_advantages(rewards, discounts, values, valid)
    close(advantages, targets - values[:-1])
    on_policy = returns.vtrace(rewards, discounts, values, jnp.ones(5), valid)
    close(on_policy.targets, targets)
    close(on_policy.advantages, advantages)
    close(returns.q_lambda(rewards, discounts, values, valid), targets)
    taken = values[:-1] + 1.0
    by_retrace = returns.retrace(rewards, discounts, values, taken, jnp.ones(5), valid)
    # The action value of step 2 is its own target, so step 1 sees the state's value only.
    close(by_retrace[1:3], [1 + 0.5 * 30, 31.0])
    close(by_retrace[0], 1 + 0.5 * (20 + by_retrace[1] - taken[1]))


def test_a_terminated_step_does_not_bootstrap():
    rewards, values = jnp.array([1.0, 2.0, 4.0]), jnp.array([9.0, 9.0, 100.0, 9.0])
    discounts = jnp.array([0.5, 0.0, 0.5])
    close(returns.lambda_returns(rewards, discounts, values), [2.0, 2.0, 4 + 4.5])
    close(returns.vtrace(rewards, discounts, values, jnp.ones(3)).targets, [2.0, 2.0, 8.5])
    close(returns.retrace(rewards, discounts, values, jnp.zeros(3), jnp.ones(3)), [1 + 0.5 * 11, 2.0, 8.5])


@pytest.mark.parametrize("name", ["lambda_returns", "vtrace", "retrace", "q_lambda"])
def test_what_an_invalid_step_holds_does_not_matter(data, name):
    valid = jnp.arange(T) != 3
    extra = {"vtrace": ["ratios"], "retrace": ["taken", "ratios"]}.get(name, [])
    arrays = [data["rewards"], data["discounts"], data["values"]]
    arrays += [data["ratios"] if part == "ratios" else data["values"][:-1] + 1 for part in extra]
    spoilt = list(arrays)
    spoilt[0] = arrays[0].at[3].set(jnp.nan)
    spoilt[1] = arrays[1].at[3].set(1.0)
    function = getattr(returns, name)
    clean, dirty = function(*arrays, valid, trace=0.9), function(*spoilt, valid, trace=0.9)
    jax.tree.map(close, dirty, clean)
    # What comes after it is as invisible as the step itself.
    later_change = [arrays[0].at[5].add(10.0), *arrays[1:]]
    changed = function(*later_change, valid, trace=0.9)
    jax.tree.map(lambda a, b: close(a[:4], b[:4]), changed, clean)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31 - 1))
def test_with_trace_one_the_return_is_the_discounted_sum(seed):
    rng = np.random.default_rng(seed)
    rewards, discounts, values = rng.normal(size=T), rng.random(T) * (rng.random(T) > 0.2), rng.normal(size=T + 1)
    weights = np.concatenate([[1.0], np.cumprod(discounts)])
    expected = np.sum(weights[:-1] * rewards) + weights[-1] * values[-1]
    arrays = [jnp.asarray(x, jnp.float32) for x in (rewards, discounts, values)]
    close(returns.lambda_returns(*arrays)[0], expected, 1e-4)
    close(returns.vtrace(*arrays, jnp.ones(T)).targets[0], expected, 1e-4)


def test_streams_are_mapped_and_keywords_shared(data):
    double = [jnp.stack([data[name], 2 * data[name]], 1) for name in ("rewards", "discounts", "values", "ratios")]
    both = returns.over_streams(returns.vtrace, *double, None, trace=0.9)
    assert both.targets.shape == both.advantages.shape == (T, 2)
    for stream in range(2):
        alone = returns.vtrace(*(array[:, stream] for array in double), trace=0.9)
        close(both.targets[:, stream], alone.targets)
        close(both.advantages[:, stream], alone.advantages)


def test_float64_stays_float64(data):
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(np.asarray(value, np.float64)) for name, value in data.items() if name != "actions"}
        estimate = returns.vtrace(wide["rewards"], wide["discounts"], wide["values"], wide["ratios"], trace=0.9)
        greedy = jnp.ones(T, bool)
        peng = returns.q_lambda(wide["rewards"], wide["discounts"], wide["values"], None, greedy, trace=0.9)
        assert estimate.targets.dtype == estimate.advantages.dtype == peng.dtype == jnp.float64


GOLDEN_CASES = [("a", 0.997, 0.95), ("b", 0.9, 0.8), ("c", 0.99, 1.0)]


def golden_inputs():
    """The reference stores a reward with the observation after it: rewards[1:], and the end where discounts[1:] is 0."""
    data = golden("2_value_utils.npz")
    steps = {"rewards": data["in/rewards"][1:], "alive": (data["in/discounts"][1:] != 0).astype(np.float32)}
    action = jnp.asarray(data["in/actions"])
    policy, behaviour = jax.nn.softmax(data["in/pi_logits"]), jax.nn.softmax(data["in/mu_logits"])
    steps["ratios"] = (at_action(policy, action) / at_action(behaviour, action))[:-1]
    return data, steps


def test_importance_ratios_equal_the_reference():
    data, steps = golden_inputs()
    np.testing.assert_allclose(steps["ratios"], data["out/rho"], rtol=1e-5)


@pytest.mark.parametrize(("case", "discount", "trace"), GOLDEN_CASES)
def test_vtrace_equals_the_reference(case, discount, trace):
    """Everything is computed from the slow values; only the error is measured from the online ones."""
    data, steps = golden_inputs()
    ours = returns.over_streams(
        returns.vtrace, steps["rewards"], discount * steps["alive"], data["in/target_values"], steps["ratios"], trace=trace
    )
    recorded = f"out/estimate_values_{case}/"
    same(ours.targets, data[recorded + "value_target"])
    same(ours.advantages, data[recorded + "adv"])
    same(ours.targets - data["in/values"][:-1], data[recorded + "td"])


@pytest.mark.parametrize(("case", "discount", "trace"), GOLDEN_CASES)
def test_retrace_equals_the_reference(case, discount, trace):
    """Slow values throughout; its state-value target moves the slow value towards q_target by the clipped ratio."""
    data, steps = golden_inputs()
    action = jnp.asarray(data["in/actions"])[:-1]
    slow, online = data["in/target_values"], data["in/values"]
    slow_q, online_q = data["in/target_q_values"], data["in/q_values"]
    taken = at_action(jnp.asarray(slow_q[:-1]), action)
    arrays = (steps["rewards"], discount * steps["alive"], slow, taken, steps["ratios"])
    q_target = returns.over_streams(returns.retrace, *arrays, trace=trace)
    advantages = q_target - slow[:-1]
    value_target = slow[:-1] + jnp.minimum(1, steps["ratios"]) * advantages
    recorded = f"out/estimate_q_values_{case}/"
    same(q_target, data[recorded + "q_target"])
    same(q_target - at_action(jnp.asarray(online_q[:-1]), action), data[recorded + "q_td"])
    same(advantages, data[recorded + "adv"])
    same(slow_q - slow[..., None], data[recorded + "qv_adv"])
    same(value_target, data[recorded + "value_target"])
    same(value_target - online[:-1], data[recorded + "td"])


def same(ours, recorded):
    np.testing.assert_allclose(ours, recorded, atol=1e-5 * np.abs(recorded).max(), rtol=0)
