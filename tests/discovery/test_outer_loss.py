"""Every term of the outer loss against numbers worked out by hand, and which of them moves what."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from rulax.discovery import outer_loss as terms
from rulax.discovery.outer_loss import make_penalise, outer_loss, penalties
from rulax.discovery.settings import Discovery
from rulax.rules.base import UpdateRule
from rulax.types import Batch, Experience

LOG2, LOG3 = np.log(2), np.log(3)
# Two steps of one stream, the second not valid; two actions. Probabilities: (1/4, 3/4) and anything.
EXPERIENCE = Experience(
    observation=(),
    action=jnp.array([[1], [0]]),
    reward=jnp.zeros((2, 1)),
    discount=jnp.ones((2, 1)),
    first=jnp.zeros((3, 1), jnp.int8),
    valid=jnp.array([[True], [False]]),
    behaviour=jnp.zeros((2, 1, 2)),
    memory=(),
)
POLICY = jnp.array([[[0.0, LOG3]], [[9.0, -9.0]], [[5.0, 5.0]]])
QUARTER_ENTROPY = 0.25 * np.log(4) + 0.75 * np.log(4 / 3)


class Fixed:
    """An agent that predicts what it is told."""

    def __init__(self, predictions):
        self.predictions = predictions

    def embed(self, experience):
        return None

    def predict_taken(self, seen, action):
        assert action.shape == (3, 1)  # all observations, the last one included
        return self.predictions


def test_policy_gradient_and_entropy():
    taken, advantage = {"policy": POLICY[:-1]}, jnp.array([[2.0], [7.0]])
    np.testing.assert_allclose(terms.policy_gradient_loss(taken, EXPERIENCE, advantage), -2 * np.log(0.75), rtol=1e-6)
    np.testing.assert_allclose(terms.policy_entropy(taken, EXPERIENCE), QUARTER_ENTROPY, rtol=1e-6)
    # d/d logits of -A log pi(a) is A (pi - one-hot); nothing from the step that is not valid, nothing to the advantage.
    slopes = jax.grad(lambda policy: terms.policy_gradient_loss({"policy": policy}, EXPERIENCE, advantage))(POLICY[:-1])
    np.testing.assert_allclose(slopes[:, 0], [[2 * 0.25, 2 * (0.75 - 1)], [0, 0]], atol=1e-6)
    assert not np.any(jax.grad(lambda a: terms.policy_gradient_loss(taken, EXPERIENCE, a))(advantage))


def test_prediction_entropy_reads_y_everywhere_and_z_where_an_action_was_valid():
    flat, sure = jnp.zeros(4), jnp.array([50.0, 0.0, 0.0, 0.0])
    seen = {"policy": POLICY, "state_prediction": jnp.stack([flat, sure, flat])[:, None]}
    seen["action_prediction"] = jnp.stack([flat, sure, sure])[:, None]
    found = terms.prediction_entropy(seen, EXPERIENCE)
    np.testing.assert_allclose(found["state_prediction"], 2 / 3 * np.log(4), rtol=1e-6)
    np.testing.assert_allclose(found["action_prediction"], np.log(4), rtol=1e-6)
    assert terms.prediction_entropy({"policy": POLICY}, EXPERIENCE) == {}


def make_batch():
    slow = {"policy": jnp.zeros((3, 1, 2))}
    return Batch(EXPERIENCE, {"policy": POLICY}, slow)


def test_penalties_on_targets():
    targets = {"policy": POLICY[:-1], "state_prediction": jnp.array([[[1.0, 3.0]], [[2.0, 6.0]]]), "value": jnp.zeros((2, 1))}
    found = penalties(targets, make_batch())
    assert found.keys() == {"policy_mean", "state_prediction_mean", "target_kl"}
    np.testing.assert_allclose(found["state_prediction_mean"], 3.0**2, rtol=1e-6)
    np.testing.assert_allclose(found["policy_mean"], (LOG3 / 4) ** 2, rtol=1e-5)
    # KL((1/2, 1/2) || (1/4, 3/4)), the slow policy first
    np.testing.assert_allclose(found["target_kl"], 0.5 * LOG2 + 0.5 * np.log(2 / 3), rtol=1e-5)
    assert penalties({"returns": jnp.zeros(2)}, make_batch()) == {}

    def kl_of(slow):
        return penalties(targets, make_batch()._replace(slow={"policy": slow}))["target_kl"]

    assert not np.any(jax.grad(kl_of)(jnp.zeros((3, 1, 2))))  # the target comes to the slow policy, not the other way


def test_the_distance_from_the_first_rule():
    """What the first rule says of a batch, (1/2, 1/2) here, is data; the memory that it reads is that of the rule of today."""
    apart = jnp.array([[[1.0, 3.0]], [[2.0, 6.0]]])

    def first_targets(weights, memory, batch):
        assert batch.experience is EXPERIENCE
        level = jnp.full((2, 1, 2), weights * memory)
        return {"policy": level, "state_prediction": level, "value": level}, memory, {}

    first = UpdateRule(heads=None, init=lambda key: 5.0, start=None, targets=first_targets, loss=None)
    penalise = make_penalise(Discovery(keep_cost=0.5), first)
    targets = {"policy": POLICY[:-1], "state_prediction": apart, "value": jnp.zeros((2, 1))}
    found = penalise(targets, make_batch(), 7.0)
    assert found.keys() == {"policy_mean", "state_prediction_mean", "target_kl", "keep_kl"}
    of_policy = 0.5 * LOG2 + 0.5 * np.log(2 / 3)  # KL((1/2, 1/2) || (1/4, 3/4)) in the only valid step
    of_y = -LOG2 - 0.5 * (1 + 3 - 2 * np.log(np.exp(1) + np.exp(3)))
    np.testing.assert_allclose(found["keep_kl"], of_policy + of_y, rtol=1e-5)
    assert make_penalise(Discovery(), first) is penalties


def test_the_loss_is_the_weighted_sum():
    flat = jnp.zeros((3, 1, 4))
    agent = Fixed({"policy": POLICY, "state_prediction": flat, "action_prediction": flat})
    measured = {"policy_mean": jnp.float32(3), "state_prediction_mean": jnp.float32(4), "target_kl": jnp.float32(5)}
    measured["keep_kl"] = jnp.float32(6)
    costs = {"policy_entropy_cost": 0.1, "prediction_entropy_cost": 0.2, "target_kl_cost": 0.3, "target_mean_cost": 0.4}
    settings = Discovery(**costs, keep_cost=0.5)
    advantage = jnp.array([[2.0], [7.0]])
    loss, metrics = outer_loss(settings, agent, EXPERIENCE, advantage, measured)
    regulariser = -0.1 * QUARTER_ENTROPY - 0.2 * 2 * np.log(4) + 0.4 * (3 + 4) + 0.3 * 5 + 0.5 * 6
    np.testing.assert_allclose(metrics["regulariser"], regulariser, rtol=1e-5)
    np.testing.assert_allclose(loss, -2 * np.log(0.75) + regulariser, rtol=1e-5)
    names = [field.name for field in dataclasses.fields(settings) if field.name.endswith("_cost")]
    assert len(names) == 5
    free = dataclasses.replace(settings, **dict.fromkeys(names, 0.0))
    np.testing.assert_allclose(outer_loss(free, agent, EXPERIENCE, advantage, measured)[0], -2 * np.log(0.75), rtol=1e-5)
