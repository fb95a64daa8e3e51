"""Rules of several kinds on disk: what a learned drift's file holds is what is used, and what does not fit is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.rules.kinds import KINDS, check_kind, kind_of
from rulax.rules.lpo import LEARNING
from rulax.rules.lpo_sizes import DriftConstants, DriftSizes
from rulax.rules.pretrained import load_rule, save_rule
from rulax.rules.registry import RULES, make_rule
from rulax.rules.rule_files import RuleFileError, write_safetensors
from tests.rules.data import make_targets, random_batch, taken_predictions

SIZES = DriftSizes(drift_hidden=4)
ABOUT = {"found": "by hand", "settings": json.dumps({"learning": {"epochs": 3}, "constants": {"clip": 0.3, "discount": 0.9}})}


@pytest.fixture
def params():
    return {"hidden": jax.random.normal(jax.random.key(0), (8, 4)), "output": jax.random.normal(jax.random.key(1), (4, 1))}


@pytest.fixture
def path(tmp_path, params):
    save_rule(tmp_path / "rule.safetensors", params, SIZES, ABOUT)
    return tmp_path / "rule.safetensors"


def test_every_kind_is_a_rule_of_the_table_and_knows_its_sizes():
    assert set(KINDS) <= set(RULES)
    for name, kind in KINDS.items():
        assert kind_of(kind.sizes()) == name
    with pytest.raises(ValueError, match="did you mean 'lpo'"):
        check_kind("lpoo")


def test_a_file_gives_back_what_was_saved(path, params):
    loaded = load_rule(path)
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
    assert loaded.sizes == SIZES
    assert loaded.about["found"] == "by hand"
    assert loaded.rule_settings.learning.epochs == 3
    assert loaded.rule_settings.learning.minibatches == LEARNING.minibatches  # what it does not state is as the kind recommends
    assert loaded.rule_settings.constants == DriftConstants(clip=0.3, discount=0.9)


def test_a_rule_from_a_file_is_that_rule(path, params):
    """The file's weights and constants, whatever the key; options replace constants, and the loss is that of the rule itself."""
    recipe = make_rule(str(path))
    assert recipe.learning.epochs == 3
    jax.tree.map(np.testing.assert_array_equal, recipe.rule.init(jax.random.key(9)), params)
    own = make_rule("lpo", drift_hidden=4, clip=0.3, discount=0.9).rule
    batch = random_batch(own)
    targets, _, _ = make_targets(own, batch)
    taken = taken_predictions(own, batch)
    moved = taken | {"policy": 2 * taken["policy"]}
    losses = [rule.loss(params, moved, targets, batch.experience)[0] for rule in (recipe.rule, own)]
    np.testing.assert_array_equal(*losses)
    other = make_rule(str(path), clip=0.05).rule.loss(params, moved, targets, batch.experience)[0]
    assert float(jnp.abs(other - losses[0]).max()) > 1e-3


def test_what_does_not_fit_is_one_sentence(path, tmp_path, params):
    with pytest.raises(ValueError, match="are for rules with a meta-network, and this one is of kind lpo"):
        make_rule(f"{path}:no_yz")
    with pytest.raises(ValueError, match="only discovered rules have ablations, and lpo has no meta-network"):
        make_rule("lpo:no_yz")
    with pytest.raises(RuleFileError, match="reference's format needs"):
        save_rule(tmp_path / "rule.npz", params, SIZES)
    wrong = tmp_path / "wrong.safetensors"
    write_safetensors(wrong, params, DriftSizes(5), {})
    with pytest.raises(RuleFileError, match=r"tensor 'hidden' has shape \(8, 4\), but it must be \(8, 5\)"):
        load_rule(wrong)
    import safetensors.numpy

    safetensors.numpy.save_file({"hidden": np.zeros((8, 4), np.float32)}, wrong, {"kind": "rulax.other", "sizes": "{}"})
    with pytest.raises(RuleFileError, match="has no kind"):
        load_rule(wrong)
    safetensors.numpy.save_file({"hidden": np.zeros((8, 4), np.float32)}, wrong, {"kind": "rulax.lpo", "sizes": '{"hidden": 4}'})
    with pytest.raises(RuleFileError, match="does not state the sizes"):
        load_rule(wrong)
