"""What the meta-network may and may not see; shapes and numbers are checked against the reference in tests/parity."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.agents.layers import LSTM
from rulax.metanet.estimates import nothing_follows, outcome_known
from rulax.metanet.network import MetaNetwork, as_in_reference, unroll_backwards
from rulax.metanet.sizes import Sizes
from rulax.types import Level, starts
from tests.metanet.environments import SMALL, A, B, T, cut, random_batch, targets_of


def test_disco103_has_this_many_numbers():
    skeleton = jax.eval_shape(lambda: MetaNetwork(jax.random.key(0), Sizes()))
    assert sum(leaf.size for leaf in jax.tree.leaves(skeleton)) == 754_778
    assert (Sizes().inputs, Sizes().channels) == (27, 9)


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"bins": 1}, {"action_channels": ()}, {"prediction_size": "many"}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sizes(**wrong)


def test_sizes_from_a_file_of_settings():
    assert Sizes(action_channels=[6, 2]).action_channels == (6, 2)


@pytest.mark.parametrize("actions", [2, 5])
def test_one_network_serves_any_number_of_actions_in_any_order(actions):
    batch = random_batch(actions=actions)
    targets, state, _ = targets_of(batch)
    assert targets["policy"].shape == (T, B, actions)
    order = jnp.roll(jnp.arange(actions), 1)

    def shuffled(predictions):
        per_state = {"policy": predictions["policy"][..., order]}
        per_action = {name: predictions[name][..., order, :] for name in ("action_prediction", "value", "next_policy")}
        return {"state_prediction": predictions["state_prediction"]} | per_state | per_action

    where = jnp.argsort(order)
    experience = batch.experience
    experience = experience._replace(action=where[experience.action], behaviour=experience.behaviour[..., order])
    others, other_state, _ = targets_of(
        batch._replace(experience=experience, online=shuffled(batch.online), slow=shuffled(batch.slow))
    )
    np.testing.assert_allclose(others["policy"], targets["policy"][..., order], rtol=1e-4, atol=1e-5)
    for name in ("state_prediction", "action_prediction", "value"):
        np.testing.assert_allclose(others[name], targets[name], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other_state.lifetime.hidden, state.lifetime.hidden, rtol=1e-4, atol=1e-5)


def differs(a, b):
    """Where targets differ, [T, B]."""
    names = ("policy", "state_prediction", "action_prediction")
    return np.any([np.abs(a[name] - b[name]).max(-1) > 1e-6 for name in names], axis=0)


def test_targets_depend_on_later_steps_of_the_same_episode_only():
    batch = random_batch()
    changed = batch._replace(experience=batch.experience._replace(reward=batch.experience.reward.at[4].add(3.0)))
    sizes = dataclasses.replace(SMALL, value=False)  # values are normalised over the batch, which connects all steps
    a, b = (targets_of(drop(each, "value"), sizes)[0] for each in (batch, changed))
    assert differs(a, b).tolist() == [[t in (3, 4) if stream == 0 else t <= 4 for stream in range(B)] for t in range(T)]


def drop(batch, *names):
    keep = lambda predictions: {name: value for name, value in predictions.items() if name not in names}  # noqa: E731
    return batch._replace(online=keep(batch.online), slow=keep(batch.slow))


def test_nothing_of_a_dummy_step_reaches_any_other():
    batch = cut(random_batch(), 3, 1)
    experience = batch.experience
    assert not outcome_known(experience)[3, 1]
    assert outcome_known(experience).sum() == T * B - 1
    assert nothing_follows(experience)[2:4, 1].all()
    reward, action = experience.reward.at[3, 1].set(100.0), experience.action.at[3, 1].set((experience.action[3, 1] + 1) % A)
    other = batch._replace(experience=experience._replace(reward=reward, action=action))
    a, b = targets_of(batch), targets_of(other)
    assert differs(a[0], b[0]).sum() == 1
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), (a[1], a[2]), (b[1], b[2]))


def test_an_episode_that_starts_inside_of_a_trial_cuts_nothing_off():
    """There the step before it is valid and has discount 1: the trial goes on, and so do its returns."""
    batch = random_batch()
    inside = batch.experience._replace(first=batch.experience.first.at[4, 1].set(Level.EPISODE))
    assert outcome_known(inside).all()
    np.testing.assert_array_equal(nothing_follows(inside), nothing_follows(batch.experience))
    jax.tree.map(np.testing.assert_array_equal, targets_of(batch), targets_of(batch._replace(experience=inside)))


def test_a_step_that_starts_an_episode_happened_even_if_nothing_may_be_learned_from_it():
    """The reference masks the first step of an episode out of the loss, and counts it everywhere else."""
    batch = random_batch()
    masked = batch._replace(experience=batch.experience._replace(valid=~starts(batch.experience.first[:-1])))
    assert not masked.experience.valid.all()
    a, b = targets_of(batch)[:2], targets_of(masked)[:2]
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_the_backward_lstm_is_a_plain_lstm_run_backwards():
    lstm = LSTM(jax.random.key(0), 3, 4)
    inputs, ends = jax.random.normal(jax.random.key(1), (5, 2, 3)), jnp.zeros((5, 2), bool).at[2, 0].set(True)
    outputs = unroll_backwards(lstm, inputs, ends)
    state = lstm.initial((2,))
    for t in reversed(range(5)):
        state = jax.tree.map(lambda x, t=t: jnp.where(ends[t][:, None], 0, x), state)
        state = lstm.step(state, lstm.project(inputs[t]))
        np.testing.assert_allclose(outputs[t], state.hidden, rtol=1e-5, atol=1e-6)


def test_the_gate_is_set_by_the_memory_before_the_update():
    batch, network = random_batch(), MetaNetwork(jax.random.key(0), SMALL)
    from rulax.rules.disco import disco

    rule = disco(SMALL)
    # A fresh gate is open; with its bias at zero the memory alone opens it.
    network = eqx.tree_at(lambda network: network.gate.bias, network, jnp.zeros_like(network.gate.bias))
    first = rule.start(jax.random.key(0))
    targets, second, _ = rule.targets(network, first, batch)
    # A fresh memory is zero: nothing of the trajectory gets through at the very first update.
    np.testing.assert_array_equal(targets["state_prediction"], 0)
    assert jnp.abs(second.lifetime.hidden).max() > 0
    again, _, _ = rule.targets(network, second._replace(scales=first.scales), batch)
    assert jnp.abs(again["state_prediction"]).max() > 0


def test_the_meta_gradient_crosses_through_predictions_only():
    batch, rule_state = random_batch(), None
    from rulax.rules.disco import disco

    rule = disco(SMALL)
    network = rule.init(jax.random.key(0))
    _, rule_state, _ = rule.targets(network, rule.start(jax.random.key(0)), batch)

    def total(online, slow):
        targets, _, _ = rule.targets(network, rule_state, batch._replace(online=online, slow=slow))
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(targets))

    for slopes in jax.grad(total, argnums=(0, 1))(batch.online, batch.slow):
        reached = {name for name, slope in slopes.items() if jnp.abs(slope).max() > 0}
        assert reached == {"state_prediction", "action_prediction"}


def test_a_rule_can_start_as_the_references_do():
    """Its gate is shut for a memory of zeros; its policy head has a deviation of 0.3 (cut at two of them); the layer before has one
    deviation for all weights."""
    sizes = dataclasses.replace(Sizes(), policy_channels=(500,), hidden=8, lifetime_hidden=4)
    ours = MetaNetwork(jax.random.key(0), sizes)
    theirs = as_in_reference(ours)
    assert not np.any(theirs.gate(jnp.zeros(4)))
    assert np.all(np.asarray(ours.gate(jnp.zeros(4))) == 1)
    np.testing.assert_allclose([jnp.std(net.policy.weight) for net in (ours, theirs)], [3 * 0.88, 0.3 * 0.88], rtol=0.1)
    parts = (theirs.policy_set.layers[0].weight_own[:8], theirs.policy_set.layers[0].weight_own[8:])
    np.testing.assert_allclose([jnp.std(part) for part in parts], 0.88 * (2 * 10) ** -0.5, rtol=0.1)
    same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), ours, theirs)
    assert sum(not equal for equal in jax.tree.leaves(same)) == 3
