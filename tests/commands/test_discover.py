"""`rulax discover`: what it accepts, what it leaves behind, and that a run which was stopped in any way goes on exactly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import rulax
from rulax.commands.build import make_recipe
from rulax.commands.cli import main
from rulax.commands.discover.settings import DiscoverConfig, build_discover
from rulax.commands.discover.setup import make_families, prepare_discovery, saved_discovery
from rulax.commands.names import read_spec, split_specs
from rulax.commands.preset_files import preset_names
from rulax.commands.settings import check_bounds
from rulax.envs.base import EnvironmentFailed
from rulax.errors import UserError
from rulax.records import checkpoint
from rulax.records.rows import read_rows
from rulax.rules.lpo_sizes import DriftSizes
from rulax.rules.pretrained import load_rule, save_rule
from rulax.rules.registry import make_rule
from tests.commands.bad_lines import refused_in_one_sentence
from tests.commands.fake_discovery import TINY, install

OPTIONS = [f"{name}={value}" for name, value in TINY.items()]
LINE = ["discover", "catch:rows=5,columns=5,grid/delayed", "--validation", "catch", "--rule-options", *OPTIONS]
LINE += ["--steps", "25", "--evaluate-every", "10", "--quiet"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.build.start_jax", lambda *arguments: None)
    return install(monkeypatch.setattr)


def without_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def assert_same_run(one: Path, other: Path) -> None:
    assert without_time(read_rows(one)) == without_time(read_rows(other))
    for name in ("rule.safetensors", "last.safetensors"):
        jax.tree.map(np.testing.assert_array_equal, load_rule(one / name).params, load_rule(other / name).params)
    ours, theirs = (checkpoint.load(folder / "checkpoint.safetensors") for folder in (one, other))
    assert ours.state.keys() == theirs.state.keys()
    for name in ours.state:
        np.testing.assert_array_equal(ours.state[name], theirs.state[name], err_msg=name)
    np.testing.assert_equal(ours.pending, theirs.pending)
    assert ours.facts["best"] == theirs.facts["best"]


# -- configuration -------------------------------------------------------------------------------------------------------------


def test_families_keep_their_options() -> None:
    parts = ("catch:rows=5", "columns=5,grid/delayed", "bandit/bernoulli:arms=3")
    assert split_specs(parts) == ("catch:rows=5,columns=5", "grid/delayed", "bandit/bernoulli:arms=3")
    assert split_specs(("grid/x:size=(5,7),limit=3,catch",)) == ("grid/x:size=(5,7),limit=3", "catch")
    assert read_spec("grid/x:size=(5,7),limit=3") == ("grid/x:size=(5,7),limit=3", "grid/x", {"size": (5, 7), "limit": 3})
    nested = "grid/x:kinds=[[1,0,0,1],[-1,1,0,2]],height=5"
    assert split_specs((f"{nested},catch",)) == (nested, "catch")
    assert read_spec(nested).options == {"kinds": [[1, 0, 0, 1], [-1, 1, 0, 2]], "height": 5}
    assert read_spec("package:Thing-v0").env == "package:Thing-v0"


@pytest.mark.parametrize("suite", preset_names(suites=True))
def test_suites_of_the_package_are_valid(suite: str) -> None:
    config = build_discover({"suite": suite})
    check_bounds(config)
    make_recipe(config.rule or "disco", config.rule_options, config.overrides)
    assert config.evaluate_every >= 1
    if any(spec.startswith("envpool/") for spec in config.envs):
        pytest.importorskip("envpool", reason="320 MB that only `make test-adapters` installs")
    assert make_families(config.envs + config.validation)


def test_flags_win_over_a_file_and_a_file_over_the_suite(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("window: 3\nagents: 9\nenvs: [chain/short]\nrule_options: {hidden: 5}\n")
    config = build_discover({"suite": "grids", "preset": str(tmp_path / "mine.yaml"), "agents": 7})
    assert (config.overrides["window"], config.overrides["agents"], config.envs) == (3, 7, ("chain/short",))
    assert config.rule_options["hidden"] == 5
    assert config.rule_options["bins"] == build_discover({"suite": "grids"}).rule_options["bins"]
    assert build_discover({"suite": "catch"}).validation == ()  # the suite's own was chosen for its own environments


def test_a_rule_to_start_from_brings_its_sizes() -> None:
    config = build_discover({"suite": "grids", "init": "disco103", "rule_options": {"discount": 0.9}})
    assert config.rule_options == {"discount": 0.9}


def test_another_kind_of_rule_brings_its_own_agents(tmp_path: Path) -> None:
    """What the suite says of agents and sizes was chosen for meta-networks; its families and its outer loop stay."""
    suite, config = build_discover({"suite": "grids"}), build_discover({"suite": "grids", "rule": "lpo", "unroll": 16})
    assert (suite.rule, config.rule) == ("", "lpo")
    assert (config.envs, config.validation, config.steps) == (suite.envs, suite.validation, suite.steps)
    assert config.rule_options == {}
    assert config.overrides["lifetimes"] == suite.overrides["lifetimes"]
    assert config.overrides["unroll"] == 16
    assert not {"streams", "replay", "hidden"} & set(config.overrides)
    assert build_discover({"suite": "grids", "rule": "disco"}) == suite
    path = tmp_path / "mine.safetensors"
    save_rule(path, make_rule("lpo", drift_hidden=3).rule.init(jax.random.key(0)), DriftSizes(3))
    further = build_discover({"suite": "grids", "init": str(path)})
    assert (further.rule, further.rule_options) == ("lpo", {})
    with pytest.raises(UserError, match=r"rule disco cannot start from .*, which is of kind lpo"):
        build_discover({"suite": "grids", "init": str(path), "rule": "disco"})


def test_a_drift_is_discovered_saved_used_and_resumed(fake: Any, tmp_path: Path) -> None:
    line = ["discover", "catch:rows=5,columns=5", "--rule", "lpo", "--estimator", "evolution", "--rule-options", "drift_hidden=3"]
    line += ["--evaluate-every", "10", "--quiet"]
    assert main([*line, "--steps", "25", "--out", "whole"]) == 0
    assert main([*line, "--steps", "20", "--out", "parts"]) == 0
    assert main(["discover", "--resume", "parts", "--steps", "25", "--quiet"]) == 0
    assert_same_run(Path("whole"), Path("parts"))
    found = load_rule(Path("whole") / "rule.safetensors")
    assert found.sizes == DriftSizes(3)
    assert found.rule_settings.learning.schedule_steps == 0  # a schedule was as long as a life, and is as long as a training run
    assert found.rule_settings.learning.epochs == make_rule("lpo").learning.epochs
    assert "--rule lpo" in found.about["found"]
    card = (Path("whole") / "rule_card.md").read_text()
    assert "started from | PPO" in card
    assert "estimator | evolution |" in card
    jax.tree.map(np.testing.assert_array_equal, make_rule("whole/rule.safetensors").rule.init(jax.random.key(1)), found.params)


BAD = [
    ("discover grids --rule lpoo", "did you mean 'lpo'?"),
    ("discover grids --rule ppo", "is no kind of rule to discover"),
    ("discover grids --rule lpo", "give --estimator evolution"),
    ("discover grids --rule lpo --estimator evolution --rule-init reference", "which rule lpo does not have"),
    ("discover grids --rule lpo --estimator evolution --rule-options prediction_size=3", "has no option 'prediction_size'"),
    ("discover", "discover in which environments?"),
    ("discover gridz", "did you mean 'grids'?"),
    ("discover grids --windw 3", "did you mean --window?"),
    ("discover grids --window 0", "window must be at least 1"),
    ("discover grids --validation grid/tiny-sparse", "it would not be held out"),
    ("discover catch --validation catch:rows=10", "it would not be held out"),
    ("discover catch,catch:rows=10", "is the same environment as 'catch'"),
    ("discover CartPole-v1,CartPole-v1", "is the same environment as 'CartPole-v1'"),
    ("discover CartPole-v1 --validation CartPole-v1", "it would not be held out"),
    ("discover catch:rowz=5", "has no option 'rowz'"),
    ("discover grids --init ppo", "is hand-designed"),
    ("discover grids --init nowhere.safetensors", "cannot be read"),
    (
        "discover grids --keep-cost 1",
        "keep_cost keeps a rule near the one of --init, and this discovery starts from random",
    ),
    ("discover grids --keep-cost -1", "keep_cost must not be negative"),
    ("discover grids --rule-options hiden=3", "has no option 'hiden'"),
    ("discover grids --lifetimes 0", "lifetimes must be at least 1"),
    ("discover grids --memory both --minibatches 2", "use --memory plain, remat or segments"),
    ("discover nonsense --envs catch", "give one of the two"),
    ("discover --resume nowhere", "holds no run"),
]


@pytest.mark.parametrize(("line", "words"), BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(fake: Any, line: str, words: str, capsys: Any, tmp_path: Path) -> None:
    refused_in_one_sentence(line, words, tmp_path, capsys)


# -- the run folder ------------------------------------------------------------------------------------------------------------


def test_a_run_leaves_its_rule_and_what_is_known_of_it(fake: Any, tmp_path: Path, capsys: Any) -> None:
    assert main([*[word for word in LINE if word != "--quiet"], "--out", "here"]) == 0
    output = capsys.readouterr().out
    assert "rulax train catch --rule here/rule.safetensors" in output
    folder = tmp_path / "here"
    rows = read_rows(folder)
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    assert [row["step"] for row in evaluations] == [0, 10, 20, 25]
    assert [row["step"] for row in rows if row["kind"] == "meta"] == list(range(1, 26))
    best = max(evaluations, key=lambda row: row["validation_score"])
    rule = load_rule(folder / "rule.safetensors")
    assert json.loads(rule.about["scores"])["step"] == best["step"]
    assert best["evaluation_return/catch"] == len("catch") * float(jax.tree.leaves(rule.params)[0].ravel()[0])
    assert json.loads(rule.about["trained_on"]) == ["catch:rows=5,columns=5", "grid/delayed"]
    assert rule.about["licence"] == "Apache-2.0"
    card = (folder / "rule_card.md").read_text()
    assert f"meta-step {best['step']} of 25" in card
    assert "mean score in the validation families" in card
    assert (folder / "curve.png").stat().st_size > 10_000
    page = (folder / "report.html").read_text()
    assert "Discovery · catch:rows=5,columns=5,grid/delayed" in page
    assert "(unfinished)" not in page
    assert "mean score in the validation families" in page  # the card that the rule file carries
    assert "25 meta-steps by backprop, " in output.replace("\n", " ")
    assert "estimator | backprop" in card
    assert "25 meta-steps by backprop in catch" in page
    assert json.loads(rule.about["spent"])["estimator"] == "backprop"
    assert set(json.loads((folder / "baselines.json").read_text())) == {"catch:rows=5,columns=5", "grid/delayed", "catch"}
    assert list((folder / "tensorboard").iterdir())
    assert json.loads((folder / "config.json").read_text())["discovery"]["window"] == 10


def test_the_rule_of_the_start_is_evaluated_late_but_as_it_was(fake: Any, tmp_path: Path) -> None:
    assert main([*LINE, "--out", "here", "--evaluate-every", "25"]) == 0
    rows = read_rows(tmp_path / "here")
    assert [(row["kind"], row["step"]) for row in rows[:12]] == [
        *(("meta", n) for n in range(1, 11)),
        ("evaluation", 0),
        ("meta", 11),
    ]
    record = json.loads((tmp_path / "here" / "config.json").read_text())
    untouched = (
        prepare_discovery(saved_discovery(record, {})).discoverer.init(jax.random.key(record["settings"]["seed"])).meta_params
    )
    assert rows[10]["evaluation_return/catch"] == len("catch") * float(jax.tree.leaves(untouched)[0].ravel()[0])


@pytest.mark.parametrize("where", ["run", "measure_baselines"])
def test_an_environment_that_fails_for_good_ends_the_run_in_a_sentence(
    fake: Any, where: str, monkeypatch: Any, tmp_path: Path, capsys: Any
) -> None:
    def fail(*arguments: Any) -> Any:
        raise EnvironmentFailed("an environment had to be restarted too often")

    place = {"run": "tests.commands.fake_discovery.FakeEvaluation.run"}
    with monkeypatch.context() as broken:
        broken.setattr(place.get(where, f"rulax.commands.discover.evaluations.{where}"), fail)
        assert main([*LINE, "--out", "here"]) == 2
    assert "discovery stopped: an environment had to be restarted too often; the last good state" in capsys.readouterr().err
    # What was made before the evaluation is kept, and the run goes on from there.
    assert [row["step"] for row in read_rows(tmp_path / "here") if row["kind"] == "meta"] == list(range(1, 11))
    assert main(["discover", "--resume", "here", "--quiet"]) == 0
    assert [row["step"] for row in read_rows(tmp_path / "here") if row["kind"] == "meta"] == list(range(1, 26))


def test_without_validation_the_card_says_so(fake: Any, tmp_path: Path) -> None:
    run = rulax.discover(["catch", "grid/delayed"], steps=3, rule_options=TINY, quiet=True)
    assert run.rule_path == Path("runs/discover-catch-grid-delayed-001/rule.safetensors")
    assert "no family was held out" in (run.folder / "rule_card.md").read_text()
    assert run.scores["validation"] is None
    assert set(run.scores["families"]) == {"catch", "grid/delayed"}
    assert len(run.plot().axes) == 3
    assert run.rows[-1]["kind"] == "evaluation"


# -- stopping and going on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", [1, 10, 14])
def test_interrupted_and_resumed_is_uninterrupted(fake: Any, monkeypatch: Any, tmp_path: Path, stop_at: int, capsys: Any) -> None:
    monkeypatch.setattr("rulax.commands.discover.run.ROWS", 8)  # rows of three meta-steps, so that one is unfinished
    assert main([*LINE, "--out", "whole"]) == 0
    fake.on_step = lambda step: signal.raise_signal(signal.SIGTERM) or time.sleep(0.05) if step == stop_at else None
    assert main([*LINE, "--out", "parts"]) == 130
    assert f"stopped at meta-step {stop_at} of 25; everything is saved" in capsys.readouterr().err
    fake.on_step = lambda step: None
    assert main(["discover", "--resume", "parts"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_killed_and_resumed_is_uninterrupted(fake: Any, tmp_path: Path) -> None:
    assert main([*LINE, "--out", "whole"]) == 0
    command = [sys.executable, "-m", "tests.commands.fake_discovery", *LINE, "--out", str(tmp_path / "parts")]
    environment = {**os.environ, "SLOW_STEPS": "0.1", "JAX_PLATFORMS": "cpu", "RULAX_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment)
    folder = tmp_path / "parts"
    while process.poll() is None and not (folder.exists() and [row for row in read_rows(folder) if row["step"] == 13]):
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert checkpoint.load(folder / "checkpoint.safetensors").facts["step"] == 10  # rows 11 to 13 will be rewritten
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "meta", "st')  # as a kill in the middle of a line leaves it
    assert main(["discover", "--resume", str(folder), "--quiet"]) == 0
    assert_same_run(tmp_path / "whole", folder)


def test_a_longer_run_goes_on_where_a_shorter_one_ended(fake: Any, tmp_path: Path, capsys: Any) -> None:
    assert main([*LINE, "--out", "here", "--steps", "20"]) == 0
    assert main(["discover", "--resume", "here"]) == 2
    assert "is finished, after 20 meta-steps" in capsys.readouterr().err
    assert main(["discover", "--resume", "here", "--steps", "25"]) == 0
    assert main([*LINE, "--out", "whole"]) == 0
    assert_same_run(tmp_path / "here", tmp_path / "whole")


def test_a_resumed_run_says_which_settings_differ(fake: Any, tmp_path: Path, capsys: Any) -> None:
    assert main([*LINE, "--out", "here"]) == 0
    assert main(["discover", "--resume", "here", "--steps", "30", "--window", "3", "--agents", "4"]) == 2
    assert "window is 10 there and not 3" in capsys.readouterr().err  # agents is 4 there too
    assert main(["discover", "--resume", "here", "--steps", "30", "--reward-scale", "10"]) == 2
    assert "reward_scale is 1.0 there and not 10.0" in capsys.readouterr().err
    path = tmp_path / "here" / "config.json"
    record = json.loads(path.read_text())
    record["discovery"]["window"] = 7
    path.write_text(json.dumps(record))
    assert main(["discover", "--resume", "here", "--steps", "30"]) == 2
    assert "other settings than its config.json: window is 10 there and not 7" in capsys.readouterr().err


def test_bad_meta_gradients_are_counted_and_at_last_stop_the_run(fake: Any, tmp_path: Path, capsys: Any) -> None:
    fake.bad = (3, 12)
    assert main([*LINE, "--out", "here"]) == 0
    assert json.loads((tmp_path / "here" / "summary.json").read_text())["bad_agents"] == 2
    assert main([*LINE, "--out", "there", "--most-bad", "1"]) == 2
    error = capsys.readouterr().err
    assert "discovery stopped at meta-step 12: 2 meta-gradients were not finite numbers" in error
    assert checkpoint.load(tmp_path / "there" / "checkpoint.safetensors").facts["step"] == 10
    assert main(["discover", "--resume", "there", "--most-bad", "5"]) == 0
    assert_same_run(tmp_path / "here", tmp_path / "there")


def test_every_setting_has_one_name() -> None:
    from rulax.commands.discover.settings import PARTS
    from rulax.commands.fields import field_types

    names = [name for part in (*PARTS, DiscoverConfig) for name in field_types(part)]
    assert len(names) == len(set(names))
