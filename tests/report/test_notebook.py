"""What a notebook shows: every number in its place, every name escaped, the picture inside."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

import rulax
from rulax.commands.compare.show import Comparison
from tests.report.folders import comparison, train_folder
from tests.report.test_page import EVIL, Reader

PICTURE = re.compile(r'src="data:image/png;base64,([^"]+)"')


def picture(html: str) -> bytes:
    (found,) = PICTURE.findall(html)
    return base64.b64decode(found, validate=True)


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [[re.sub("<[^>]+>", "", each) for each in re.findall(r"<t[hd]>(.*?)</t[hd]>", row)] for row in rows]


def test_a_run_shows_each_seed_and_its_curve(tmp_path: Path) -> None:
    html = rulax.load(train_folder(tmp_path, seeds=3))._repr_html_()
    assert cells(html) == [["seed", "final return"], ["0", "1.000"], ["1", "2.000"], ["2", "3.000"]]
    assert picture(html).startswith(b"\x89PNG")
    assert len(html) < 60_000
    assert "catch · ppo · 3 seeds" in html


def test_a_comparison_shows_returns_with_intervals_and_curves() -> None:
    found = comparison({"ppo": 0.5, "disco": 0.9}, {"catch": "training", "gymnax/CartPole-v1": "held out"})
    html = Comparison(Path("nowhere"), found)._repr_html_()
    head, catch, cartpole = cells(html)
    assert head == ["environment", "ppo", "disco", "untrained"]
    assert catch == ["catch", "0.500 [0.400, 0.600]", "0.900 [0.800, 1.000]", "−0.600"]
    assert cartpole[0] == "gymnax/CartPole-v1"
    assert html.count("<b>0.900</b>") == 2  # the best of each environment
    assert picture(html).startswith(b"\x89PNG")


def test_what_is_unfinished_says_so() -> None:
    found = comparison({"ppo": 0.5, "disco": 0.9}, {"catch": "training"}, finished=False)
    found["environments"][0] |= {"complete": False, "random": None}
    found["statistics"] = {"environments": {}, "overall": None, "held_out": None}
    for cell in found["cells"]:
        cell["curve"] = {"steps": [], "mean": [], "low": [], "high": []}
    assert cells(Comparison(Path("nowhere"), found)._repr_html_())[1] == ["catch", "unfinished", "unfinished", "–"]


@pytest.mark.parametrize("kind", ["run", "comparison"])
def test_names_are_escaped(tmp_path: Path, kind: str) -> None:
    if kind == "run":
        html = rulax.load(train_folder(tmp_path, env=EVIL))._repr_html_()
    else:
        html = Comparison(Path("nowhere"), comparison({EVIL: 0.5, "ppo": 0.9}, {EVIL: "training"}))._repr_html_()
    assert EVIL not in html
    known = {"div", "p", "b", "br", "small", "table", "thead", "tbody", "tr", "th", "td", "img", "span"}
    assert {tag for tag, _ in Reader(html).elements} <= known
