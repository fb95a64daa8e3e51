"""The bookkeeping of `benchmarks/roads.py`: what a cell is asked for, which cells are run, and what the table says of them."""

import importlib.util
import json
import sys

import numpy as np
import pytest

from rulax.commands.discover.settings import build_discover
from tests.shared import ROOT


@pytest.fixture(scope="module")
def roads():
    spec = importlib.util.spec_from_file_location("roads", ROOT / "benchmarks" / "roads.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cell(kind, road, seed, validation, seconds=5.0):
    counts = {"meta_steps": 3, "agent_updates": 1000 * (seed + 1), "environment_steps": 2_000_000, "cpu_seconds": seconds}
    return {"kind": kind, "road": road, "seed": seed, "seconds": seconds, "validation": validation, "training": 0.0, **counts}


def test_every_cell_can_be_asked_for(roads):
    for kind in roads.KINDS:
        for road in (roads.START, *roads.ROADS):
            config = build_discover(roads.settings_of(kind, road, 2))
            assert (config.rule or "disco", config.seed) == (kind, 2)
            assert config.overrides["estimator"] == (road if road != roads.START else "evolution")
    # Exactly at PPO every meta-gradient is zero, so that this road alone begins beside it.
    assert roads.settings_of("lpo", "backprop", 0)["rule_options"] == {"first_std": 0.1}
    assert "rule_options" not in roads.settings_of("lpo", "evolution", 0)


def test_a_cell_of_other_seconds_is_not_taken_for_one_of_these(roads, tmp_path):
    path = tmp_path / "lpg-pes-0.json"
    assert roads.wanted(path, 5.0)
    path.write_text(json.dumps(cell("lpg", "pes", 0, 1.0)))
    assert not roads.wanted(path, 5.0)
    with pytest.raises(SystemExit, match=r"a cell of 5.0 seconds, not 120: give --seconds 5.0, or another folder"):
        roads.wanted(path, 120.0)
    path.write_text(json.dumps({"validation": 1.0}))  # of before cells said it
    with pytest.raises(SystemExit, match="another folder"):
        roads.wanted(path, 120.0)


def test_the_loop_runs_what_is_missing_and_nothing_else(roads, tmp_path, monkeypatch, capsys):
    ran = []

    def run(kind, road, seed, seconds, folder):
        ran.append((kind, road, seed, seconds, folder.name))
        return cell(kind, road, seed, 0.5, seconds)

    monkeypatch.setattr(roads, "run", run)
    (tmp_path / "lpg-pes-1.json").write_text(json.dumps(cell("lpg", "pes", 1, 0.9)))
    record = tmp_path / "all.json"
    words = ["roads.py", str(tmp_path), "--seconds", "5", "--seeds", "2", "--kinds", "lpg", "--record", str(record)]
    monkeypatch.setattr(sys, "argv", words)
    roads.main()
    # Seed by seed, so that a run that is stopped has something of every road.
    expected = [(road, seed) for seed in (0, 1) for road in ("start", "backprop", "evolution", "pes")]
    assert [each[1:3] for each in ran] == [each for each in expected if each != ("pes", 1)]
    assert {each[3:] for each in ran} == {(5.0, "baselines_lpg")}
    assert len(json.loads(record.read_text())) == 8
    ran.clear()
    roads.main()
    assert ran == []
    values = np.array([0.5, 0.9])
    half = 12.7062 * values.std(ddof=1) / np.sqrt(2)
    assert f"| lpg | pes | 0.70 ± {half:.2f} | 0.50, 0.90 | 2.0 M | 1,500 |" in capsys.readouterr().out


def test_the_record_is_of_one_length(roads):
    cells = json.loads((ROOT / "benchmarks" / "records" / "roads.json").read_text())
    assert {each["seconds"] for each in cells} == {120.0}
    assert {(each["kind"], each["road"]) for each in cells} == {(k, r) for k in roads.KINDS for r in (roads.START, *roads.ROADS)}
