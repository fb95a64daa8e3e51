"""Comparisons with a small fake trainer: what is in the folder, going on after a stop, and every bad input in one sentence."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

import rulax
from rulax.commands.cells import SCORE, TUNE, CellsProgress
from rulax.commands.cli import main
from rulax.commands.compare.cells import WITHIN_BUDGET, plan
from rulax.commands.compare.provenance import cell_command, compare_command
from rulax.commands.compare.run import compare_from
from rulax.commands.compare.settings import CompareConfig, build_compare, role_of, roles, settings_of, trials
from rulax.commands.compare.setup import fresh
from rulax.commands.compare.show import Comparison
from rulax.commands.flags import make_parser, parse
from rulax.commands.progress import Silent, Status
from rulax.commands.resume import differences
from rulax.envs.suites import SUITES
from rulax.errors import Interrupted, UserError
from rulax.evaluation import statistics as st
from rulax.records.rows import final_returns, read_rows
from rulax.rules.base import Recipe
from rulax.settings import Learning, Network
from rulax.text import count
from tests.commands.bad_lines import refused_in_one_sentence
from tests.commands.conftest import FakeTrainer
from tests.report.folders import comparison

LINE = ["compare", "catch", "cartpole", "--rules", "ppo", "actor_critic", "--seeds", "5", "--steps", "500"]


class Biased(FakeTrainer):
    """Returns that rise with the rule and are best for a learning rate of 0.003, so that something can be found out."""

    def __init__(self, config: Any, learning: Learning, *others: Any):
        super().__init__(config.seeds, config.steps, *others)
        self.bias = {"untrained": 0.0, "ppo": 40.0}.get(config.rule, 20.0)
        self.bias -= 5 * abs(np.log10(learning.learning_rate / 3e-3)) * (config.rule != "untrained")
        self.start = config.seed

    def init(self, key: jax.Array) -> Any:
        return super().init(jax.random.fold_in(key, int(self.bias)))

    def advance(self, state: Any) -> Any:
        state, metrics = super().advance(state)
        return state, metrics | {"episode_return": metrics["episode_return"] + self.bias * metrics["episodes"]}


@pytest.fixture
def small(fake: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    recipe = Recipe(None, Learning(streams=2, unroll=5), Network())
    monkeypatch.setattr("rulax.commands.compare.cells.untrained_recipe", lambda config: recipe)
    monkeypatch.setattr("rulax.commands.compare.cells.UNTRAINED_STEPS", (200, 200))
    monkeypatch.setattr("rulax.report.plot.save_figure", lambda *arguments: None)  # a quarter of a second for each cell
    fake.made = []

    def make_trainer(environment: Any, recipe: Any, config: Any) -> Biased:
        fake.made.append(config)
        bad = fake.bad_at if config.rule == "ppo" else None
        return Biased(config, recipe.learning, bad, fake.on_chunk)

    monkeypatch.setattr("rulax.commands.build.make_trainer", make_trainer)
    return fake


def results(folder: str) -> dict[str, Any]:
    return json.loads((Path(folder) / "compare.json").read_text())


def without_time(value: Any) -> Any:
    """Costs differ between two runs of the same thing, and the folder has another name."""
    if isinstance(value, dict):
        return {
            name: without_time(each) for name, each in value.items() if name not in ("cost", "seconds", "cpu_seconds", "core_hours")
        }
    return [without_time(each) for each in value] if isinstance(value, list) else value


def test_a_comparison_is_complete(small, tmp_path: Path, capsys) -> None:
    assert main(LINE) == 0
    folder = tmp_path / "runs" / "compare-catch-001"
    found = results(str(folder))
    assert found["finished"]
    assert found["warnings"] == []
    assert len(small.made) == 6  # every cell is built once
    assert [(cell["env"], cell["rule"]) for cell in found["cells"]] == [
        ("catch", "ppo"), ("catch", "actor_critic"), ("cartpole", "ppo"), ("cartpole", "actor_critic"),
    ]  # fmt: skip
    # The numbers again, from the metrics of the cells, and by the functions that test_statistics.py checks.
    returns = {}
    for cell in found["cells"]:
        returns[cell["env"], cell["rule"]] = final_returns(read_rows(folder / cell["folder"]))
        assert cell["final_returns"] == returns[cell["env"], cell["rule"]]
        assert len(cell["curve"]["mean"]) == len(cell["curve"]["low"]) == len(cell["curve"]["steps"]) == 50
        assert all(
            low <= mean <= high for low, mean, high in zip(*(cell["curve"][n] for n in ("low", "mean", "high")), strict=True)
        )
        assert cell["cpu_seconds"] > 0
        assert cell["environment_steps"] == 2500
        assert cell["updates"] == 250  # of 2 x 5 steps each
    for env, path in zip(found["environments"], sorted((folder / "untrained").iterdir()), strict=True):
        rows = read_rows(path)
        episodes = np.array([row["episodes_per_seed"] for row in rows])
        assert env["random"] == pytest.approx(np.average([row["return_per_seed"] for row in rows], weights=episodes))
    scores = {}
    for rule in ("ppo", "actor_critic"):
        columns = []
        for env in found["environments"]:
            best = max(np.mean(returns[env["name"], each]) for each in ("ppo", "actor_critic"))
            assert env["reference"] == pytest.approx(best)
            assert env["reference_is"] == "best rule (ppo)"
            columns.append((np.array(returns[env["name"], rule]) - env["random"]) / (best - env["random"]))
        scores[rule] = np.stack(columns, 1)
        iqm = found["statistics"]["overall"]["rules"][rule]["iqm"]
        expected = st.interval(st.interquartile_mean, scores[rule])
        assert (iqm["value"], iqm["low"], iqm["high"]) == pytest.approx(tuple(map(float, expected)))
    (pair, _) = found["statistics"]["overall"]["improvement"]
    assert pair["probability"]["value"] == 1.0
    assert pair["paired"]["pairs"] == 10
    assert pair["paired"]["p_rank"] == pytest.approx(2 / 2**10)
    comparison = Comparison.load(folder)
    np.testing.assert_allclose(comparison.scores["ppo"], scores["ppo"])
    np.testing.assert_array_equal(comparison.returns["ppo"][:, 0], returns["catch", "ppo"])
    output = capsys.readouterr()
    assert "0 is the return of untrained agents, 1 is the best rule's mean" in output.out.replace("\n", " ")
    assert "1/6 catch · untrained" in output.err
    assert "6/6 cartpole · actor_critic" in output.err
    assert "rulax compare catch cartpole" in found["commands"][0]
    assert "interquartile mean" in comparison.table
    assert ["ppo", "5k", "500", str(count(sum(each["cpu_seconds"] for each in found["cells"] if each["rule"] == "ppo")))] in [
        line.split() for line in comparison.table.splitlines()
    ]
    assert "finding the rules" not in comparison.table  # nobody found them


@pytest.mark.parametrize("stop_at", [1, 30, 75])
def test_stopped_and_gone_on_is_the_same(small, tmp_path: Path, stop_at: int, capsys) -> None:
    assert main([*LINE, "--out", "whole", "--quiet"]) == 0
    assert capsys.readouterr().out == "whole\n"
    chunks = []

    def stop(count: int) -> None:
        chunks.append(count)
        if len(chunks) == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    small.on_chunk = stop
    assert main([*LINE, "--out", "parts", "--quiet"]) == 130
    assert "rulax compare --resume parts" in capsys.readouterr().err
    before = results("parts")
    assert not before["finished"]
    assert "unfinished" in before["warnings"][-1] + before["warnings"][0]
    small.on_chunk = None
    made = len(small.made)
    assert main(["compare", "--resume", "parts", "--seeds", "5", "--rules", "ppo", "actor_critic", "--quiet"]) == 0
    assert len(small.made) - made <= 7  # finished cells are not built again
    one, other = without_time(results("whole")), without_time(results("parts"))
    for found in (one, other):
        del found["command"]
    assert one == other
    assert main(["compare", "--resume", "parts", "--quiet"]) == 0  # nothing is left to do
    assert without_time(results("parts")) | {"command": 0} == other | {"command": 0}


def test_going_on_keeps_the_record_of_the_settings(small, tmp_path: Path) -> None:
    line = ["compare", "catch:rows=3,columns=4", "--rules", "ppo", "--seeds", "1", "--steps", "100", "--quiet"]
    assert main([*line, "--out", "here"]) == 0
    before = json.loads((tmp_path / "here" / "config.json").read_text())
    assert main(["compare", "--resume", "here"]) == 0
    assert json.loads((tmp_path / "here" / "config.json").read_text()) == before
    assert results("here")["settings"]["envs"] == ["catch:rows=3,columns=4"]


def test_a_changed_configuration_is_refused_by_its_keys(small, tmp_path: Path, capsys) -> None:
    (tmp_path / "rule.safetensors").write_bytes(b"one")
    line = ["compare", "catch", "--rules", "ppo", "rule.safetensors", "--steps", "100", "--seeds", "2", "--out", "here", "--quiet"]
    assert main(line) == 0
    capsys.readouterr()
    assert main(["compare", "--resume", "here", "--seeds", "3", "--steps", "100", "--hidden", "7"]) == 2
    error = capsys.readouterr().err
    assert "other settings, which a resumed run keeps: seeds is 2 there and not 3, hidden is not set there and not 7;" in error
    assert main(line) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main(["train", "--resume", "here"]) == 2
    (tmp_path / "rule.safetensors").write_bytes(b"two")
    assert main(["compare", "--resume", "here"]) == 2
    assert "rule.safetensors has changed" in capsys.readouterr().err
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text('{"settings": {}}')
    assert main(["compare", "--resume", "plain"]) == 2
    assert "plain holds a training run, not a comparison; go on with it by: rulax train --resume plain" in capsys.readouterr().err


def test_tuning_is_fair_and_uses_seeds_of_its_own(small, tmp_path: Path) -> None:
    found = rulax.compare(
        ["catch"], rules=["ppo", "actor_critic"], seeds=2, steps=100, tune="lr=3e-4,3e-3,3e-2", tune_seeds=3, out="t"
    )
    tuned = found.results["tuning"]
    assert len(tuned["trials"]) == 3
    trained = [config for config in small.made if config.rule != "untrained"]
    trials_made, scored = trained[:6], trained[6:]
    assert sorted((config.rule, config.overrides["learning_rate"]) for config in trials_made) == sorted(
        (rule, rate) for rule in ("ppo", "actor_critic") for rate in (3e-4, 3e-3, 3e-2)
    )
    assert {config.seed for config in trials_made}.isdisjoint({config.seed for config in scored})
    assert [config.overrides for config in scored] == [WITHIN_BUDGET | {"learning_rate": 3e-3}] * 2
    assert [rule["settings"] for rule in found.results["rules"]] == [WITHIN_BUDGET | {"learning_rate": 3e-3}] * 2
    assert tuned["rules"]["ppo"]["scores"][1] == max(tuned["rules"]["ppo"]["scores"]) == 1.0
    assert "best of 3 trials" in found.table
    small.made.clear()
    rulax.compare(resume="t")
    assert [config for config in small.made if config.rule != "untrained"] == []


def test_an_agent_that_breaks_ends_its_cell_only(small) -> None:
    small.bad_at = 7
    found = rulax.compare(["catch"], rules=["ppo", "actor_critic"], seeds=5, steps=200, out="here")
    assert found.finished
    assert any("catch · ppo: training stopped" in text and "counts as untrained" in text for text in found.results["warnings"])
    np.testing.assert_allclose(found.scores["ppo"], 0.0, atol=1e-12)
    assert found.scores["actor_critic"].mean() == pytest.approx(1.0)


def test_stated_references(small) -> None:
    found = rulax.compare(["catch:rows=5,columns=5", "cartpole"], rules=["ppo"], seeds=2, steps=100, out="here",
                          reference={"catch:rows=5,columns=5": 100, "cartpole": -1e9})  # fmt: skip
    first, second = found.results["environments"]
    assert (first["reference"], first["reference_is"]) == (100.0, "stated")
    assert second["reference_is"] == "one unit of return"
    assert any("no better than an untrained agent" in text for text in found.results["warnings"])
    assert "1 is the stated reference" in found.results["normalisation"]


def test_published_axes(small, monkeypatch) -> None:
    monkeypatch.setattr(
        "rulax.commands.compare.cells.ends", lambda env, options: ("human-normalised", -3.0, 5.0) if env == "catch" else None
    )
    found = rulax.compare(["catch:rows=5,columns=5", "cartpole"], rules=["ppo"], seeds=2, steps=100, out="here")
    assert "with one rule there is nothing to compare" in found.results["warnings"][0]
    first, second = found.results["environments"]
    assert (first["reference"], first["reference_is"]) == (5.0, "published (human-normalised)")
    assert second["reference_is"] == "best rule (ppo)"
    returns = np.array(found.results["cells"][0]["final_returns"])
    np.testing.assert_allclose(found.scores["ppo"][:, 0], (returns + 3) / 8)
    assert "; as published for catch:rows=5,columns=5, 0 is random play" in found.results["normalisation"]


def test_scores_of_noise_are_called_noise(small, monkeypatch) -> None:
    monkeypatch.setattr(Biased, "advance", FakeTrainer.advance)  # nobody learns anything
    found = rulax.compare(["catch"], rules=["ppo", "actor_critic"], seeds=5, steps=200, out="here")
    assert any("mostly noise" in text or "no rule learned anything" in text for text in found.results["warnings"])


def test_one_seed_has_no_interval(small) -> None:
    found = rulax.compare(["catch"], rules=["ppo", "actor_critic"], seeds=1, steps=100, out="here")
    assert found.results["statistics"]["overall"]["rules"]["ppo"]["mean"]["low"] is None
    assert "no intervals" in found.results["warnings"][0]
    assert "[" not in found.table.split("untrained\n")[1].split("\n")[0]


def test_interrupted_from_python_holds_what_is_there(small) -> None:
    sent: list[int] = []

    def stop(count: int) -> None:  # once: a second signal ends the process at once, as it should
        if len(small.made) == 4 and not sent:
            sent.append(count)
            os.kill(os.getpid(), signal.SIGTERM)

    small.on_chunk = stop
    with pytest.raises(Interrupted) as stopped:
        compare_from({"envs": ("catch", "cartpole"), "rules": ("ppo",), "steps": 100, "seeds": 5, "out": "here", "quiet": True})
    assert isinstance(stopped.value.run, Comparison)
    assert "no environment is finished yet" in stopped.value.run.table


def test_time_left() -> None:
    cells = plan(build_compare({"envs": "catch", "rules": "ppo actor_critic disco", "steps": 1000, "seeds": 2}), Path("x"))
    progress = CellsProgress(Silent(), cells[1:])
    assert progress.left(None, 3.0) is None  # nothing has been measured
    progress.enter(0)
    assert progress.left(10.0, 5.0) is None  # nobody knows how long the other rules take
    progress.leave(20.0)
    progress.enter(1)
    shown: list[Status] = []
    progress.shown.update = shown.append  # type: ignore[assignment, method-assign]
    progress.update(Status(400, 1000, ["return 0.5"], 7.0))
    assert (shown[0].step, shown[0].total) == (1400, 3000)
    assert shown[0].words() == ["return 0.5", "0:07 left in this cell"]
    progress.leave(30.0)
    progress.enter(2)
    assert progress.left(100.0, 20.0) == 100


def test_time_left_after_trials() -> None:
    values = {"envs": "catch", "rules": "ppo", "steps": 1000, "seeds": 2, "tune": "lr=1e-3,1e-2", "tune_seeds": 1}
    cells = plan(build_compare(values), Path("x"))[1:]  # two trials of one seed, then two seeds
    progress = CellsProgress(Silent(), cells)
    assert progress.left(10.0, 5.0) == 10 + 15 + 30  # 5 seconds of 15 are over; the last cell has twice the work
    progress.leave(20.0)
    progress.enter(1)
    assert progress.left(None, 5.0) == 15 + 40


# -- names ---------------------------------------------------------------------------------------------------------------------


def from_line(line: str) -> CompareConfig:
    return build_compare(parse(make_parser("rulax compare", CompareConfig, ""), CompareConfig, shlex.split(line)))


def test_commands_make_the_same_again() -> None:
    line = (
        "catch:rows=5,columns=5 grids --rules ppo disco:no_yz --seeds 3 --steps 10k --seed 4 --hidden 8 8 --no-activate-last "
        "--tune lr=1e-3,1e-2 unroll=4,8 --tune-seeds 2 --reference catch:rows=5,columns=5=1 --task random"
    )
    config = from_line(line)
    assert len(trials(config)) == 4
    assert len(config.envs) == 1 + len(SUITES["grids"].environments)
    again = from_line(compare_command(config).removeprefix("rulax compare "))
    assert settings_of(again) == settings_of(config)
    assert differences(settings_of(again), json.loads(json.dumps(settings_of(config)))) == ""
    assert from_line("catch --rules ppo --seeds 3 cartpole").envs == ("catch", "cartpole")
    assert from_line("--seeds 3 catch --rules ppo").envs == ("catch",)
    assert from_line("catch --seeds 3 --rules ppo").steps == 500_000
    assert from_line("catch --rules ppo disco103:no_yz").steps == 250_000


def test_cells_share_their_budget_and_no_folder() -> None:
    config = from_line("catch cartpole --rules a/rule.npz b/rule.npz --seeds 3 --steps 9k --tune lr=1,2")
    cells = plan(config, Path("x"), {"a/rule.npz": {"learning_rate": 1.0}})
    assert len({cell.folder for cell in cells}) == len(cells) == 2 + 8 + 4
    assert {(cell.config.steps, cell.config.seeds) for cell in cells if cell.purpose == SCORE} == {(9000, 3)}
    assert [cell.config.overrides for cell in cells if cell.purpose == SCORE] == [
        WITHIN_BUDGET | {"learning_rate": 1.0},
        WITHIN_BUDGET,
    ] * 2
    assert {cell.trial for cell in cells if cell.purpose == TUNE} == {0, 1}
    assert cell_command(cells[-1]) == "rulax train cartpole --rule b/rule.npz --seeds 3 --steps 9000 --schedule-steps 0"


def test_roles() -> None:
    found = roles()
    assert found["catch"] == found["grid/random-small"] == "training"
    assert found["grid/step-cost"] == "validation"
    assert "pendulum" not in found
    assert not any(name.startswith("gymnax/") for name in found)
    assert role_of("catch", ["catch:rows=5,columns=5"], ["grid/delayed"]) == "training"
    assert role_of("grid/delayed", ["catch"], ["grid/delayed"]) == "validation"
    assert role_of("cartpole", ["catch"], []) == "held out"


BAD = [
    ("compare", "compare in which environments?"),
    ("compare catch", "which rules?"),
    ("compare catch --rules ppo ppo", "rule 'ppo' occurs twice"),
    ("compare catch grids grid/delayed --rules ppo", "environment 'grid/delayed' occurs twice"),
    ("compare ctach --rules ppo", "unknown environment 'ctach'; did you mean 'catch'"),
    ("compare catch --rules ppo pp0", "unknown rule 'pp0'"),
    ("compare catch --rules disco:no_xyz", "'disco' has no ablation 'no_xyz'; did you mean 'no_yz'"),
    ("compare catch --rules ppo:no_value", "only discovered rules have ablations"),
    ("compare catch --rules ppo --steps 0", "steps must be at least 1"),
    ("compare catch --rules ppo --steps 10", "less than one iteration"),
    ("compare catch --rules ppo --tune 1e-4", "--tune expects KEY=A,B,C"),
    ("compare catch --rules ppo --tune lr=1e-4", "needs at least two different values"),
    ("compare catch --rules ppo --tune colour=1,2", "'colour' is not a setting"),
    ("compare catch --rules ppo --tune lr=a,b", "--tune lr expects a number"),
    ("compare catch --rules ppo --tune lr=-1,1", "learning_rate must be greater than 0"),
    ("compare catch --rules ppo --tune lr=1,2 --learning-rate 3", "learning_rate is set twice"),
    ("compare catch --rules ppo --reference catch", "expects ENV=RETURN"),
    ("compare catch --rules ppo --reference pong=3", "'pong', which is not compared"),
    ("compare --resume nowhere", "nowhere holds no run"),
    ("runs nowhere", "nowhere is no folder"),
    ("board nowhere", "nowhere is no folder"),
    ("train catch --wandb me", "pip install 'rulax[wandb]'"),
]


@pytest.mark.parametrize(("line", "words"), BAD, ids=[line for line, _ in BAD])
def test_one_sentence_and_nothing_on_disk(line: str, words: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    if "wandb" in line:
        monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    refused_in_one_sentence(line, words, tmp_path, capsys)


def test_mistakes_in_python(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="unknown setting 'rulez'"):
        rulax.compare(["catch"], rulez=["ppo"])
    assert fresh({"envs": "catch", "rules": "ppo"})[0].seeds == 5


def test_how_a_rule_was_found_and_what_that_took_stands_in_its_file(small, tmp_path: Path) -> None:
    spent = {"meta_steps": 30, "environment_steps": 12345, "agent_updates": 678, "cpu_seconds": 90.5}
    settings = {"discovery": {"estimator": "evolution", "objective": "policy_gradient", "fitness": "lifetime"}}
    about = {"spent": json.dumps(spent), "settings": json.dumps(settings)}  # as files of before the cost named the estimator
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / "found.safetensors", about)
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / "silent.safetensors", {})
    rules = ["ppo", "found.safetensors", "silent.safetensors"]
    comparison = rulax.compare(["catch"], rules=rules, seeds=2, steps=100, out="here")
    hand, found, silent = (rule["discovery"] for rule in comparison.results["rules"])
    assert hand is silent is None
    assert found == spent | {"estimator": "evolution (fitness lifetime)"}
    told = comparison.table.partition("cost of finding the rules")[2]
    lines = [line.split() for line in told.splitlines()]
    assert ["found.safetensors", "evolution", "(fitness", "lifetime)", "30", "12.3k", "678", "90.5"] in lines
    assert ["ppo", *"-----"] in lines
    page = (tmp_path / "here" / "report.html").read_text()
    assert "Cost of discovery" in page
    assert "evolution (fitness lifetime)" in page


def test_a_narrow_terminal_gets_a_row_for_each_environment_and_rule(tmp_path: Path) -> None:
    found = comparison({"ppo": 0.5, "actor_critic": 0.25, "policy_gradient": 0.125}, {"catch": "training", "cartpole": "held out"})

    def printed(width: int) -> list[str]:
        console = Console(file=io.StringIO(), width=width, highlight=False)
        Comparison(tmp_path, found).print_tables(console)
        return console.file.getvalue().splitlines()  # type: ignore[attr-defined]

    assert any(line.split() == ["environment", "ppo", "actor_critic", "policy_gradient", "untrained"] for line in printed(110))
    narrow = [line.split() for line in printed(60)]
    assert ["catch", "ppo", "0.50", "[0.40,", "0.60]"] in narrow
    assert ["cartpole", "*", "policy_gradient", "0.12", "[0.02,", "0.23]"] in narrow
    assert ["catch", "untrained", "-0.60"] in narrow
    assert ["policy_gradient", "ppo", "0.31", "[0.11,", "0.51]"] in narrow  # 0.5 + (0.125 - 0.5) / 2
    assert ["ppo", "ppo"] not in narrow


def test_only_discovered_rules_have_environments_held_out(small) -> None:
    values = {"envs": ("catch", "pendulum"), "seeds": 2, "steps": 500, "quiet": True}
    for rules, apart in ((("ppo", "actor_critic"), False), (("ppo", "disco"), True)):
        found = compare_from(values | {"rules": rules}).results
        assert bool(found["statistics"]["held_out"]) == any(env["held_out"] for env in found["environments"]) == apart
