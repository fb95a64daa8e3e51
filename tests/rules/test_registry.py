import subprocess
import sys

import pytest

from rulax.rules import ppo
from rulax.rules.base import Recipe
from rulax.rules.registry import RULES, UnknownRule, list_rules, make_rule
from rulax.rules.values import SMALL_BINS, Bins


def test_rules_are_listed_without_importing_jax():
    code = "import sys; from rulax.rules.registry import list_rules; list_rules(); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_rule_in_the_table_has_a_line_about_it():
    assert set(list_rules()) == set(RULES)
    assert all(0 < len(line) < 100 for line in list_rules().values())


def test_options_reach_the_rule():
    recipe = make_rule("q_learning", bins=Bins(11, 5.0))
    assert isinstance(recipe, Recipe)
    assert recipe.rule.heads(2)["value"].size == 11
    assert make_rule("q_learning").rule.heads(2)["value"].size == SMALL_BINS.number


def test_settings_come_from_the_file_of_the_rule():
    assert make_rule("ppo").learning is ppo.LEARNING
    assert make_rule("ppo").network is ppo.NETWORK


def test_an_unknown_rule_names_the_nearest_and_all_known():
    with pytest.raises(
        UnknownRule, match=r"unknown rule 'actor-critik'; did you mean 'actor_critic'\? known: actor_critic, "
    ) as error:
        make_rule("actor-critik")
    assert isinstance(error.value, ValueError)
    with pytest.raises(UnknownRule, match=r"unknown rule 'zzz'; known: "):
        make_rule("zzz")


def test_an_unknown_option_names_the_nearest_and_all_known():
    with pytest.raises(ValueError, match=r"rule 'ppo' has no option 'discont'; did you mean 'discount'\? known: discount, "):
        make_rule("ppo", discont=0.9)
