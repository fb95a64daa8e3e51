"""Pages of training and discovery: what is in the folder is on the page, also when the folder is incomplete."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rulax.errors import UserError
from rulax.report import parts
from rulax.report.discover import write_discover_page
from rulax.report.train import write_train_page
from tests.report.folders import discover_folder, train_folder, train_row
from tests.report.test_page import Reader


def chart(page: Reader, title: str) -> dict:
    return next(item for item in page.data if item.get("title") == title)


def test_the_page_of_a_training_run(tmp_path: Path) -> None:
    path = write_train_page(train_folder(tmp_path / "run"))
    assert path == tmp_path / "run" / "report.html"
    text = path.read_text()
    page = Reader(text)
    mean, *seeds = chart(page, "Learning curve")["lines"]
    steps = np.arange(100, 1001, 100)
    assert mean["x"] == steps.tolist()
    np.testing.assert_allclose(mean["mean"], steps / 1000 + 1, rtol=1e-5)
    np.testing.assert_allclose(mean["low"], steps / 1000, rtol=1e-5)  # three seeds: from the worst to the best
    np.testing.assert_allclose(mean["high"], steps / 1000 + 2, rtol=1e-5)
    assert len(seeds) == 3
    panels = {panel["title"]: panel for panel in chart(page, "What else was measured")["panels"]}
    assert set(panels) == {"loss", "kl"}
    assert panels["kl"]["lines"][0]["x"] == steps[1:].tolist()  # not measured at the first point
    assert "The same throughout, so not drawn: entropy 0.500." in " ".join(page.text)
    words = " ".join(page.text)
    assert "2.000" in words  # the last tenth is its last row: 1, 2, 3 for the three seeds
    assert "3,000" in words  # environment steps of all seeds
    assert "18 CPU seconds" in words
    assert "0.005" in words  # core-hours
    assert "rulax train --resume" in words
    assert "unfinished" not in text.partition("</head>")[2].partition("<script")[0]


def test_the_plain_and_the_discounted_return_are_told_apart(tmp_path: Path) -> None:
    folder = train_folder(tmp_path / "run")
    assert "discounted" not in " ".join(Reader(write_train_page(folder).read_text()).text)  # nothing to explain
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row | {"return": row["step"] / 2}) + "\n" for row in rows))
    page = Reader(write_train_page(folder).read_text())
    assert "return, discounted" in [panel["title"] for panel in chart(page, "What else was measured")["panels"]]
    assert "the plain sum of the rewards of a whole episode" in " ".join(page.text)


def test_a_damaged_line_is_skipped_counted_and_named(tmp_path: Path) -> None:
    other = json.dumps(train_row(550, [1.0]))  # of a run with other seeds
    extra = ('{"step": 55', "not json", "[1, 2]", '{"step": "six"}', other)
    text = write_train_page(train_folder(tmp_path / "run", extra=extra)).read_text()
    assert "5 lines of metrics.jsonl could not be read" in text
    assert "Line 6, 7, 8, 9, 10:" in text
    assert chart(Reader(text), "Learning curve")["lines"][0]["x"] == list(range(100, 1001, 100))
    clean = write_train_page(train_folder(tmp_path / "clean")).read_text()
    assert "could not be read" not in clean
    folder = train_folder(tmp_path / "bytes")
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 1100, "\xff\xfe')
    assert "1 line of metrics.jsonl could not be read" in write_train_page(folder).read_text()


def test_an_unfinished_or_empty_run_has_a_page_that_says_so(tmp_path: Path) -> None:
    text = write_train_page(train_folder(tmp_path / "run", finished=False)).read_text()
    assert "stopped at step 1,000 of 1,000" in text
    folder = train_folder(tmp_path / "empty", finished=False)
    (folder / "metrics.jsonl").write_text("")
    (folder / "summary.json").unlink()
    text = write_train_page(folder).read_text()
    assert "stopped at step 0 of 1,000" in text
    assert "not recorded" in text
    with pytest.raises(UserError, match="holds no run"):
        write_train_page(tmp_path)


def test_a_hostile_name_of_an_environment(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    page = Reader(write_train_page(train_folder(tmp_path / "run", env=name)).read_text())
    assert len(page.scripts) == 3
    assert name in "".join(page.text)


def test_the_page_of_a_discovery(tmp_path: Path) -> None:
    page = Reader(write_discover_page(discover_folder(tmp_path / "run")).read_text())
    lines = chart(page, "Score of the rule")["lines"]
    named = {line["name"]: line for line in lines if line["style"] == "line"}
    assert named["training, mean of 2"]["mean"] == [0, 0.25, 0.5, 0.75, 1]
    assert named["validation"]["mean"] == [0, 0.125, 0.25, 0.375, 0.5]
    assert {line["name"]: line["mean"][0] for line in lines if line["style"] == "reference"} == {"untrained": 0, "actor_critic": 1}
    panels = chart(page, "Return in each family")["panels"]
    assert [panel["title"] for panel in panels] == ["catch:rows=5", "grid/delayed", "catch (validation)"]
    lived = next(line for line in panels[0]["lines"] if line["name"] == "the population meanwhile")
    assert lived["x"] == [5, 15, 25, 35, 45]
    outer = {panel["title"]: panel for panel in chart(page, "The outer loop")["panels"]}
    assert outer["meta gradient norm of mean"]["log"] == "y"
    assert outer["outer loss"]["log"] == ""  # it is negative
    words = " ".join(page.text)
    assert "12,345" in words
    assert "0.987" in words
    assert "45 meta-steps by backprop in catch" in words
    assert "|estimator|backprop|" in "|".join(page.text)
    assert "rulax train catch --rule" in words


def test_where_the_time_of_agents_on_the_host_goes(tmp_path: Path) -> None:
    """Rows hold means over the meta-steps since the row before: here 5, then 10 of each."""
    folder = discover_folder(tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seconds = {"seconds_acting": 2.0, "seconds_waiting": 1.0, "seconds_differentiating": 3.0, "seconds_compiling": 0.0}
    meta = [row | seconds for row in rows if row["kind"] == "meta"]
    meta[0]["seconds_compiling"] = 9.0  # a mean over five meta-steps: 45 in all
    rest = [row for row in rows if row["kind"] != "meta"]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*meta, *rest]))
    page = Reader(write_discover_page(folder).read_text())
    shares = chart(page, "Where the time goes")
    assert shares["values"] == pytest.approx([90 / 180, 45 / 180, 45 / 180])
    assert "Differentiating took 2:15" in " ".join(page.text)


def test_a_discovery_in_environments_of_ones_own(tmp_path: Path) -> None:
    folder = discover_folder(tmp_path / "run")
    for path in folder.glob("*.json*"):
        path.write_text(path.read_text().replace("catch:rows=5", "mine.py:Narrow:rows=5").replace('"catch"', '"mine.py:Narrow"'))
    page = Reader(write_discover_page(folder).read_text())
    titles = [panel["title"] for panel in chart(page, "Return in each family")["panels"]]
    assert titles == ["Narrow:rows=5", "grid/delayed", "Narrow (validation)"]  # called as they call themselves
    assert "rulax train mine.py:Narrow --rule" in " ".join(page.text)  # and found again


def test_a_discovery_that_was_stopped_before_its_first_evaluation(tmp_path: Path) -> None:
    folder = discover_folder(tmp_path / "run", finished=False)
    for name in ("metrics.jsonl", "summary.json", "baselines.json", "rule.safetensors"):
        (folder / name).unlink()
    page = write_discover_page(folder).read_text()
    assert "stopped at meta-step 0 of 45" in page
    assert "--rule" not in page  # there is none yet


def test_the_band_is_the_bootstrap_interval_of_scipy() -> None:
    values = np.random.default_rng(1).normal(size=(3, 8))
    low, high, what = parts.seed_band(values)
    assert "bootstrap" in what
    for row in range(3):
        theirs = stats.bootstrap((values[row],), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(0))
        np.testing.assert_allclose([low[row], high[row]], theirs.confidence_interval, atol=0.05)
    values[1, 2:] = np.nan  # two seeds are known: the interval lies between them
    low, high, _ = parts.seed_band(values)
    assert min(values[1, :2]) <= low[1] < high[1] <= max(values[1, :2])


def test_bands_of_few_seeds() -> None:
    values = np.array([[1.0, 3.0, np.nan]])
    low, high, what = parts.seed_band(values)
    assert (low[0], high[0]) == (1, 3)
    assert "worst to the best" in what
    low, _, what = parts.seed_band(values[:, :1])
    assert len(low) == 0
    assert "One seed" in what
