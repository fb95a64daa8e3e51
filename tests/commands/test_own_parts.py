"""A user's own rules, environments and networks, by object and by reference, in every command that takes names."""

import dataclasses
import functools
import json

import gymnasium
import jax
import numpy as np
import pytest

import rulax
from rulax import own
from rulax.api import held_environments, held_rules
from rulax.commands.cli import main
from rulax.commands.names import read_rule_spec, read_spec, split_specs
from rulax.envs.base import Environment, HostEnvironment
from rulax.envs.catch import Catch
from rulax.envs.registry import make
from rulax.rules.base import Recipe, UpdateRule
from rulax.rules.ppo import ppo
from rulax.rules.registry import make_rule
from rulax.settings import Learning, Network
from rulax.types import Level

TINY = {"streams": 4, "unroll": 8, "hidden": (8,), "epochs": 1, "minibatches": 1}
FILE = """
import equinox as eqx
import gymnasium
import jax
import numpy as np

from rulax.agents.cores import RecurrentCore
from rulax.agents.layers import GRU
from rulax.envs.catch import Catch
from rulax.rules.ppo import ppo
from rulax.rules.base import Recipe
from rulax.settings import Learning, Network

LEARNING = Learning(learning_rate=0.123)
SIZE = 7


def my_rule(discount: float = 0.9):
    return ppo(discount=discount)


def whole_recipe():
    return Recipe(ppo(), Learning(streams=5), Network())


class Corridor(gymnasium.Env):
    def __init__(self, length: int = 3):
        self.length, self.at = length, 0
        self.observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.at / self.length, 1], np.float32)

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        done = self.at >= self.length
        return self.seen(), float(done), done, False, {}


def small_catch(rows: int = 5):
    return Catch(rows=rows, columns=4)


def my_torso(key, observation, network):
    return eqx.nn.MLP(observation.size, 6, 5, 1, key=key) if observation.ndim == 1 else Flat(key, observation)


class Flat(eqx.Module):
    layer: eqx.nn.Linear

    def __init__(self, key, observation):
        self.layer = eqx.nn.Linear(observation.size, 6, key=key)

    def __call__(self, observation):
        return jax.nn.relu(self.layer(observation.reshape(-1).astype(float)))


def my_core(key, inputs, size, level):
    return RecurrentCore(GRU(key, inputs, 9), level), 9
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path / "mine.py"


class Corridor(gymnasium.Env):
    """Not copied by its constructor's arguments but as a whole, for it has no id."""

    def __init__(self, length=3):
        self.length, self.at = length, 0
        self.observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += int(action)
        done = self.at >= self.length
        return np.full(1, self.at / self.length, np.float32), float(done), done, False, {}


# -- what a name becomes ---------------------------------------------------------------------------------------------------------


def test_a_reference_is_a_rule_with_the_settings_of_its_module(file):
    recipe = make_rule("mine.py:my_rule", discount="0.8")
    assert isinstance(recipe.rule, UpdateRule)
    assert recipe.learning.learning_rate == 0.123
    assert recipe.network == Network()
    assert make_rule("mine.py:whole_recipe").learning.streams == 5


def test_a_reference_is_an_environment_of_either_kind(file):
    corridor = make("mine.py:Corridor", length=5)
    assert isinstance(corridor, HostEnvironment)
    assert corridor.make_env().length == 5
    catch = make("mine.py:small_catch", rows="6")
    assert isinstance(catch, Environment)
    assert (catch.rows, catch.columns) == (6, 4)


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("mine.py:my_rle", "mine.py has no 'my_rle'; did you mean 'my_rule'?"),
        ("mine.py:SIZE", "must be an UpdateRule, a Recipe .* not int"),
        ("absent.py:my_rule", "absent.py cannot be read: No such file"),
        ("broken.py:my_rule", r"broken.py cannot be imported: NameError: name 'nothing' is not defined \(line 2\)"),
        ("unparsed.py:my_rule", r"unparsed.py cannot be imported: SyntaxError: .* \(line 1\)"),
        ("absent_module:my_rule", "there is no module 'absent_module'"),
        ("dico103:no_yz", "unknown rule 'dico103'; did you mean 'disco103'"),
        ("mine.py", "is a Python file: write mine.py:NAME"),
    ],
)
def test_what_is_wrong_with_a_reference_is_one_sentence(file, reference, sentence):
    (file.parent / "broken.py").write_text("x = 1\nnothing\n")
    (file.parent / "unparsed.py").write_text("def (:\n")
    with pytest.raises(ValueError, match=sentence):
        make_rule(reference)


