"""An ablated rule against the whole one, whose parts are silenced by hand instead of taken away."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.metanet.network import MetaNetwork
from rulax.metanet.sizes import ABLATIONS
from rulax.records.folder import short_name
from rulax.rules.disco import disco
from rulax.rules.pretrained import RuleFile, save_rule, without
from rulax.rules.registry import make_rule, recommended_steps, split_ablations
from tests.metanet.environments import SMALL, random_batch

POLICY = "policy"


@functools.cache
def whole() -> RuleFile:
    """Random weights, biases included: fresh biases are zero and would hide a mistake."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: MetaNetwork(jax.random.key(0), SMALL))
    drawn = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.5, leaf.shape), jnp.float32), shapes)
    return RuleFile(drawn, SMALL, {})


@functools.cache
def targets_of(sizes):
    return jax.jit(disco(sizes).targets)


def two_updates(rule_file: RuleFile, batch) -> list:
    """Targets of the first and the second update of a life."""
    state, found = disco(rule_file.sizes).start(jax.random.key(0)), []
    for _ in range(2):
        targets, state, _ = targets_of(rule_file.sizes)(rule_file.params, state, batch)
        found.append(targets)
    return found


def test_without_lifetime_is_birth_for_ever():
    batch = random_batch()
    before, ablated = two_updates(whole(), batch), two_updates(without(whole(), ("no_lifetime",)), batch)
    for name in ("policy", "state_prediction", "action_prediction"):
        np.testing.assert_allclose(ablated[0][name], before[0][name], atol=1e-5)
    # Later the whole rule has a memory. (The scales of advantages move in both, so the ablated one is not quite constant.)
    assert not np.allclose(ablated[1][POLICY], before[1][POLICY], atol=1e-3)


def silent(module: MetaNetwork) -> MetaNetwork:
    """Encoders of y and z that put out zero, whatever they read."""
    for encoder in (lambda net: net.encoder, lambda net: net.lifetime.encoder):
        for head in ("state_prediction", "action_prediction"):
            last = lambda net, e=encoder, h=head: getattr(e(net), h).layers[1]  # noqa: E731
            module = eqx.tree_at(last, module, jax.tree.map(jnp.zeros_like, last(module)))
    return module


def test_without_predictions_nothing_of_them_is_read():
    rule, batch = whole(), random_batch()
    ablated = without(rule, ("no_yz",))
    silenced = two_updates(rule._replace(params=silent(rule.params)), batch)
    left = {who: {k: v for k, v in getattr(batch, who).items() if "prediction" not in k} for who in ("online", "slow")}
    found = two_updates(ablated, batch._replace(**left))
    for update in (0, 1):  # the second after both memories have read the first
        assert set(found[update]) == {"policy", "value", "next_policy"}
        np.testing.assert_allclose(found[update][POLICY], silenced[update][POLICY], atol=1e-5)
    assert not np.allclose(found[0][POLICY], two_updates(rule, batch)[0][POLICY], atol=1e-3)


def test_without_value_the_weights_that_read_it_do_not_matter():
    batch = random_batch()
    left = {who: {k: v for k, v in getattr(batch, who).items() if k != "value"} for who in ("online", "slow")}

    def policy(change):
        rule = whole()
        rows = rule.params.trajectory.weight_input.at[change].add(5.0)
        changed = eqx.tree_at(lambda net: net.trajectory.weight_input, rule.params, rows)
        return two_updates(without(rule._replace(params=changed), ("no_value",)), batch._replace(**left))[1][POLICY]

    same = policy(jnp.array([4]))
    for row in (5, 6, 7):  # V now, V later, advantage, normalised advantage are 4 to 7
        np.testing.assert_array_equal(policy(jnp.array([row])), same)
    for row in (3, 8):
        assert not np.allclose(policy(jnp.array([row])), same, atol=1e-3)


@pytest.mark.parametrize("name", ABLATIONS)
def test_each_works_by_name_from_a_file_and_fresh(name, tmp_path):
    save_rule(tmp_path / "rule.safetensors", whole().params, SMALL)
    switch = ABLATIONS[name]
    expected = set(disco(dataclasses.replace(SMALL, **{switch: False})).heads(3))
    assert set(make_rule(f"{tmp_path}/rule.safetensors:{name}").rule.heads(3)) == expected
    assert set(make_rule(f"disco:{name}").rule.heads(3)) == expected
    twice = make_rule(f"{tmp_path}/rule.safetensors:{name}:{'no_value' if name != 'no_value' else 'no_yz'}")
    assert set(twice.rule.heads(3)) < set(disco(SMALL).heads(3))
    twice.rule.init(jax.random.key(0))


def test_what_is_refused(tmp_path):
    for name, words in (
        ("disco103:no_xz", "'disco103' has no ablation 'no_xz'; did you mean 'no_yz'"),
        ("disco103:no_yz:no_yz", "twice"),
        ("ppo:no_value", "only discovered rules have ablations"),
        ("discoo:no_yz", "unknown rule 'discoo'"),
    ):
        with pytest.raises(ValueError, match=words):
            make_rule(name)
    save_rule(tmp_path / "rule.safetensors", *without(whole(), ("no_yz",))[:2])
    with pytest.raises(ValueError, match="already discovered without this part"):
        make_rule(f"{tmp_path}/rule.safetensors:no_yz")


def test_names():
    assert split_ablations("a/b.npz:no_yz:no_value") == ("a/b.npz", ("no_yz", "no_value"))
    assert split_ablations("C:/b.npz") == ("C:/b.npz", ())
    assert recommended_steps("disco103:no_yz") == recommended_steps("disco103") != recommended_steps("ppo")
    assert short_name("a/b.safetensors:no_yz") == "b-no_yz"
