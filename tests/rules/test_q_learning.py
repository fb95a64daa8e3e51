import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.q_learning import q_learning
from rulax.values.two_hot import Bins, expected_value, two_hot_value
from tests.rules.data import A, gradients, make_targets, random_batch, taken_predictions

BINS = Bins(31, 10.0)


def values_of(batch):
    return expected_value(batch.online["value"], BINS), expected_value(batch.slow["value"], BINS)


def different_slow(rule, seed=0):
    """A batch whose slow copy disagrees with the agent about which action is best."""
    batch = random_batch(rule, seed)
    return batch._replace(slow=random_batch(rule, seed + 1).online)


def test_one_step_targets_choose_online_and_evaluate_slowly():
    rule = q_learning(discount=0.9, trace=0.0, bins=BINS)
    batch = different_slow(rule)
    online, slow = values_of(batch)
    best = jnp.argmax(online, -1)
    assert (best != jnp.argmax(slow, -1)).any()
    bootstrap = jnp.take_along_axis(slow, best[..., None], -1)[1:, :, 0]
    expected = batch.experience.reward + 0.9 * batch.experience.discount * bootstrap
    targets, _, _ = make_targets(rule, batch)
    np.testing.assert_allclose(targets["value"], expected, rtol=1e-4, atol=1e-5)


def test_traces_are_cut_where_the_action_was_not_greedy():
    rule, uncut = q_learning(trace=1.0, cut_traces=True, bins=BINS), q_learning(trace=1.0, cut_traces=False, bins=BINS)
    one_step = q_learning(trace=0.0, bins=BINS)
    batch = different_slow(rule)
    best = jnp.argmax(values_of(batch)[0], -1)[:-1]
    never = batch._replace(experience=batch.experience._replace(action=(best + 1) % A))
    always = batch._replace(experience=batch.experience._replace(action=best))
    target = {name: make_targets(r, b)[0]["value"] for name, r, b in [
        ("never", rule, never), ("one step", one_step, never), ("always", rule, always), ("Peng", uncut, never)
    ]}  # fmt: skip
    np.testing.assert_allclose(target["never"], target["one step"], rtol=1e-5)
    np.testing.assert_allclose(target["always"], target["Peng"], rtol=1e-5)
    assert jnp.abs(target["always"] - target["never"]).max() > 0.1


@pytest.mark.parametrize(("epsilon", "temperature"), [(0.3, None), (0.0, None), (0.0, 0.5), (0.3, 0.5)])
def test_the_policy_follows_the_values(epsilon, temperature):
    rule = q_learning(epsilon=epsilon, temperature=temperature, bins=BINS)
    batch = random_batch(rule)
    online = values_of(batch)[0][:-1]
    targets, _, _ = make_targets(rule, batch)
    follow = jax.nn.one_hot(online.argmax(-1), A) if temperature is None else jax.nn.softmax(online / temperature)
    policy = jax.nn.softmax(targets["policy"])
    np.testing.assert_allclose(policy, (1 - epsilon) * follow + epsilon / A, atol=1e-5)
    perfect = taken_predictions(rule, batch) | {"policy": targets["policy"]}
    loss, metrics = rule.loss({}, perfect, targets, batch.experience)
    np.testing.assert_allclose(metrics["policy_loss"], 0, atol=1e-6)
    assert jnp.isfinite(loss).all()


def test_the_gradient_of_a_value_is_prediction_minus_two_hot():
    rule = q_learning(bins=BINS, value_cost=0.5)
    batch = random_batch(rule)
    targets, _, _ = make_targets(rule, batch)
    predicted = jax.nn.softmax(taken_predictions(rule, batch)["value"])
    expected = 0.5 * (predicted - two_hot_value(targets["value"], BINS)) / batch.experience.valid.size
    np.testing.assert_allclose(gradients(rule, batch, targets)["value"], expected, atol=1e-6)