def test_a_changed_file_is_imported_anew(file):
    before = make_rule("mine.py:my_rule").learning.learning_rate
    file.write_text(FILE.replace("0.123", "0.456"))
    assert (before, make_rule("mine.py:my_rule").learning.learning_rate) == (0.123, 0.456)


def test_options_stand_behind_references():
    spec = read_spec("mine.py:Corridor:length=5,bins=3")
    assert (spec.env, spec.options) == ("mine.py:Corridor", {"length": 5, "bins": 3})
    assert read_spec("package:ID-v0").env == "package:ID-v0"
    assert split_specs(("mine.py:Corridor", "length=5", "catch:rows=5", "columns=5")) == (
        "mine.py:Corridor:length=5",
        "catch:rows=5,columns=5",
    )
    spec = read_rule_spec("mine.py:my_rule:discount=0.9,learning_rate=1e-3,hidden=[8,8]")
    assert (spec.rule, spec.options, spec.overrides) == (
        "mine.py:my_rule",
        {"discount": 0.9},
        {"learning_rate": 1e-3, "hidden": (8, 8)},
    )
    assert read_rule_spec("disco103:no_yz").rule == "disco103:no_yz"


@own.holding()
def test_objects_get_names_of_their_own():
    first, second = ppo(discount=0.9), ppo(discount=0.8)
    assert held_rules([first, second, "ppo", {"name": "ppo", "clip": 0.1}]) == ("ppo-2", "ppo-3", "ppo", "ppo:clip=0.1")
    assert (own.held("rule", "ppo-2"), own.held("rule", "ppo-3")) == (first, second)
    assert held_environments([Corridor(), gymnasium.make("CartPole-v1"), Catch(rows=5)]) == ("Corridor", "CartPole-v1", "Catch")
    assert held_rules(Recipe(first, Learning(), Network())) == ("ppo-2",)
    with pytest.raises(rulax.UserError, match="no 'name'"):
        held_rules([{"clip": 0.1}])
    with pytest.raises(rulax.UserError, match="env must be a name or an object of your own, not 3"):
        held_environments([3])


@pytest.mark.parametrize("given", [Corridor(4), Corridor, lambda: Corridor(4), gymnasium.make("CartPole-v1")])
def test_gymnasium_environments_are_taken_in_every_form(given):
    with own.holding():
        (name,) = held_environments([given])
        environment = make(name)
    assert own.held("env", name) is None  # the name means again what it meant before
    assert isinstance(environment, HostEnvironment)
    one, another = environment.make_env(), environment.make_env()
    assert one.unwrapped is not another.unwrapped  # every stream steps its own


@own.holding()
def test_what_has_no_name_is_called_after_what_it_makes():
    corridors = [lambda: Corridor(4), functools.partial(Corridor, length=5)]
    assert held_environments(corridors) == ("Corridor", "Corridor-2")
    assert held_rules([lambda: ppo(discount=0.9), functools.partial(ppo, discount=0.8)]) == ("ppo-2", "ppo-3")
    assert held_rules([lambda: 1 / 0]) == ("function",)  # the mistake is reported where the rule is made


def test_names_for_tables_and_names_for_commands():
    assert own.shown("far/mine.py:Corridor:length=5,bins=3") == "Corridor:length=5,bins=3"
    assert own.shown("catch:rows=5,columns=5,mine.py:Corridor,far/mine.py:Other") == "catch:rows=5,columns=5,Corridor,Other"
    assert own.without_options("mine.py:Corridor:length=5,bins=3") == "mine.py:Corridor"
    assert own.without_options("package:ID-v0") == "package:ID-v0"
    assert own.without_options("catch:rows=5") == "catch"


# -- used for real ---------------------------------------------------------------------------------------------------------------


