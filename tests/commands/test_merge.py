"""`rulax compare --merge`: what was shared out becomes what one comparison would have been, and nothing else is merged."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rulax
from rulax.commands.cli import main
from rulax.errors import UserError
from rulax.records.rows import read_rows
from tests.commands.test_compare import LINE, results, small, without_time  # noqa: F401
from tests.commands.test_suites import SMALL


def content(folder: str) -> dict[str, Any]:
    """All results but time, and the folder's own command."""
    return {name: value for name, value in without_time(results(folder)).items() if name != "command"}


def files(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


@pytest.mark.parametrize("number", [2, 3])
def test_parts_make_the_whole_bit_for_bit(small, tmp_path: Path, number: int, capsys) -> None:  # noqa: F811
    assert main([*LINE, "--out", "whole", "--quiet"]) == 0
    parts = [f"part{n}" for n in range(1, number + 1)]
    trained = 0
    for n, part in enumerate(parts, 1):
        assert main([*LINE, "--part", f"{n}/{number}", "--out", part, "--quiet"]) == 0
        found = results(part)
        assert found["finished"]
        assert f"part {n}/{number}" in found["warnings"][0]
        trained += len(found["cells"])
    assert trained == 4  # each cell once
    before = {part: files(part) for part in parts}
    capsys.readouterr()
    assert main(["compare", "--merge", *reversed(parts), "--out", "merged", "--quiet"]) == 0
    assert capsys.readouterr().out == "merged\n"
    assert content("merged") == content("whole")
    for path in Path("whole").rglob("metrics.jsonl"):
        rows = [without_time(read_rows(folder)) for folder in (path.parent, Path("merged") / path.parent.relative_to("whole"))]
        assert rows[0] == rows[1] != []
    assert {part: files(part) for part in parts} == before
    assert (tmp_path / "merged" / "report.html").exists()
    record = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert record["settings"]["part"] == ""
    assert {each["folder"] for each in record["merged"]} == set(parts)


def test_environments_and_rules_of_several_machines(small) -> None:  # noqa: F811
    settings = {"seeds": 2, "steps": 100}
    whole = rulax.compare(["catch", "cartpole"], rules=["ppo", "actor_critic"], **settings, out="whole")
    rulax.compare(["catch"], rules=["ppo", "actor_critic"], **settings, out="catch", reference={"catch": 100})
    rulax.compare(["cartpole"], rules=["ppo"], **settings, out="ppo")
    rulax.compare(["cartpole"], rules=["actor_critic"], **settings, out="actor_critic")
    found = rulax.merge(["catch", "ppo", Path("actor_critic")], out="merged")
    assert found.finished
    assert (found.environments, found.rules) == (["catch", "cartpole"], ["ppo", "actor_critic"])
    np.testing.assert_array_equal(found.returns["ppo"], whole.returns["ppo"])
    assert [env["reference_is"] for env in found.results["environments"]] == ["stated", "best rule (ppo)"]


def test_what_is_missing_is_trained_by_going_on(small, tmp_path: Path, capsys) -> None:  # noqa: F811
    assert main([*LINE, "--out", "whole", "--quiet"]) == 0
    assert main([*LINE, "--part", "1/2", "--out", "one", "--quiet"]) == 0
    chunks: list[int] = []

    def stop(count: int) -> None:
        chunks.append(count)
        if len(chunks) == 30:
            os.kill(os.getpid(), signal.SIGINT)

    small.on_chunk = stop
    assert main([*LINE, "--part", "2/2", "--out", "two", "--quiet"]) == 130
    small.on_chunk = None
    assert main(["compare", "--merge", "one", "two", "--out", "merged", "--quiet"]) == 0
    assert not results("merged")["finished"]
    made = len(small.made)
    assert main(["compare", "--resume", "merged", "--quiet"]) == 0
    assert len(small.made) - made <= 4
    assert content("merged") == content("whole")


def test_a_cell_that_was_trained_twice_is_taken_once(small, tmp_path: Path) -> None:  # noqa: F811
    settings = {"rules": ["ppo"], "seeds": 2, "steps": 100}
    one = rulax.compare(["catch"], **settings, out="one")
    rulax.compare(["catch"], **settings, out="two")
    merged = rulax.merge(["one", "two"])
    assert merged.folder == Path("runs/compare-catch-merged-001")
    assert without_time(merged.results)["cells"] == without_time(one.results)["cells"]
    metrics = tmp_path / "two" / "cells" / "01-catch-ppo" / "metrics.jsonl"
    *rows, last = metrics.read_text().splitlines()
    metrics.write_text("\n".join([*rows, last.replace('return_per_seed": [', 'return_per_seed": [1')]) + "\n")
    warned = rulax.merge(["one", "two"], out="other").results["warnings"]
    assert any(text == "catch · ppo was trained in one and two; that of one is kept" for text in warned)


def test_other_settings_are_refused_and_nothing_is_lost(small, tmp_path: Path, capsys) -> None:  # noqa: F811
    (tmp_path / "rule.safetensors").write_bytes(b"one")
    line = ["compare", "catch", "--rules", "ppo", "rule.safetensors", "--steps", "100", "--quiet"]
    assert main([*line, "--seeds", "2", "--out", "here"]) == 0
    assert main([*line, "--seeds", "3", "--hidden", "7", "--out", "there"]) == 0
    (tmp_path / "rule.safetensors").write_bytes(b"two")
    assert main([*line, "--seeds", "2", "--out", "changed"]) == 0
    assert main(["compare", "catch", "--rules", "ppo", "--steps", "90", "--seeds", "2", "--out", "short", "--quiet"]) == 0
    before = files(".")
    capsys.readouterr()
    for other, words in {
        "there": "here and there were made with different settings, so nothing was merged: seeds is 2 and 3; hidden is not set",
        "changed": "rule.safetensors is another file",
        "short": "steps is 100 and 90",
    }.items():
        assert main(["compare", "--merge", "here", other, "--out", "merged"]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    for line, words in {
        "--merge here": "--merge needs two folders at least",
        "--merge here ./here": "--merge needs two folders at least",
        "--merge here there --seeds 3": "leave --seeds out",
        "--merge here here/cells/01-catch-ppo": "holds a training run, not a comparison",
        "--merge here here --out there": "--merge needs two folders at least",
    }.items():
        assert main(["compare", *line.split()]) == 2
        assert words in capsys.readouterr().err
    assert files(".") == before
    shutil.copytree("here", "copy")
    with pytest.raises(UserError, match="there already holds a run"):
        rulax.merge(["here", "copy"], out="there")


def test_references_that_disagree_and_other_tunings_are_refused(small) -> None:  # noqa: F811
    settings = {"rules": ["ppo"], "seeds": 2, "steps": 100}
    rulax.compare(["catch"], **settings, reference={"catch": 100}, out="one")
    rulax.compare(["catch", "cartpole"], **settings, reference={"catch": 50}, out="two")
    with pytest.raises(UserError, match="the reference of catch is 100 in one folder and 50 in another"):
        rulax.merge(["one", "two"], out="merged")
    tuned = {"tune": "lr=1e-3,1e-2", "tune_seeds": 1}
    rulax.compare(["catch"], **settings, **tuned, out="three")
    rulax.compare(["cartpole"], **settings, **tuned, out="four")
    with pytest.raises(UserError, match="were tuned in different comparisons, so what they chose cannot be merged"):
        rulax.merge(["three", "four"], out="merged")
    assert not Path("merged").exists()


def test_real_agents_of_two_parts_are_those_of_one_run(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.compare.cells.UNTRAINED_STEPS", (800, 800))
    monkeypatch.setattr("rulax.report.plot.save_figure", lambda *arguments: None)
    settings = {"rules": ["policy_gradient", "actor_critic"], "seeds": 2, "steps": 320, **SMALL, "replay": 0.0}
    whole = rulax.compare(["catch:rows=4,columns=3"], **settings, out="whole")
    for part in ("1/2", "2/2"):
        rulax.compare(["catch:rows=4,columns=3"], **settings, part=part, out=f"part{part[0]}")
    merged = rulax.merge(["part1", "part2"], out="merged")
    for rule in settings["rules"]:
        np.testing.assert_array_equal(merged.scores[rule], whole.scores[rule])
    assert content("merged") == content("whole")
