"""The page as text: one whole file, nothing from a network, and no word of a user that could become markup or a script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rulax.report import blocks as b
from rulax.report.page import as_json, render, write_page

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\u2028\"'&"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Checks that elements close in order, and keeps what a test asks for."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.scripts: list[tuple[dict, str]] = []
        self.elements: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attributes), ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        else:
            self.text.append(data)

    @property
    def data(self):
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "data"))


def every_block(word: str) -> list[b.Block]:
    curves = b.Curves(word, word, word, [b.Line(word, [1, 2], [0.5, None], [0.1, 0.2], [0.6, float("nan")])], word)
    intervals = b.Intervals(word, word, [b.IntervalRow(word, 1.0, 0.5, 1.5, word)], word)
    heatmap = b.Heatmap(word, [word], [word], [[0.5]], word)
    return [
        b.Text(word, [word]),
        b.Notice(word, [word]),
        b.Facts([b.Fact(word, word, word)]),
        curves,
        intervals,
        b.Bars(word, word, [word], [1.0], word),
        heatmap,
        b.Panels(word, [curves, intervals, heatmap], word),
        b.Table(word, [word, "number"], [[word, 1.5], [word, None]], word),
        b.KeyValues(word, [(word, word)]),
        b.Commands(word, [word], [word]),
        b.Interactive(word, "<p>ours</p>", "root.dataset.ran = data.word.length;", {"word": word}, word),
    ]


def test_words_of_a_user_stay_words() -> None:
    page = Reader(render(EVIL, EVIL, every_block(EVIL), unfinished=EVIL))
    assert [attributes.get("id") for attributes, _ in page.scripts] == [None, "data", None]  # ours, and no more
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "base", "form")]
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
    assert sum(EVIL in text for text in page.text) >= 12
    assert page.data[0]["lines"][0]["name"] == EVIL  # nothing is lost either


def test_what_an_evil_name_looks_like_in_data() -> None:
    text = as_json({EVIL: [EVIL]})
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text) == {EVIL: [EVIL]}


def test_numbers_in_data() -> None:
    text = as_json({"a": np.array([1.23456789, np.nan, np.inf]), "b": (np.int64(7), np.float32(0.5)), "c": True, "d": 10**12})
    assert json.loads(text) == {"a": [1.23457, None, None], "b": [7, 0.5], "c": True, "d": 10**12}


def test_only_our_scripts_may_run_and_nothing_is_fetched() -> None:
    text = render("t", "s", every_block("word"))
    page = Reader(text)
    policy = next(attributes["content"] for tag, attributes in page.elements if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    allowed = set(re.findall(r"'(sha256-[^']+)'", policy))
    ran = [script for attributes, script in page.scripts if attributes.get("type") != "application/json"]
    assert allowed == {"sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in ran}
    for tag, attributes in page.elements:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert set(re.findall(r"https?://[^\s'\"]+", text)) == {"http://www.w3.org/2000/svg"}  # the name of a format, not an address
    assert "@import" not in text
    assert "url(" not in text


def test_tables_sort_numbers_as_numbers() -> None:
    text = render("t", "s", [b.Table("scores", ["rule", "score"], [["ppo", 0.25], ["disco", None], ["q", 1234567.0]], strong=(1,))])
    cells = [(attributes.get("class"), attributes["data-value"]) for tag, attributes in Reader(text).elements if tag == "td"]
    assert cells == [(None, "ppo"), ("number", "0.25"), (None, "disco"), ("number", ""), (None, "q"), ("number", "1234567.0")]
    assert ">0.250<" in text
    assert ">1.23e+06<" in text
    assert ">–<" in text


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    path = write_page(tmp_path / "report.html", "first", "", [])
    before = path.read_bytes()

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_page(path, "second", "", [])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_an_unfinished_page_says_so_twice() -> None:
    text = render("t", "s", [], unfinished="It stopped at step 5.")
    assert text.count("unfinished") >= 2
    assert "It stopped at step 5." in text
    assert "not finished" not in render("t", "s", [])


def test_blocks_that_are_none_are_refused() -> None:
    with pytest.raises(TypeError, match="int"):
        render("t", "s", [3])  # type: ignore[list-item]


def test_making_pages_does_not_wait_for_jax() -> None:
    code = "import sys, rulax.report.train, rulax.report.discover, rulax.report.compare\n"
    code += "sys.exit(bool({'jax', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
