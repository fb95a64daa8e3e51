"""`rulax runs` on folders written by hand: what is listed, skipped and said; then board and Weights & Biases."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rulax.commands.cli import main
from rulax.commands.listing.setup import list_runs
from rulax.records.rows import read_lines, read_rows


def write(folder: Path, config: dict[str, Any], summary: dict[str, Any] | None = None, lines: tuple[str, ...] = ()) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


def trained(env: str, rule: str, steps: int = 1000) -> dict[str, Any]:
    return {"settings": {"env": env, "rule": rule, "seeds": 2, "steps": steps}, "learning": {}}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    good = '{"step": 500, "seconds": 3, "episode_return": 0.25}'
    write(tmp_path / "runs" / "a", trained("catch", "ppo"), {"steps": 1000, "finished": True, "seconds": 9, "final_return": 0.5})
    write(tmp_path / "runs" / "b", trained("catch", "actor_critic"), None, (good, '{"step": 6', "7", good.replace("500", "800")))
    write(tmp_path / "runs" / "c", trained("catch", "q_learning"), {"steps": 1000, "finished": True, "final_return": 0.9})
    write(tmp_path / "runs" / "d" / "deep", {"settings": {"suite": "grids", "steps": 30}, "discovery": {}},
          {"meta_steps": 30, "finished": True, "best": {"validation_score": 0.7}})  # fmt: skip
    comparison = {"kind": "compare", "settings": {"envs": ["catch"], "rules": ["ppo", "disco"], "seeds": 5, "steps": 2000}}
    write(tmp_path / "runs" / "e", comparison)
    write(tmp_path / "runs" / "e" / "cells" / "01-catch-ppo", trained("catch", "ppo"))
    results = {
        "finished": False,
        "statistics": {"overall": {"rules": {"ppo": {"iqm": {"value": 0.8}}, "disco": {"iqm": {"value": 0.3}}}}},
    }
    (tmp_path / "runs" / "e" / "compare.json").write_text(json.dumps(results))
    return tmp_path / "runs"


def test_every_kind_is_one_row(runs: Path) -> None:
    found = {entry["folder"].removeprefix("runs/"): entry for entry in list_runs(Path("runs"))}
    assert list(found) == ["a", "b", "c", "d/deep", "e"]  # the cells of e belong to it
    assert [entry["kind"] for entry in found.values()] == ["train", "train", "train", "discover", "compare"]
    assert [entry["finished"] for entry in found.values()] == [True, False, True, True, False]
    assert (found["b"]["steps"], found["b"]["final_return"], found["b"]["broken"]) == (800, 0.25, [2, 3])
    assert (found["d/deep"]["score"], found["d/deep"]["env"], found["d/deep"]["steps"]) == (0.7, "grids", 30)
    assert (found["e"]["score"], found["e"]["rule"], found["e"]["env"]) == (0.8, "ppo disco", "catch")
    assert [entry["folder"] for entry in list_runs(Path("runs/e"))] == ["runs/e", "runs/e/cells/01-catch-ppo"]


def shown(capsys, *words: str) -> tuple[list[str], str]:
    assert main(["runs", *words]) == 0
    output = capsys.readouterr().out
    rows = [line.split()[0].removeprefix("runs/") for line in output.splitlines()[1:] if line and not line.startswith("note:")]
    return rows, output


def test_choosing_and_sorting(runs: Path, capsys) -> None:
    rows, text = shown(capsys)
    assert rows == ["a", "b", "c", "d/deep", "e"]
    assert text.count("unfinished") == 2
    assert "note: runs/b/metrics.jsonl: 2 broken lines skipped (number 2, 3)" in text
    assert "cannot be compared" not in text  # nobody compares anything here
    assert shown(capsys, "--filter", "kind=train", "finished=yes")[0] == ["a", "c"]
    assert shown(capsys, "--filter", "rule=disco")[0] == ["e"]
    assert shown(capsys, "--filter", "seeds=5")[0] == ["e"]
    assert "no run matches" in shown(capsys, "--filter", "rule=nothing")[1]
    rows, text = shown(capsys, "--sort", "final_return", "--reverse", "--filter", "kind=train")
    assert rows == ["c", "a", "b"]
    assert "cannot be compared" not in text
    rows, text = shown(capsys, "--sort", "score")
    assert rows[:2] == ["d/deep", "e"]
    assert "2 different environments: they cannot be compared" in text
    assert "2 different budgets" in text


def test_what_a_run_is_stays_longer_than_what_it_scored(runs: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    _, text = shown(capsys)
    assert {"env", "rule"} <= set(text.splitlines()[0].split())
    assert "score" not in text.splitlines()[0].split()


def test_the_table_fits_and_names_can_be_copied(runs: Path, capsys, monkeypatch) -> None:
    long = "a-rather-long-environment-and-rule-001"
    write(runs / long, trained("a-rather-long-environment-name:with=options", "ppo"), {"steps": 1000, "final_return": 0.5})
    monkeypatch.setenv("COLUMNS", "80")
    _, text = shown(capsys)
    table = [line for line in text.splitlines() if not line.startswith("note:")]
    assert max(map(len, table)) <= 80
    assert any(line.split()[0] == f"runs/{long}" for line in table)
    assert "final return" in table[0]
    assert "note: broken_lines, score, seconds" in text
    assert Path(table[-1].split()[0]).is_dir()


def test_own_parts_are_called_as_in_their_pages(runs: Path, capsys) -> None:
    write(runs / "own", trained("far/mine.py:Corridor:length=5", "far/mine.py:my_rule"), {"steps": 1000, "final_return": 0.5})
    _, text = shown(capsys)
    (line,) = (line for line in text.splitlines() if line.startswith("runs/own"))
    assert line.split()[2:4] == ["Corridor:length=5", "my_rule"]


def test_csv(runs: Path, capsys) -> None:
    assert main(["runs", "--csv", "out.csv", "--sort", "folder", "--reverse"]) == 0
    with Path("out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["folder"] for row in rows] == [f"runs/{name}" for name in ("e", "d/deep", "c", "b", "a")]
    assert rows[-1]["final_return"] == "0.5"
    assert rows[-2]["broken_lines"] == "2"


def test_what_is_refused(runs: Path, capsys) -> None:
    for line, words in (
        ("--sort colour", "runs have no 'colour'"),
        ("--filter rul=ppo", "did you mean 'rule'?"),
        ("a/x", "is no folder"),
    ):
        assert main(["runs", *line.split()]) == 2
        assert words in capsys.readouterr().err
    assert main(["runs", "--csv", "no/where.csv"]) == 2
    (runs.parent / "empty").mkdir()
    assert main(["runs", "empty"]) == 2
    assert "holds no runs" in capsys.readouterr().err


def test_broken_lines_are_skipped_and_numbered(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"st\n\xff\xfe\n[1]\n{"step": 2}\n{"step": 3')
    assert read_lines(tmp_path) == ([{"step": 1}, {"step": 2}], [2, 3, 4, 6])
    assert read_rows(tmp_path) == [{"step": 1}, {"step": 2}]


def test_board(runs: Path, monkeypatch, capsys) -> None:
    lines: list[list[str]] = []

    def run(line: list[str], check: bool) -> SimpleNamespace:
        lines.append(line)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", run)
    assert main(["board", "runs/a", "--port", "7000"]) == 0
    assert lines[0][1:] == ["-m", "tensorboard.main", "--logdir", "runs/a", "--port", "7000"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    assert main(["board", "runs"]) == 2
    assert "pip install 'rulax[board]'" in capsys.readouterr().err


def test_wandb_hears_what_tensorboard_hears(fake, tmp_path: Path, monkeypatch) -> None:
    started: list[dict[str, Any]] = []
    logged: list[tuple[dict[str, float], int]] = []
    closed: list[bool] = []

    def init(**arguments: Any) -> SimpleNamespace:
        started.append(arguments)
        return SimpleNamespace(log=lambda values, step: logged.append((values, step)), finish=lambda: closed.append(True))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, __spec__=SimpleNamespace()))
    line = ["train", "catch", "--steps", "300", "--seeds", "2", "--out", "here", "--quiet", "--wandb", "project"]
    assert main(line) == 0
    rows = read_rows(tmp_path / "here")
    expected = [(row["step"], row["episode_return"]) for row in rows]
    assert [(step, values["train/episode_return"]) for values, step in logged if "train/episode_return" in values] == expected
    assert started[0]["project"] == "project"
    assert started[0]["config"]["settings"]["env"] == "catch"
    assert closed == [True]
    assert main(["train", "--resume", "here", "--steps", "600", "--quiet"]) == 0
    assert started[1]["id"] == started[0]["id"]  # the same run goes on
    assert started[1]["resume"] == "allow"
    assert main([*line[:-2], "--out", "other"]) == 0
    assert len(started) == 2
