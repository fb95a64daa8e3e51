"""`rulax discover` in an environment of Gymnasium's beside a compiled one, through the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rulax.commands.cli import main
from rulax.records.rows import read_rows
from tests.commands.bad_lines import refused_in_one_sentence

# LPG's network is the quickest to compile of those that a gradient passes through.
SMALL = ["--rule", "lpg", "--rule-options", "hidden=4", "prediction_size=4"]
SMALL += ["--window", "2", "--agents", "2", "--validation-unroll", "4", "--lifetimes", "3", "--streams", "2", "--unroll", "16"]
SMALL += ["--batch", "2", "--replay", "0.5", "--capacity", "4", "--hidden", "8"]
SMALL += ["--critic-hidden", "8", "--evaluation-seeds", "1", "--evaluation-updates", "8"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.timeout(600)
def test_a_rule_is_discovered_in_gymnasium_and_the_run_goes_on(tmp_path: Path, capsys: Any) -> None:
    line = ["discover", "CartPole-v1,catch:rows=3,columns=3", "--steps", "2", "--evaluate-every", "2", "--out", "run", *SMALL]
    assert main(line) == 0
    shown = capsys.readouterr()
    assert "CartPole-v1: records of a window" in shown.err + shown.out
    rows = read_rows(tmp_path / "run")
    lived = [row for row in rows if row["kind"] == "meta"]
    assert [row["step"] for row in lived] == [1, 2]
    assert all(row["seconds_acting"] > 0 and row["restarts"] == 0 for row in lived)
    assert all(row["meta_gradient_norm_of_mean/CartPole-v1"] > 0 for row in lived)
    scores = json.loads((tmp_path / "run" / "summary.json").read_text())["last"]["scores"]
    assert set(scores) == {"CartPole-v1", "catch:rows=3,columns=3"}
    assert main(["discover", "--resume", "run", "--steps", "3", "--quiet"]) == 0
    assert [row["step"] for row in read_rows(tmp_path / "run") if row["kind"] == "meta"] == [1, 2, 3]
    assert (tmp_path / "run" / "rule.safetensors").stat().st_size > 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("discover CartPole-v1 --estimator evolution", "lives it many times; use backprop or first_order"),
        ("discover CartPole-v1 --objective bootstrap", "use policy_gradient"),
        ("discover CartPole-v7", "CartPole"),
    ],
)
def test_what_the_host_cannot_is_one_sentence(line: str, words: str, tmp_path: Path, capsys: Any) -> None:
    refused_in_one_sentence(line, words, tmp_path, capsys)
