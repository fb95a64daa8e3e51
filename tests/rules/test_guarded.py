"""Mistakes in a user's own rule: one sentence with its place, before anything is written; mistakes of the package stay loud."""

import re

import pytest

import rulax
from rulax.commands.cli import main
from rulax.errors import UserError
from rulax.rules.own import rule_name
from rulax.rules.ppo import ppo
from rulax.rules.registry import make_rule, own_recipe

TINY = {"steps": 64, "streams": 4, "unroll": 8, "hidden": (8,)}
RULE = """
import jax.numpy as jnp
from rulax.rules.base import UpdateRule, no_params, no_state
from rulax.types import Head, now
from rulax.values.policies import log_probability

def heads(num_actions):
    return {"policy": Head(num_actions), "value": Head(1)}

def targets(rule_params, rule_state, batch):
    experience, values = batch.experience, now(batch.online["value"][..., 0])
    returns = experience.reward + values
    return {"return": returns}, rule_state, {}

def loss(rule_params, taken, targets, experience):
    error = targets["return"] - taken["value"][..., 0]
    policy = -error * log_probability(taken["policy"], experience.action)
    return policy + error**2, {"error": error.mean()}

def my_rule():
    return UpdateRule(heads, no_params, no_state, targets, loss)
"""
MISTAKES = {
    "loss without metrics": (
        'return policy + error**2, {"error": error.mean()}',
        "return policy + error**2",
        r"loss must return \(loss \[T, B\], metrics\), not an array of shape \[8, 4\] \(mine.py, line 15\)",
    ),
    "only targets": (
        'return {"return": returns}, rule_state, {}',
        'return {"return": returns}',
        r"targets must return \(targets, rule_state, metrics\), not a dict \(mine.py, line 10\)",
    ),
    "forgotten [..., 0]": (
        'error = targets["return"] - taken["value"][..., 0]',
        'error = targets["return"] - taken["value"]',
        r"rule 'my_rule', loss: ValueError: Incompatible shapes .*\(8, 4\), \(8, 4, 1\)\] \(mine.py, line 16\)",
    ),
    "forgotten now()": (
        'now(batch.online["value"][..., 0])',
        'batch.online["value"][..., 0]',
        r"rule 'my_rule', targets: TypeError: add got incompatible shapes .*\(8, 4\), \(9, 4\) \(mine.py, line 12\)",
    ),
    "misspelt head": (
        'taken["value"]',
        'taken["valeu"]',
        r"loss: KeyError: 'valeu' \(mine.py, line 16\); did you mean 'value'\? the heads are policy, value, the targets are return",
    ),
    "misspelt head in targets": (
        'batch.online["value"]',
        'batch.slow["q"]',
        r"targets: KeyError: 'q' \(mine.py, line 11\); the heads are policy, value",
    ),
    "misspelt field": (
        "experience.reward",
        "experience.rewards",
        r"AttributeError: 'Experience' object has no attribute 'rewards' \(mine.py, line 12\); did you mean 'reward'\?",
    ),
    "no policy": ('"policy": Head(num_actions), ', "", r"heads must hold 'policy', .*they hold value \(mine.py, line 7\)"),
    "no Head": ('"value": Head(1)', '"value": 1', r"heads must return a Head by name"),
    "scalar loss": (
        "return policy + error**2",
        "return jnp.mean(policy + error**2)",
        r"the loss must be one number for each step, \[T, B\] = \[8, 4\], not an array of shape \[\] \(mine.py, line 15\)",
    ),
    "metric per step": ("error.mean()", "error", r"the metric 'error' of loss must be one number, not an array of shape \[8, 4\]"),
    "other state": ("rule_state, {}", "{'n': 1}, {}", r"targets must return a rule_state like the one it got: {} became"),
    "old signature": (
        "def loss(rule_params, ",
        "def loss(",
        r"as loss\(rule_params, taken, targets, experience\): TypeError:",
    ),
    "inside of a helper": (
        'log_probability(taken["policy"], experience.action)',
        'log_probability(taken["policy"], experience.action[0, 0, 0])',
        r"rule 'my_rule', loss: IndexError: .*\(mine.py, line 17\)",
    ),
    "its maker": (
        "return UpdateRule(heads,",
        "return UpdateRule(head,",
        r"my_rule', making it: NameError.* \(mine.py, line 21\)",
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_with_its_place(folder, mistake):
    right, wrong, sentence = MISTAKES[mistake]
    assert right in RULE
    (folder / "mine.py").write_text(RULE.replace(right, wrong))
    with pytest.raises(UserError, match=sentence) as raised:
        rulax.train("catch", rule="mine.py:my_rule", out="run", quiet=True, **TINY)
    assert "\n" not in str(raised.value)
    assert not (folder / "run").exists()


def test_the_command_line_prints_it_and_a_right_rule_learns(folder, capsys):
    (folder / "mine.py").write_text(RULE.replace('taken["value"]', 'taken["valeu"]'))
    given = ["train", "catch", "--rule", "mine.py:my_rule", "--steps", "64", "--streams", "4", "--unroll", "8", "--hidden", "8"]
    assert main(given) == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("error:")]
    assert re.search(r"KeyError: 'valeu' \(mine.py, line 16\)", line)
    (folder / "mine.py").write_text(RULE)
    assert main([*given, "--quiet", "--out", "run"]) == 0


def test_host_environments_answer_likewise(folder):
    (folder / "mine.py").write_text(RULE.replace("experience.reward", "experience.rewards"))
    with pytest.raises(UserError, match=r"no attribute 'rewards' \(mine.py, line 12\)"):
        rulax.train("gymnasium/CartPole-v1", rule="mine.py:my_rule", quiet=True, **TINY)


def test_an_error_inside_of_the_package_keeps_its_traceback():
    def broken(*arguments):
        raise KeyError("ours")

    # As if it stood in the package, where no user's code is on the way to it.
    code = broken.__code__.replace(co_filename=ppo.__code__.co_filename)
    inside = ppo()._replace(loss=type(broken)(code, globals()))
    with pytest.raises(KeyError, match="ours"):
        own_recipe(inside, "mine", {}).rule.loss({}, {}, {}, None)


def test_a_guarded_rule_keeps_its_name(folder):
    (folder / "mine.py").write_text(RULE)
    assert rule_name(make_rule("mine.py:my_rule").rule) == "loss"
    assert rule_name(own_recipe(ppo(), "mine", {}).rule) == rule_name(ppo())
