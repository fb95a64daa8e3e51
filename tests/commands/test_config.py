"""Flags are made from fields, presets hold only differences, and every bad number is one sentence."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rulax.commands.bench.settings import build_bench
from rulax.commands.cli import COMMANDS
from rulax.commands.fields import field_docs, field_types, flag_name
from rulax.commands.flags import make_parser, parse
from rulax.commands.preset_files import load_preset, preset_names
from rulax.commands.settings import check_bounds, check_settings, check_suite, known_keys
from rulax.commands.train.settings import DEFAULT_RULE, TrainConfig, build_train, check_train
from rulax.discovery.settings import Discovery
from rulax.envs.catalogue import adapter_families
from rulax.envs.suites import SUITES
from rulax.errors import UserError, matches
from rulax.rules.registry import recommended_steps
from rulax.settings import Learning, Network
from rulax.text import convert


def flags(line: str) -> TrainConfig:
    parser = make_parser("rulax train", TrainConfig, "")
    return build_train(parse(parser, TrainConfig, line.split()))


def test_every_setting_is_a_flag_with_help() -> None:
    parser = make_parser("rulax train", TrainConfig, "")
    for part in (Learning, Network):
        for field in dataclasses.fields(part):
            action = parser._option_string_actions[flag_name(field.name)]
            assert action.help == field_docs(part)[field.name].replace("%", "%%")
    for field in dataclasses.fields(TrainConfig):
        assert len(field_docs(TrainConfig)[field.name]) > 10


def test_names_do_not_collide() -> None:
    names = [field.name for part in (TrainConfig, Learning, Network) for field in dataclasses.fields(part)]
    assert len(names) == len(set(names))


def test_only_given_values_override() -> None:
    config = flags("catch --hidden 32 16 --learning-rate 1e-2 --no-activate-last --steps 200k --env-options rows=8 name=x")
    assert config.overrides == {"hidden": (32, 16), "learning_rate": 0.01, "activate_last": False}
    assert config.steps == 200_000
    assert config.env_options == {"rows": 8, "name": "x"}
    assert config.seeds == 1
    assert not config.quiet


@pytest.mark.parametrize(
    ("text", "value"), [("1e6", 10**6), ("1_000_000", 10**6), ("200k", 200_000), ("2.5M", 2_500_000), ("7", 7), ("-3", -3)]
)
def test_whole_numbers_as_people_write_them(text: str, value: int) -> None:
    assert convert("steps", int, text) == value


@pytest.mark.parametrize(
    ("hint", "text"),
    [(int, "1.5"), (int, "k"), (int, ""), (int, "nan"), (int, True), (float, "x"), (float, "inf"), (bool, "maybe")],
)
def test_other_text_is_refused(hint: type, text: str) -> None:
    with pytest.raises(UserError, match="expects"):
        convert("value", hint, text)


def test_flags_win_over_preset(tmp_path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("env: catch\nrule: ppo\nlearning_rate: 1e-3\nhidden: [8]\nenv_options: {rows: 5}\n")
    config = flags(f"--preset {preset} --learning-rate 0.5")
    assert (config.env, config.rule) == ("catch", "ppo")
    assert config.overrides == {"learning_rate": 0.5, "hidden": (8,)}
    assert config.env_options == {"rows": 5}
    assert flags(f"cartpole --preset {preset}").env_options == {}  # they were catch's


def test_an_earlier_run_is_a_preset(tmp_path) -> None:
    record = {"settings": {"env": "catch", "steps": 5}, "learning": {"unroll": 3}, "network": {"hidden": [4]}, "versions": {}}
    (tmp_path / "config.json").write_text(json.dumps(record))
    config = flags(f"--preset {tmp_path / 'config.json'}")
    # What runs did before there were such settings.
    old = {
        "reward_scale": 1.0,
        "value_init": "drawn",
        "memory_level": "episode",
        "action_distribution": "bins",
        "shuffle": "streams",
        "normalise_observations": False,
        "normalise_rewards": False,
        "schedule_steps": 0,
        "replay_priority": 0.0,
        "replay_correction": 0.4,
        "slow_period": 0,
        "core_rows": 16,
        "worst": 1.0,
        "worst_after": 100,
    }
    assert (config.env, config.steps, config.overrides) == ("catch", 5, {"unroll": 3, "hidden": (4,)} | old)


def test_presets_of_the_package_are_valid() -> None:
    for name, summary in preset_names().items():
        assert summary
        check_train(build_train({"preset": name, "env": "catch"}))
        build_bench({"preset": name})
    assert {"demo", "reference-catch", "paper-atari"} <= set(preset_names())


def test_a_rule_says_how_long_to_train() -> None:
    assert build_train({"env": "catch"}).steps == recommended_steps(DEFAULT_RULE)
    shorter = build_train({"env": "catch", "rule": "disco103"}).steps
    assert shorter == build_train({"env": "catch", "rule": "x.safetensors"}).steps < recommended_steps("actor_critic")
    assert build_train({"env": "catch", "rule": "disco103", "steps": 7}).steps == 7
    assert build_train({"env": "catch", "preset": "paper-atari"}).steps == 50_000_000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("lerning_rate: 1", "did you mean 'learning_rate'"),
        ("lr: 1", "did you mean 'learning_rate'"),
        ("streams: many", "streams expects a whole number"),
        ("core: rnn", "one of none, lstm, gru"),
        ("- 1\n- 2", "settings by name"),
        ("a: [1", "not valid YAML"),
        ("preset: demo", "cannot name another preset"),
    ],
)
def test_bad_presets(tmp_path, content: str, words: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=words):
        build_train({"preset": str(path)})


def test_a_preset_names_an_environment_or_an_example_of_one(tmp_path) -> None:
    for name in preset_names():
        values = load_preset(name)
        assert ("env" in values) != ("example" in values), name
        if "example" in values:
            assert values["example"].split("/")[0] in adapter_families()
            assert build_train({"preset": name}).env == ""  # it is no default
    (tmp_path / "mine.yaml").write_text("rule: ppo\n")
    with pytest.raises(UserError, match=r"for example: rulax train ENV --preset .*mine\.yaml"):
        check_train(build_train({"preset": str(tmp_path / "mine.yaml")}))


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'demo'"):
        load_preset("dmo")
    with pytest.raises(UserError, match="cannot be read"):
        load_preset("nowhere.yaml")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"streams": 0}, "streams must be at least 1"),
        ({"unroll": -1}, "unroll must be at least 1"),
        ({"batch": -1}, "batch must not be negative"),
        ({"replay": 1.5}, "replay must lie between 0 and 1"),
        ({"replay": -0.1}, "replay must lie between 0 and 1"),
        ({"capacity": 0}, "capacity must be at least 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"minibatches": 0}, "minibatches must be at least 1"),
        ({"minibatches": 3}, r"streams \(64\) must be divisible by minibatches \(3\)"),
        ({"batch": 50, "minibatches": 4}, r"batch \(50\) must be divisible by minibatches \(4\)"),
        ({"batch": 128}, "128 fresh trajectories"),
        ({"learning_rate": 0.0}, "learning_rate must be greater than 0"),
        ({"adam_b1": 1.0}, "adam_b1 must be at least 0 and less than 1"),
        ({"slow_decay": 2.0}, "slow_decay must lie between 0 and 1"),
        ({"clip_gradient": -1.0}, "clip_gradient must not be negative"),
        ({"replay": 0.5, "capacity": 100, "warmup": 200}, r"warmup \(200\) must not exceed .*\(128\)"),
    ],
)
def test_bad_learning(changes: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_settings(dataclasses.replace(Learning(), **changes), Network())


@pytest.mark.parametrize("changes", [{"hidden": (64, 0)}, {"channels": (-1,)}, {"core_size": 0}, {"action_hidden": (0,)}])
def test_bad_network(changes: dict) -> None:
    with pytest.raises(UserError, match="must be at least 1"):
        check_settings(Learning(), dataclasses.replace(Network(), **changes))


@pytest.mark.parametrize("changes", [{"steps": 0}, {"seeds": -1}, {"seed": -1}, {"seed": 2**32}, {"checkpoint_minutes": 0.0}])
def test_bad_run(changes: dict) -> None:
    with pytest.raises(UserError, match="must"):
        check_bounds(TrainConfig(env="catch", **changes))


@pytest.mark.parametrize("cls", [command.config for command in COMMANDS.values()] + [Learning, Network, Discovery])
def test_every_number_has_bounds(cls: type) -> None:
    for field in dataclasses.fields(cls):
        if field_types(cls)[field.name] in (int, float, tuple[int, ...]):
            assert field.metadata["bounds"], f"{field.name} may be negative: give its field a bound"


def test_a_setting_that_was_renamed_is_understood_by_its_old_name(tmp_path, capsys) -> None:
    assert flags("catch --first-values zero").overrides == {"value_init": "zero"}
    assert capsys.readouterr().err == "note: --first-values is called --value-init now\n"
    assert flags("catch --first-values=zero").overrides == {"value_init": "zero"}
    capsys.readouterr()
    assert build_train({"env": "catch", "first_values": "zero"}).overrides == {"value_init": "zero"}
    assert capsys.readouterr().err == "note: the setting first_values is called value_init now\n"
    (tmp_path / "old.yaml").write_text("env: catch\nfirst_values: zero\n")
    assert build_train({"preset": str(tmp_path / "old.yaml")}).overrides == {"value_init": "zero"}
    assert capsys.readouterr().err == ""  # files are read silently
    with pytest.raises(UserError, match="value_init expects one of drawn, zero"):
        build_train({"env": "catch", "first_values": "one"})


def test_words_of_other_libraries() -> None:
    assert matches("--lr", known_keys(TrainConfig)) == ["learning_rate"]
    assert matches("--num-envs", known_keys(TrainConfig)) == ["streams"]
    assert matches("--qqqqqq", known_keys(TrainConfig)) == []


@pytest.mark.parametrize(
    ("preset", "env", "frames"), [("procgen", "envpool/BigfishHard-v0", 4), ("crafter", None, 32), ("sokoban", None, 4)]
)
def test_presets_of_the_paper_stack_frames_as_it_does(preset, env, frames):
    given = {"preset": f"paper-{preset}"} | ({"env": env} if env else {})
    assert build_train(given).env_options["stack"] == frames


@pytest.mark.parametrize("preset", ["paper-procgen", "paper-procgen-mini"])
def test_procgen_is_trained_on_the_papers_500_levels(preset):
    assert build_train({"preset": preset, "env": "envpool/BigfishHard-v0"}).env_options["num_levels"] == 500


def test_nethack_is_the_challenge_whose_scores_the_paper_reports():
    assert build_train({"preset": "paper-nethack"}).env == "nethack/NetHackChallenge-v0"


@pytest.mark.parametrize(("word", "meant"), [("clasic", "classic"), ("Grids", "grids"), ("mini-atar", "minatar")])
def test_a_misspelt_suite_is_refused(word: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"unknown suite or environment '{word}'; did you mean '{meant}'"):
        check_suite(word, SUITES)


@pytest.mark.parametrize("name", ["catch:rows=5,columns=5", "catc", "CartPole-v1", "gymnax/CartPole-v1", "clasic.py:Env", "grids"])
def test_what_may_be_an_environment_is_left_to_the_registry(name: str) -> None:
    check_suite(name, SUITES)