def test_a_run_with_own_parts_is_trained_and_resumed_from_its_folder(file, capsys):
    parts = ["--torso", "mine.py:my_torso", "--core", "mine.py:my_core"]
    flags = [*parts, "--streams", "4", "--unroll", "8", "--hidden", "8", "--epochs", "1", "--minibatches", "1"]
    arguments = ["train", "mine.py:small_catch", "--rule", "mine.py:my_rule", "--steps", "128", "--out", "run", *flags]
    assert main(arguments) == 0
    assert "small_catch · my_rule" in capsys.readouterr().out
    record = json.loads((file.parent / "run" / "config.json").read_text())
    assert set(record["own_files"]) == {f"mine.py:{name}" for name in ("small_catch", "my_rule", "my_torso", "my_core")}
    file.write_text(FILE + "\n# a remark\n")
    assert main(["train", "--resume", "run", "--steps", "256"]) == 0
    assert "mine.py has changed since this run was begun" in capsys.readouterr().err
    agent = rulax.load("run").agent
    assert agent.params.core.cell.project(np.zeros((1, 8), np.float32)).shape == (1, 27)  # three gates of nine
    assert agent.act(np.zeros(agent.observation.shape, np.float32)) in range(3)


def test_python_takes_objects_for_networks_too():
    def torso(key, observation, network):
        del key, network
        return lambda seen: seen.reshape(-1)[:3].astype(float)

    run = rulax.train(Catch(rows=5, columns=4), rule=ppo, steps=64, torso=torso, quiet=True, **TINY)
    assert (run.config.env, run.config.rule) == ("Catch", "ppo")
    assert run.agent.params.torso.mlp.layers[0].weight.shape in ((3, 8), (8, 3))

    def core(key, inputs, size, level):
        from rulax.agents.cores import make_core

        assert level == Level.EPISODE
        return make_core(key, "gru", inputs, 5)

    run = rulax.train(Catch(rows=5, columns=4), rule="ppo", steps=64, core=core, quiet=True, **TINY)
    assert jax.tree.leaves(run.agent.params.initial_memory(2))[0].shape == (2, 5)


@dataclasses.dataclass(frozen=True)
class Narrow(Catch):
    """A compiled environment of the user's own."""

    rows: int = 4
    columns: int = 3


def test_is_my_rule_better_than_ppo(tmp_path):
    def my_rule(discount: float = 0.9):
        return ppo(discount=discount)

    rules = ["ppo", my_rule, {"name": my_rule, "discount": 0.5, "learning_rate": 1e-3}]
    result = rulax.compare([Narrow(), "catch:rows=5,columns=4"], rules=rules, steps=64, seeds=2, out=tmp_path / "c", **TINY)
    assert [rule["name"] for rule in result.results["rules"]] == ["ppo", "my_rule", "my_rule:discount=0.5,learning_rate=0.001"]
    assert [env["name"] for env in result.results["environments"]] == ["Narrow", "catch:rows=5,columns=4"]
    assert "my_rule" in result.table
    assert result.results["finished"]
    again = rulax.compare([Narrow(), "catch:rows=5,columns=4"], rules=rules, steps=64, seeds=2, resume=tmp_path / "c", **TINY)
    assert again.results["statistics"] == result.results["statistics"]


def test_endless_episodes_are_answered_with_the_option_that_ends_them(file, capsys):
    file.write_text(FILE.replace("done = self.at >= self.length", "done = False"))
    small = ["--steps", "64", "--streams", "4", "--unroll", "8", "--hidden", "8"]
    assert main(["train", "mine.py:Corridor", *small, "--epochs", "1", "--minibatches", "1", "--no-animation"]) == 0
    assert "--env-options max_episode_steps=200" in capsys.readouterr().out


def test_titles_have_the_options_that_a_user_gave() -> None:
    assert own.shown_with("catch", {}) == "catch"
    assert own.shown_with("catch", {"rows": 6, "columns": 5}) == "catch:rows=6,columns=5"
    assert own.shown_with("rules/mine.py:my_rule", {"clip": 0.1}) == "my_rule:clip=0.1"
    # Ranges are a table of their own in the page, and would fill a title.
    assert own.shown_with("cartpole", {"randomise": {"force": (5, 15)}}) == "cartpole"
    assert len(own.shown_with("catch", {f"option_{number}": number for number in range(30)})) < 60
