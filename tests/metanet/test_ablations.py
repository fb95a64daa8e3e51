"""Each switch of the paper's ablations, off; every other test has them on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.disco import disco, heads
from tests.metanet.environments import SMALL, A, B, T, random_batch, targets_of
from tests.metanet.test_network import differs

ALL_HEADS = {"policy", "state_prediction", "action_prediction", "next_policy", "value"}
LOST_HEADS = {
    "predictions": {"state_prediction", "action_prediction"},
    "bootstrap": set(),
    "lifetime": set(),
    "value": {"value"},
    "next_policy": {"next_policy"},
}


def taken(batch):
    action = batch.experience.action[..., None, None]
    take = lambda x: jnp.take_along_axis(x[:-1], action, -2)[..., 0, :]  # noqa: E731
    return {name: x[:-1] if x.ndim == 3 else take(x) for name, x in batch.online.items()}


@pytest.mark.parametrize("switch", LOST_HEADS)
@pytest.mark.parametrize("on", [True, False])
def test_a_rule_works_with_and_without(switch, on):
    sizes = dataclasses.replace(SMALL, **{switch: on})
    expected = ALL_HEADS if on else ALL_HEADS - LOST_HEADS[switch]
    assert set(heads(A, sizes)) == expected
    batch = random_batch(sizes)
    targets, state, metrics = targets_of(batch, sizes)
    assert set(targets) == expected
    loss, loss_metrics = disco(sizes).loss({}, taken(batch), targets, batch.experience)
    assert loss.shape == (T, B)
    spreads = {f"{name}_entropy" for name in expected - {"policy", "value"}}  # whose logits are those of distributions
    assert set(loss_metrics) == {f"{name}_loss" for name in expected} | {"entropy"} | spreads
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((loss, targets, state, metrics, loss_metrics)))


def test_without_everything():
    sizes = dataclasses.replace(SMALL, predictions=False, bootstrap=False, lifetime=False, value=False, next_policy=False)
    targets, state, _ = targets_of(random_batch(sizes), sizes)
    assert set(targets) == {"policy"}
    assert not jax.tree.leaves(state)


def test_without_lifetime_nothing_is_remembered_but_scales():
    sizes = dataclasses.replace(SMALL, lifetime=False)
    rule = disco(sizes)
    assert rule.start(jax.random.key(0)).lifetime == ()
    network = rule.init(jax.random.key(0))
    assert (network.lifetime, network.gate, network.summary) == (None, None, None)


@pytest.mark.parametrize("name", ["state_prediction", "action_prediction"])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_without_bootstrapping_no_later_prediction_is_seen(name, bootstrap):
    """A prediction at step 4 changes the targets of step 4; of earlier ones only by bootstrapping."""
    sizes = dataclasses.replace(SMALL, bootstrap=bootstrap, lifetime=False)
    batch = random_batch(sizes)
    other = {who: dict(getattr(batch, who)) for who in ("online", "slow")}
    for predictions in other.values():
        # Not a constant: a softmax would not notice.
        predictions[name] = predictions[name].at[4].set(3 * jnp.flip(predictions[name][4], -1))
    a, b = (targets_of(each, sizes)[0] for each in (batch, batch._replace(**other)))
    changed = differs(a, b)
    assert changed[4].all()
    assert not changed[5].any()
    assert changed[:4].any() == bootstrap
    np.testing.assert_array_equal(a["value"], b["value"])
