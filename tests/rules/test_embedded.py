"""Rules that come with the package: small, whole, and honest about where they come from."""

import json

import pytest

from rulax.commands.train.settings import DEFAULT_RULE, build_train
from rulax.rules.pretrained import load_rule, path_of
from rulax.rules.registry import EMBEDDED, RULES, STORED, list_rules, make_rule


@pytest.mark.parametrize("name", EMBEDDED)
def test_an_embedded_rule_is_whole_and_says_what_it_is(name):
    path = path_of(name)
    rule = load_rule(path)
    assert name in RULES
    assert path.stat().st_size < 2 * 2**20
    trained, validated = (set(json.loads(rule.about[key])) for key in ("trained_on", "validated_on"))
    assert trained
    assert validated
    assert not trained & validated
    assert rule.about["started_from"] == "random weights"
    card = path.with_name(f"{name}_card.md").read_text()
    assert rule.about["found"] in card
    for text in (card, *rule.about.values()):
        assert "/tmp" not in text
        assert "/home" not in text


def test_training_without_a_rule_uses_ppo_and_the_demonstration_one_that_was_discovered_here():
    assert DEFAULT_RULE == build_train({"env": "catch"}).rule == "ppo"
    rule = build_train({"preset": "demo"}).rule
    assert rule in EMBEDDED
    assert "discovered" in list_rules()[rule], "what the demonstration says of it at the end"
    assert set(EMBEDDED) <= set(STORED)
    recipe = make_rule(rule)
    assert (recipe.learning.streams, recipe.network.hidden) == (32, (64, 64)), "as it was found"
