"""A small comparison with the real trainer: its cells are what `rulax train` makes of the commands that it states."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import rulax
from rulax.commands.cli import main

SMALL = {"streams": 4, "unroll": 4, "hidden": 8, "epochs": 1, "minibatches": 1}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rulax.commands.compare.cells.UNTRAINED_STEPS", (8_000, 8_000))
    monkeypatch.setattr("rulax.report.plot.save_figure", lambda *arguments: None)
    return tmp_path


def test_a_cell_is_what_its_command_trains(quick: Path) -> None:
    found = rulax.compare(["catch:rows=4,columns=3"], rules=["policy_gradient"], seeds=2, steps=800, out="here", **SMALL)
    (environment,) = found.results["environments"]
    assert environment["role"] == "training"
    # In 4 x 3 cells the paddle has two moves that count before the ball is down; a uniform policy catches it at 3 to 5 times of 9.
    assert -0.5 < environment["random"] < 0.3
    assert found.returns["policy_gradient"].shape == (2, 1)
    (cell,) = found.results["cells"]
    assert main([*shlex.split(cell["command"])[1:], "--out", "alone", "--quiet"]) == 0
    alone = json.loads((quick / "alone" / "summary.json").read_text())
    np.testing.assert_array_equal(alone["final_return_per_seed"], cell["final_returns"])
    assert len(set(cell["final_returns"])) == 2  # two seeds, two agents
