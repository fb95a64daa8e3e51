"""POET where the user says: in an environment of their own, by evolution or by a rule, from the command line."""

import dataclasses
import json

import jax.numpy as jnp
import pytest

from rulax.commands.cli import main
from rulax.learning.train import COMPILE_FAST
from rulax.methods.experiments import poet_own
from rulax.methods.poet_agents import EvolvedAgents, Evolving, TrainedAgents
from rulax.rules.registry import make_rule

FILE = """
from rulax.envs.hurdles import Hurdles
from rulax.envs.wrappers import Continuous, TimeLimit


class Own(Hurdles):
    def mutate(self, task, key):
        return task + 0.5


def Terrain():
    return TimeLimit(Continuous(Own()), 12)
"""


@pytest.fixture
def small(monkeypatch):
    """Agents that learn in a second or two."""

    def make(env, agents):
        environment = poet_own.make(env)
        if agents == "es":
            return EvolvedAgents(environment, Evolving(pairs=1, rollouts=1), COMPILE_FAST)
        recipe = make_rule(agents)
        learning = dataclasses.replace(recipe.learning, streams=2, unroll=4, epochs=1, minibatches=1)
        recipe = recipe._replace(learning=learning, network=dataclasses.replace(recipe.network, hidden=(4,)))
        return TrainedAgents(environment, recipe, rollouts=1, compile_options=COMPILE_FAST)

    monkeypatch.setattr(poet_own, "make_agents", make)


@pytest.mark.parametrize("agents", ["es", pytest.param("ppo", marks=pytest.mark.slow)])
def test_an_environment_of_ones_own_grows_a_tree(tmp_path, small, agents):
    (tmp_path / "mine.py").write_text(FILE)
    options = [f"env={tmp_path}/mine.py:Terrain", f"agents={agents}", "capacity=2", "iterations=75"]
    levels = ["lowest=-500", "highest=500", "parents_from=-500", "solved=-400"]
    words = ["--experiment", "own", "--seeds", "1", "--out", str(tmp_path / "out"), "--quiet"]
    assert main(["method", "poet", *words, "--options", *options, *levels]) == 0
    record = json.loads((tmp_path / "out" / "poet.own.json").read_text())
    assert record["details"]["environments"] == 2
    assert record["value"] == 2  # -400 is no feat, and is that of untrained agents as well
    story = json.loads((tmp_path / "out" / "poet-own-seed0.json").read_text())
    assert story["runs"][0]["branches"][1]["task"] == [0.5] * 7
    assert "<img" in (tmp_path / "out" / "poet-own-seed0.html").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["env=cartpole"], "CartPole cannot mutate its tasks"),
        (["env=hurdels"], "unknown environment 'hurdels'; did you mean 'hurdles'"),
        (["agents=dqn"], "what they replay would be of the one before"),
        (["env=hurdles:bins=5", "agents=es"], "in Hurdles an action is a choice"),
        (["capacity=2.5"], "capacity expects a whole number"),
        (["lowest=400"], "the minimal criterion needs lowest < highest"),
        (["iterations=3"], "iterations must be at least 25"),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_folder(tmp_path, capsys, options, sentence):
    out = tmp_path / "out"
    assert main(["method", "poet", "--experiment", "own", "--out", str(out), "--options", *options]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
    assert not out.exists()


def test_hurdles_stand_on_any_ground_and_refuse_what_nobody_could_pass():
    made = poet_own.make("hurdles", gap="2", stump=0.4, roughness=0.3)
    assert made.default_task().tolist() == jnp.array([0.3, 0, 2, 0, 0.4, 0, 0], jnp.float32).tolist()
    assert poet_own.make("hurdles").default_task().tolist() == [0.0] * 7
    with pytest.raises(ValueError, match="gap must lie between 0 and 4"):
        poet_own.make("hurdles", gap=5)
