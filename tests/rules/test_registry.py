import subprocess
import sys

import pytest

from rulax.rules import ppo
from rulax.rules.base import Recipe
from rulax.rules.registry import RULES, UnknownRule, is_installed, list_rules, make_rule
from rulax.values.two_hot import SMALL_BINS, Bins


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


def test_options_are_read_by_the_kind_of_their_default():
    assert make_rule("q_learning", bins=[11, 5]).rule.heads(2)["value"].size == 11
    assert make_rule("q_learning", temperature=None, discount=1)
    assert make_rule("disco", prediction_size=8.0, action_channels=[4, 2])
    for options in (
        {"discount": "abc"},
        {"discount": 1.5},
        {"trace": True},
        {"discount": float("nan")},
        {"bins": 61},
        {"bins": (61, "x")},
        {"temperature": "hot"},
        {"cut_traces": 3},
    ):
        (name,) = options
        with pytest.raises(ValueError, match=f"rule 'q_learning': {name}.* (must|expects) "):
            make_rule("q_learning", **options)
    with pytest.raises(ValueError, match="rule 'disco': trace must lie between 0 and 1"):
        make_rule("disco", trace=2)


def test_disco103_is_found_without_jax_where_it_is_found_with_it(tmp_path, monkeypatch):
    from rulax.rules.pretrained import find_disco103

    for variable, folder in (("RULAX_CACHE", tmp_path / "cache" / "rules"), ("RULAX_RULES", tmp_path / "named")):
        monkeypatch.setenv("RULAX_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("RULAX_RULES", str(tmp_path / "named"))
        folder.mkdir(parents=True)
        assert not is_installed("disco103"), variable
        assert find_disco103() is None
        (folder / "disco_103.npz").touch()
        assert is_installed("disco103"), variable
        assert find_disco103() is not None
        (folder / "disco_103.npz").unlink()
    assert is_installed("ppo")


def test_a_rule_of_the_registry_may_bring_its_own_agent(monkeypatch):
    from rulax.agents import make_agent

    monkeypatch.setitem(RULES, "ppo", RULES["ppo"]._replace(agent="rulax.agents:make_agent"))
    assert make_rule("ppo").make_agent is make_agent
    assert make_rule("actor_critic").make_agent is None
