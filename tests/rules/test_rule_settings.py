"""A rule file says how the rule was found, and training begins there; what it says is checked before it is used."""

import dataclasses
import json

import jax
import pytest

from rulax.metanet.network import MetaNetwork
from rulax.rules.disco import LEARNING, NETWORK
from rulax.rules.pretrained import load_rule, save_rule
from rulax.rules.registry import make_rule
from rulax.rules.rule_files import RuleFileError
from tests.metanet.environments import SMALL


def write(folder, settings):
    path = folder / "rule.safetensors"
    text = settings if isinstance(settings, str) else json.dumps(settings)
    save_rule(path, MetaNetwork(jax.random.key(0), SMALL), SMALL, {"settings": text})
    return str(path)


def test_training_begins_with_the_settings_that_a_rule_was_found_with(tmp_path):
    said = {
        "learning": {"streams": 5, "learning_rate": 0.25},
        "network": {"hidden": [7, 3], "torso": "conv"},
        "constants": {"discount": 0.5},
        "sizes": {"ignored": 1},
    }
    recipe, found = make_rule(write(tmp_path, said)), load_rule(tmp_path / "rule.safetensors").rule_settings
    assert recipe.learning == dataclasses.replace(LEARNING, streams=5, learning_rate=0.25)
    assert recipe.network == dataclasses.replace(NETWORK, hidden=(7, 3)), "how an environment is read is not the rule's business"
    assert (found.constants.discount, found.constants.trace) == (0.5, 0.95)


def test_files_of_earlier_versions_know_a_setting_by_its_old_name(tmp_path):
    assert make_rule(write(tmp_path, {"network": {"first_values": "zero"}})).network.value_init == "zero"


def test_a_file_that_says_nothing_gets_the_usual_settings(tmp_path):
    recipe = make_rule(write(tmp_path, ""))
    assert (recipe.learning, recipe.network) == (LEARNING, NETWORK)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("[1]", "does not state how"),
        ("{", "does not state how"),
        ({"learning": 3}, "does not state how"),
        ({"learning": {"lr": 1}}, "does not state how"),
        ({"learning": {"streams": 2.5}}, "'streams' cannot be 2.5"),
        ({"learning": {"streams": True}}, "'streams' cannot be True"),
        ({"learning": {"streams": -1}}, "'streams' must be at least 1, not -1"),
        ({"learning": {"streams": 0}}, "'streams' must be at least 1, not 0"),
        ({"learning": {"adam_b1": 1.5}}, "'adam_b1' must be at least 0 and less than 1, not 1.5"),
        ({"learning": {"clip_gradient": float("nan")}}, "'clip_gradient' cannot be nan"),
        ({"network": {"hidden": []}}, "'hidden' needs at least one number"),
        ({"network": {"hidden": [10**12]}}, "'hidden' cannot be"),
        ({"network": {"core": "transformer"}}, "'core' cannot be 'transformer'"),
        ({"constants": {"discount": "much"}}, "'discount' cannot be 'much'"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(tmp_path, said, complaint):
    with pytest.raises(RuleFileError, match=complaint):
        make_rule(write(tmp_path, said))
