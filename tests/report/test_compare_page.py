"""The page of a comparison: every number of compare.json in its place, and no verdict that the intervals do not allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rulax.errors import UserError
from rulax.report.compare import write_compare_page
from tests.report.folders import comparison
from tests.report.test_page import EVIL, Reader
from tests.report.test_run_pages import chart

ENVS = {"catch": "training", "gymnax/CartPole-v1": "held out"}


def page_of(folder: Path, scores: dict[str, float], finished: bool = True, **changes) -> Reader:
    folder.mkdir(exist_ok=True)
    (folder / "compare.json").write_text(json.dumps(comparison(scores, ENVS, finished) | changes))
    return Reader(write_compare_page(folder).read_text())


def test_everything_is_in_its_place(tmp_path: Path) -> None:
    page = page_of(tmp_path, {"ppo": 0.5, "disco": 0.9})
    first, second = chart(page, "Learning curves")["panels"]
    assert [first["title"], second["title"]] == ["catch", "gymnax/CartPole-v1 · held out"]
    assert [(line["name"], line["mean"]) for line in first["lines"]] == [
        ("ppo", [0, 0.5]),
        ("disco", [0, 0.9]),
        ("untrained", [-0.6]),
    ]
    panels = chart(page, "Scores over 2 environments")["panels"]
    assert [panel["title"] for panel in panels] == ["interquartile mean", "median", "mean", "optimality gap (less is better)"]
    assert panels[0]["rows"][1] == {"name": "disco", "value": 0.9, "low": 0.8, "high": 1.0, "note": "", "published": False}
    assert chart(page, "Scores over the environments held out")
    matrix = chart(page, "Probability of improvement")
    assert matrix["values"] == [[None, 0.3], [0.7, None]]  # the row's rule over the column's
    assert chart(page, "Performance profile")["lines"][1]["mean"] == [1, 0.9, 0]
    words = " ".join(page.text)
    for said in ("only 5 seeds", "held out", "2 trials for every rule", "chosen", "rulax compare catch --rules ppo", "about disco"):
        assert said in words
    assert "2,000" in words  # environment steps of a rule in both environments
    assert "Cost of discovery" not in words
    bold = [tag for tag, _ in page.elements if tag == "b"]
    assert len(bold) == 2  # the best rule of each environment


def test_published_figures_have_marks_of_another_kind(tmp_path: Path) -> None:
    nobody = {"scores": {}, "statistics": {}, "achievements": None, "note": ""}
    published = [
        nobody
        | {"agent": "DQN", "steps": 5_000_000, "source": "somebody 2019", "returns": {"catch": 7.0}, "statistics": {"iqm": 2.5}},
        nobody | {"agent": "human", "steps": None, "source": "others 2015", "returns": {"catch": 9.0}, "note": "with two hands"},
    ]
    suite = {"name": "minatar", "summary": "", "published": True}
    page = page_of(tmp_path, {"ppo": 0.5, "disco": 0.9}, published=published, suite=suite, budget="mini", eval_episodes=0)
    first, second = chart(page, "Learning curves")["panels"]
    marks = [(line["name"], line["x"], line["mean"], line["style"]) for line in first["lines"][3:]]
    # Who was trained is a point at its budget; who was not is a level.
    assert marks == [("DQN (5M): 7", [5_000_000], [7.0], "published"), ("human", [0], [9.0], "reference")]
    assert len(second["lines"]) == 3  # nobody has published a return there
    rows = chart(page, "Scores over 2 environments")["panels"][0]["rows"]
    assert [(row["name"], row["published"]) for row in rows] == [("ppo", False), ("disco", False), ("DQN (5M)", True)]
    assert rows[2]["value"] == 2.5
    assert len(chart(page, "Scores over 2 environments")["panels"][1]["rows"]) == 2
    words = " ".join(page.text)
    for said in ("Suite minatar, budget mini", "somebody 2019", "with two hands", "Diamonds: published", "DQN (5M)"):
        assert said in words


def test_crafter_is_shown_by_its_achievements(tmp_path: Path) -> None:
    value = {"value": 0.25, "low": 0.125, "high": 0.5}
    found = {
        "episodes": 20,
        "rates": {"ppo": {"collect_wood": value}},
        "scores": {"ppo": {"value": 4.5, "low": None, "high": None}},
    }
    human = {"agent": "human", "steps": None, "source": "x", "note": "", "returns": {}, "statistics": {}, "achievements": 50.5}
    page = page_of(tmp_path, {"ppo": 0.5}, achievements=found, published=[human], eval_episodes=20)
    rows = chart(page, "Crafter's score: geometric mean of success in per cent")["rows"]
    assert [(row["name"], row["value"], row["published"]) for row in rows] == [("ppo", 4.5, False), ("human", 50.5, True)]
    words = " ".join(page.text)
    assert "collect wood" in words
    assert "mean return of 20 episodes that each agent played after training" in words


def test_it_says_which_return_it_shows(tmp_path: Path) -> None:
    page = page_of(tmp_path, {"ppo": 0.5, "disco": 0.9})
    words = " ".join(page.text)
    assert "Return of training episodes. Mean over seeds" in words
    assert "return of training episodes in the last tenth of the steps" in words


def test_a_verdict_only_where_the_interval_allows_one(tmp_path: Path) -> None:
    close = " ".join(page_of(tmp_path, {"ppo": 0.8, "disco": 0.9}).text)
    assert "disco scores highest, with an interquartile mean of 0.900 (95 %: 0.800 to 1.000). ppo comes next" in close
    assert "nobody can say" in close
    clear = " ".join(page_of(tmp_path, {"ppo": 0.1, "disco": 0.9}).text)
    assert "with probability 0.900 (95 %: 0.700 to 1.100)." in clear
    assert "nobody can say" not in clear
    equal = " ".join(page_of(tmp_path, {"ppo": 0.8, "disco": 0.8}).text)
    assert "ppo and disco score the same, with an interquartile mean of 0.800" in equal
    assert "scores highest" not in equal


def test_one_seed_has_no_intervals_and_no_verdict(tmp_path: Path) -> None:
    found = comparison({"ppo": 0.1, "disco": 0.9}, {"catch": "training"}) | {"seeds": 1}
    text = json.dumps(found)
    bare = json.loads(
        text, object_hook=lambda item: item | {"low": None, "high": None} if isinstance(item.get("value"), float) else item
    )
    (tmp_path / "compare.json").write_text(json.dumps(bare))
    page = Reader(write_compare_page(tmp_path).read_text())
    words = " ".join(page.text)
    assert "another seed might say the opposite" in words
    assert "with probability" not in words
    assert chart(page, "Scores in one environment")["panels"][0]["rows"][0]["low"] is None


def test_where_all_resamples_agree_there_is_no_interval(tmp_path: Path) -> None:
    found = comparison({"ppo": 0.1, "disco": 0.9}, {"catch": "training"})
    for pair in found["statistics"]["overall"]["improvement"]:
        pair["probability"] = {"value": 1.0 if pair["rule"] == "disco" else 0.0, "low": None, "high": None}
    (tmp_path / "compare.json").write_text(json.dumps(found))
    words = " ".join(Reader(write_compare_page(tmp_path).read_text()).text)
    assert "with probability 1.000, and these runs cannot say how surely" in words


def test_the_cost_of_discovery_stands_beside_that_of_training(tmp_path: Path) -> None:
    found = comparison({"ppo": 0.5, "mine": 0.9}, ENVS)
    spent = {"estimator": "pes", "meta_steps": 31, "environment_steps": 45_678, "agent_updates": 910, "cpu_seconds": 11.5}
    found["rules"][1]["discovery"] = spent
    for number, cell in enumerate(found["cells"]):
        cell["updates"] = 100 + number
    said = "|".join(page_of(tmp_path, {"ppo": 0.5, "mine": 0.9}, **found).text)
    assert "|ppo|2,000|202|10|18|" in said  # cells 0 and 2
    assert "|mine|2,000|204|10|18|" in said
    assert "Cost of discovery" in said
    assert "|mine|pes|31|45,678|910|12|" in said
    assert "|ppo|–|–|–|–|–|" in said


def test_one_rule_has_nobody_to_beat(tmp_path: Path) -> None:
    page = page_of(tmp_path, {"ppo": 0.5})
    assert "Probability of improvement" not in " ".join(page.text)
    assert "In short" not in " ".join(page.text)


def test_an_unfinished_comparison(tmp_path: Path) -> None:
    nothing = {"environments": {}, "overall": None, "held_out": None}
    page = page_of(tmp_path, {"ppo": 0.5, "disco": 0.9}, finished=False, statistics=nothing, tuning=None)
    words = " ".join(page.text)
    assert "4 of 4 cells are not trained to their end" in words
    assert "rulax compare --resume" in words


def test_names_are_only_names(tmp_path: Path) -> None:
    page = page_of(tmp_path, {EVIL: 0.5, "ppo": 0.2})
    assert len(page.scripts) == 3


def test_what_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        write_compare_page(tmp_path)
    (tmp_path / "compare.json").write_text("{}")
    with pytest.raises(UserError, match="does not hold the results of a comparison"):
        write_compare_page(tmp_path)
