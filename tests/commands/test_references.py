"""Names with options mean the same in every command and in Python, are recorded as options, and are never ignored."""

import json

import pytest

import rulax
from rulax.commands.bench.settings import build_bench
from rulax.commands.evaluate.setup import find_agents
from rulax.commands.explain.settings import build_explain
from rulax.commands.train.settings import build_train
from rulax.commands.tune.settings import build_tune
from rulax.records.earlier import complete
from tests.commands.bad_lines import refused_in_one_sentence

TINY = {"streams": 4, "unroll": 8, "hidden": (8,), "epochs": 1, "minibatches": 1, "quiet": True}
FILE = """
from rulax.rules.ppo import ppo


def mine(clip: float = 0.2):
    return ppo(clip=clip)
"""


@pytest.fixture(scope="module")
def run():
    return rulax.train("catch:rows=6", rule="ppo:clip=0.1,learning_rate=1e-3", steps=64, **TINY)


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """A rule in a file of its own, outside of the current folder, which is empty."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "rules" / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "rules" / "mine.py"


def test_options_in_names_become_options_and_settings_wherever_there_are_names():
    given = {"env": "catch:rows=6", "rule": "ppo:clip=0.1,learning_rate=1e-3"}
    for build in (build_train, build_explain, build_bench, lambda values: build_tune({**values, "tune": ["unroll=8,16"]})):
        config = build(given)
        assert (config.env, config.env_options) == ("catch", {"rows": 6})
        assert (config.rule, config.rule_options) == ("ppo", {"clip": 0.1})
        assert config.overrides["learning_rate"] == 1e-3


def test_a_run_records_and_uses_them(run):
    assert run.source is not None
    prepared = run.source[0]
    assert prepared.environment.rows == 6
    assert prepared.recipe.learning.learning_rate == 1e-3
    settings = prepared.record["settings"]
    assert (settings["env"], settings["env_options"]) == ("catch", {"rows": 6})
    assert (settings["rule"], settings["rule_options"]) == ("ppo", {"clip": 0.1})


def test_a_mapping_means_the_same_in_train_as_in_compare(monkeypatch):
    seen = {}
    monkeypatch.setattr("rulax.commands.train.run.start", lambda config, *rest: seen.update(config=config))
    rulax.train({"name": "catch", "rows": 6}, rule={"name": "ppo", "clip": 0.1, "learning_rate": 1e-3})
    assert seen["config"] == build_train({"env": "catch:rows=6", "rule": "ppo:clip=0.1,learning_rate=1e-3"})


def test_a_preset_is_for_the_name_before_the_options(tmp_path):
    preset = tmp_path / "small.json"
    preset.write_text(json.dumps({"env": "catch:columns=4", "rule": "ppo:clip=0.3", "steps": 100}))
    config = build_train({"preset": str(preset), "env": "catch:rows=6", "rule": "ppo:clip=0.1"})
    assert config.env_options == {"rows": 6, "columns": 4}
    assert config.rule_options == {"clip": 0.1}


def test_agents_play_elsewhere_by_a_name_with_options(run, tmp_path):
    (agent,) = find_agents(run, "catch:tasks=2,rows=6")
    assert agent.description.env_options == {"rows": 6, "tasks": 2}
    path = run.agent.save(tmp_path / "agent.safetensors")
    assert rulax.load_agent(path, env="catch:tasks=2").description.env_options == {"rows": 6, "tasks": 2}
    with pytest.raises(rulax.UserError, match="give it once"):
        find_agents(run, "catch:rows=6", {"rows": 7})


def test_makers_in_python_read_them_too():
    assert rulax.make("catch:rows=6").rows == 6
    assert rulax.rule("ppo:clip=0.1").learning == rulax.rule("ppo").learning


BAD = (
    ("train catch --rule ppo:clop=0.1", "rule 'ppo' has no option 'clop'; did you mean 'clip'?"),
    ("train catch --rule ppo:clip=0.1 --rule-options clip=0.2", "'ppo:clip=0.1' has clip=0.1, and rule_options has clip=0.2"),
    ("train catch --rule ppo:streams=8 --streams 4", "has streams=8, and a setting of its own has streams=4; give it once"),
    ("train catch:rows=6 --env-options rows=7", "'catch:rows=6' has rows=6, and env_options has rows=7; give it once"),
    ("train catch:rosw=6", "'catch' has no option 'rosw'; did you mean 'rows'?"),
    ("explain ppo:clop=0.1", "rule 'ppo' has no option 'clop'"),
    ("tune catch:rosw=6 --tune unroll=8,16", "'catch' has no option 'rosw'"),
)


@pytest.mark.parametrize(("line", "words"), BAD)
def test_what_does_not_fit_is_refused_in_one_sentence(line, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused_in_one_sentence(line, words, tmp_path, capsys)


@pytest.mark.parametrize("line", ["train catch --rule {}:mine:clop=3", "explain {}:mine:clop=3"])
def test_a_misspelt_option_of_ones_own_rule_is_refused(line, own_file, capsys):
    refused_in_one_sentence(line.format(own_file), "rule 'mine' has no option 'clop'; did you mean 'clip'?", own_file.cwd(), capsys)


def test_ones_own_rule_has_no_ablations(own_file, capsys):
    words = "only discovered rules have ablations, and mine is your own"
    refused_in_one_sentence(f"train catch --rule {own_file}:mine:no_yz", words, own_file.cwd(), capsys)


def test_a_folder_from_when_options_were_ignored_is_read_as_what_it_trained():
    record = complete({"kind": "train", "settings": {"rule": "awr.py:awr:temprature=3", "rule_options": {}}})
    assert record["settings"] == {"rule": "awr.py:awr", "rule_options": {}}
