"""`rulax study`: a tiny one through the real command, extended later; its plan, its numbers and its mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

import rulax
from rulax.commands.cli import main
from rulax.commands.study.plan import make_plan, read_plan, study_names
from rulax.commands.study.results import difference, mean
from rulax.records.rows import read_rows
from tests.commands.bad_lines import refused_in_one_sentence

PLAN: dict[str, Any] = {
    "settings": {
        "envs": ["catch:rows=3,columns=3"],
        "rule": "lpg",
        "rule_options": {"hidden": 4, "prediction_size": 4},
        "agents": 1,
        "steps": 2,
        "window": 1,
        "validation_unroll": 4,
        "lifetimes": [3],
        "streams": 2,
        "unroll": 8,
        "batch": 0,
        "replay": 0.0,
        "hidden": [8],
        "critic_hidden": [8],
        "evaluate_every": 2,
        "evaluation_seeds": 1,
        "evaluation_updates": 8,
    },
    "held_out": ["catch:rows=3,columns=4"],
    "points": {"whole": {"label": "all of it"}, "slow": {"settings": {"meta_learning_rate": 1e-6}, "paper": "worse"}},
    "questions": [{"title": "Does the meta-learning rate matter?", "points": ["whole", "slow"], "paper": "It does."}],
}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.timeout(900)
def test_a_study_is_made_point_by_point_and_extended(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine.yaml").write_text("# Mine\n" + yaml.safe_dump(PLAN, sort_keys=False))
    assert main(["study", "mine.yaml", "--seeds", "1", "--points", "slow", "--out", "run"]) == 0
    shown = capsys.readouterr()
    assert "Does the meta-learning rate matter?" in shown.out
    assert "1/2 all of it · seed 0" in shown.err
    found = json.loads((tmp_path / "run/study.json").read_text())
    assert found["finished"]
    assert list(found["points"]) == ["whole", "slow"]
    made = [point["discoveries"][0] for point in found["points"].values()]
    assert all(set(row["families"]) == {"catch:rows=3,columns=4"} for row in made)
    # Points differ in nothing else.
    settings = [json.loads((tmp_path / "run" / row["folder"] / "config.json").read_text()) for row in made]
    rates = [each["discovery"].pop("meta_learning_rate") for each in settings]
    for part in ("discovery", "learning", "network", "sizes", "constants"):
        assert settings[0][part] == settings[1][part]
    assert rates[1] == 1e-6 != rates[0]
    assert found["points"]["whole"]["held_out"] == {"value": made[0]["held_out"], "low": None, "high": None, "number": 1}
    page = (tmp_path / "run/report.html").read_text()
    assert "Does the meta-learning rate matter?" in page
    assert "It does." in page
    # Baselines are measured once where evaluations are the same.
    shared = json.loads((tmp_path / "run/baselines.json").read_text())
    assert [*map(len, shared.values())] == [2]
    # More seeds extend it, and what there is stays as it is.
    before = (tmp_path / "run" / made[0]["folder"] / "metrics.jsonl").read_bytes()
    assert main(["study", "--resume", "run", "--seeds", "2", "--quiet"]) == 0
    assert capsys.readouterr().out.strip() == "run"
    again = json.loads((tmp_path / "run/study.json").read_text())
    assert again["made"] == 4
    assert (tmp_path / "run" / made[0]["folder"] / "metrics.jsonl").read_bytes() == before
    assert [len(read_rows(tmp_path / "run" / row["folder"])) > 0 for row in again["points"]["slow"]["discoveries"]] == [True, True]
    assert main(["runs", "run"]) == 0
    assert "4 of 4 discoveries" in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_means_have_students_intervals_and_differences_are_between_the_same_seeds() -> None:
    values = [0.2, 0.5, 0.9, 0.4]
    found = mean([*values, None])
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert [found["value"], found["low"], found["high"]] == pytest.approx([0.5, low, high])
    assert found["number"] == 4

    def point(scores: dict[int, float]) -> dict[str, Any]:
        rows = [
            {"seed": seed, "finished": True, "held_out": score, "validation": score, "training": None}
            for seed, score in scores.items()
        ]
        return {"discoveries": rows}

    above = difference(point({0: 0.5, 1: 0.8, 2: 9.0}), point({1: 0.6, 0: 0.4}))
    assert above["held_out"]["value"] == pytest.approx(0.15)
    assert above["held_out"]["number"] == 2
    assert above["training"]["value"] is None


@pytest.mark.parametrize("name", study_names())
def test_the_packages_studies_can_be_begun(name: str) -> None:
    """Every point becomes a discovery whose settings are known, and held-out families are in none of them."""
    from rulax.commands.discover.setup import check_held_out, make_families
    from rulax.commands.study.cells import make_cells
    from rulax.commands.study.settings import StudyConfig

    plan = read_plan(name)
    held_out = make_families(plan.held_out)
    cells = make_cells(plan, StudyConfig(study=name, seeds=1), Path("unnamed"))
    assert [cell.point.name for cell in cells] == list(plan.points)
    for cell in cells:
        training = make_families(cell.config.envs)
        check_held_out(training, make_families(cell.config.validation))
        check_held_out(training | make_families(cell.config.validation), held_out)
    if name == "scaling":  # as many agents, however many families they are in
        first = plan.questions[0]
        sizes = [len(cell.config.envs) * cell.config.overrides["agents"] for cell in cells if cell.point.name in first.points]
        assert sizes == [16] * 5
        assert [len(cell.config.envs) for cell in cells if cell.point.name in first.points] == [1, 2, 4, 8, 16]


def changed(**parts: Any) -> dict[str, Any]:
    return PLAN | parts


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (changed(points={}), "names no points"),
        (changed(settings=3), "settings must be names with values, not 3"),
        (changed(points={"whole": {"setings": {}}}), "unknown name 'setings'; did you mean 'settings'?"),
        (changed(pionts={}), "unknown name 'pionts'; did you mean 'points'?"),
        (changed(questions=[]), "no question is about the point 'whole'"),
        (changed(questions=[{"title": "?", "points": ["whole", "slwo"]}]), "there is no point 'slwo'; did you mean 'slow'?"),
        (
            changed(questions=[{"title": "?", "points": ["whole", "slow"], "axis": "size"}]),
            "every point on the axis size needs an x",
        ),
        (changed(held_out=["catch:rows=3,columns=3"]), "in which the rule is discovered: it would not be held out"),
        (changed(points=PLAN["points"] | {"slow": {"settings": {"windw": 3}}}), "point slow: unknown setting 'windw'"),
    ],
)
def test_a_bad_plan_is_one_sentence(content: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(rulax.UserError, match=re.escape(words)):
        rulax.study(content, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("study", "which study? one of ablations, scaling"),
        ("study ablation", "unknown study 'ablation'; did you mean 'ablations'?"),
        ("study nothing.yaml", "study nothing.yaml cannot be read"),
        ("study ablations --points whole no_zy", "has no point 'no_zy'; did you mean 'no_yz'?"),
        ("study ablations --seeds 0", "seeds"),
        ("study --resume nowhere", "nowhere"),
    ],
)
def test_a_bad_line_is_one_sentence(line: str, words: str, tmp_path: Path, capsys: Any) -> None:
    refused_in_one_sentence(line, words, tmp_path, capsys)


def test_what_there_is(capsys: Any) -> None:
    assert main(["study", "list"]) == 0
    shown = capsys.readouterr().out
    assert "no_bootstrap" in shown
    assert "families_16" in shown
    assert make_plan("mine", PLAN).only(("slow",)).points.keys() == {"whole", "slow"}
