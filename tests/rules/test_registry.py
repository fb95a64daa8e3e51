import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from rulax.agents import Carried, WrappedAgent, make_agent
from rulax.commands.train.settings import build_train
from rulax.commands.train.setup import prepare
from rulax.envs.registry import make
from rulax.learning.life import init_agent, make_learner
from rulax.rules import ppo
from rulax.rules.base import Recipe
from rulax.rules.registry import RULES, RuleEntry, UnknownRule, is_installed, list_rules, make_rule
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


def make_table(
    key, observation, num_actions, heads, network, action_dimensions=0, num_streams=1, *, capacity: int = 8, discount: float = 0.99
):
    """An agent with a table, and with a discount that its rule names as well."""
    agent = make_agent(key, observation, num_actions, heads, network, action_dimensions, num_streams)
    return Table(agent, Carried(jnp.full((capacity, num_actions), discount)))


class Table(WrappedAgent):
    table: Carried


def test_options_reach_the_agents_that_a_rule_brings(monkeypatch):
    entry = RuleEntry("rulax.rules.actor_critic:actor_critic", "with a table", agent="tests.rules.test_registry:make_table")
    monkeypatch.setitem(RULES, "tabled", entry)
    environment = make("catch")

    def table(**options):
        recipe = make_rule("tabled", **options)
        return init_agent(recipe, make_learner(recipe), environment, jax.random.key(0)).params.table.value

    assert table().shape == (8, environment.num_actions)
    # As the command line gives them: text, some of it for the rule, some for the agents, some for both.
    made = table(capacity="5", trace="0.5", discount="0.75")
    assert made.shape == (5, environment.num_actions)
    assert made[0, 0] == 0.75
    prepared = prepare(build_train({"env": "catch", "rule": "tabled", "rule_options": ["capacity=3"]}))
    assert prepared.trainer.skeleton().life.learner_state.params.table.value.shape == (1, 3, environment.num_actions)
    with pytest.raises(ValueError, match=r"rule 'tabled' has no option 'capacty'; did you mean 'capacity'\? known: discount, "):
        make_rule("tabled", capacty=5)
    with pytest.raises(ValueError, match="rule 'tabled': capacity expects a whole number"):
        make_rule("tabled", capacity="many")
    with pytest.raises(ValueError, match="rule 'tabled' has no option 'num_streams'"):
        make_rule("tabled", num_streams=5)


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
    with pytest.raises(ValueError, match=r"rule 'q_learning': epsilon must lie between 0 and 1, not 1\.5"):
        make_rule("q_learning", epsilon="1.5")
    with pytest.raises(ValueError, match=r"rule 'ppo': bins \(number\) must be at least 2, not 1"):
        make_rule("ppo", bins="1,60")
    with pytest.raises(ValueError, match=r"rule 'ppo': bins \(largest\) must be greater than 0, not 0"):
        make_rule("ppo", bins="61,0")


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
    monkeypatch.setitem(RULES, "ppo", RULES["ppo"]._replace(agent="rulax.agents:make_agent"))
    assert make_rule("ppo").make_agent is make_agent
    assert make_rule("actor_critic").make_agent is None
