"""What a newcomer is told: how actions are chosen, what is kept, and what to write instead."""

import numpy as np
import pytest

import rulax
from rulax.commands.play.show import said
from rulax.commands.resume import check_budget
from rulax.envs.registry import make
from rulax.evaluation.playing import Moment
from rulax.rules.base import Recipe
from rulax.rules.ppo import ppo
from rulax.settings import Learning, Network

TINY = {"streams": 4, "unroll": 8, "hidden": (8,), "epochs": 1, "minibatches": 1, "steps": 32}
BINS = "actions: 11 bins; --action-distribution gaussian, or the rule's NETWORK, changes that"


def mine():
    return ppo()


@pytest.mark.parametrize(
    ("rule", "more", "said"),
    [
        (mine, {}, True),
        (mine, {"action_distribution": "gaussian"}, False),
        (Recipe(ppo(), Learning(), Network(action_distribution="beta")), {}, False),
        ("ppo", {}, False),
    ],
)
def test_bins_of_ones_own_rule_are_announced(rule, more, said, capsys, monkeypatch):
    monkeypatch.setattr("rulax.commands.train.run.begin", lambda *arguments, **keywords: None)
    rulax.train("pendulum/continuous", rule=rule, **TINY, **more)
    assert (BINS in capsys.readouterr().err) == said


def test_choices_are_not_announced(capsys, monkeypatch):
    monkeypatch.setattr("rulax.commands.train.run.begin", lambda *arguments, **keywords: None)
    rulax.train("catch", rule=mine, **TINY)
    assert "bins" not in capsys.readouterr().err


def test_a_run_without_a_folder_claims_nothing_else():
    def fails(point):
        raise ZeroDivisionError("by zero")

    with pytest.raises(rulax.TrainingStopped, match=r"fails failed .*; nothing was saved, because .*\(out=\.\.\.\)"):
        rulax.train("catch", callback=fails, quiet=True, **TINY)
    with pytest.raises(rulax.UserError, match=r"was not kept in a folder; rulax.train\(..., out='runs/mine'\) keeps it"):
        rulax.load(None)


ENVIRONMENTS = """
import gymnasium


class Inventory(gymnasium.Env):
    pass


class Shop(gymnasium.Env):
    pass
"""


def test_a_python_file_without_a_name_lists_what_is_in_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_env.py").write_text(ENVIRONMENTS)
    (tmp_path / "my_rule.py").write_text("from rulax.rules.ppo import ppo\n\n\ndef mine():\n    return ppo()\n")
    with pytest.raises(ValueError, match=r"'my_env.py' is a Python file: write my_env.py:NAME; it defines Inventory, Shop$"):
        make("my_env.py")
    with pytest.raises(ValueError, match=r"'my_rule.py' is a Python file: write my_rule.py:NAME; it defines mine$"):
        rulax.rule("my_rule.py")


def test_large_numbers_have_separators(tmp_path):
    with pytest.raises(rulax.UserError, match="has already made 610,304 steps, more than --steps 500,000"):
        check_budget(tmp_path, 610_304, 500_000, True, "steps")


def test_play_says_what_ended_an_episode():
    picture = np.zeros((2, 2, 3), np.uint8)
    assert said(Moment(picture, 0, 30, 40.3, True)) == "episode 1: 30 steps, return 40.3, ended"
    assert said(Moment(picture, 0, 30, 40.3, True, True)) == "episode 1: 30 steps, return 40.3, time limit"


@pytest.mark.parametrize(
    ("env", "limit"), [("mountain_car:limit=5", True), ("MountainCar-v0:max_episode_steps=5", True), ("catch:rows=4", False)]
)
def test_a_time_limit_is_told_from_an_end(env, limit):
    agent = rulax.train(env, quiet=True, **TINY).agent
    *_, last = agent.play()
    assert (last.ended, last.truncated) == (True, limit)
