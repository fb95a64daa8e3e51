"""Pages hang together: all are in the navigation, links, images and anchors resolve, and both kinds of Markdown read them alike."""

from __future__ import annotations

import itertools
import re

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, broken_links, hub_anchor, links, name, prose, site_anchor
from tests.shared import ROOT

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def nav_pages(entries: list) -> list[str]:
    found = []
    for entry in entries:
        for value in entry.values():
            found += nav_pages(value) if isinstance(value, list) else [value]
    return found


def test_every_page_is_in_the_navigation_once():
    assert sorted(nav_pages(CONFIG["nav"])) == sorted(str(path.relative_to(DOCS)) for path in PAGES)


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name)
def test_links_resolve(path):
    assert broken_links(path) == []


def test_a_broken_link_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# Other\n\n## Two words\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n[a](other.md#two-words) [`b`](other.md#three) ![c](no.png) `[d](no.md)` [e](https://x.y)\n\n```\n[f](no.md)\n```\n"
    )
    assert links(prose(page)) == ["other.md#two-words", "other.md#three", "no.png", "https://x.y"]
    assert broken_links(page) == ["page.md: other.md has no heading for #three", "page.md: no.png is not there"]


def test_anchors():
    assert hub_anchor("`rulax bench train`, twice") == site_anchor("`rulax bench train`, twice") == "rulax-bench-train-twice"
    assert hub_anchor("A - B") == "a---b"  # where the two differ, no link may lead
    assert site_anchor("A - B") == "a-b"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_lists_and_tables_begin_after_an_empty_line(path):
    """Repository hosts forgive it, Python-Markdown makes running text of it."""
    lines = ["", *prose(path).splitlines()]
    starts = re.compile(r"([-*+] |\d+\. |\|)")
    for before, line in itertools.pairwise(lines):
        begins = starts.match(line)
        goes_on = not before.strip() or starts.match(before) or before.startswith("  ")
        assert not begins or goes_on, f"{name(path)}: an empty line is missing before {line[:60]!r}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_pages_need_no_other_host_to_be_drawn(path):
    assert not re.search(r"!\[[^\]]*\]\(https?:|<(script|iframe|img)\b", prose(path))
    assert not re.search(r"\$\$|\$\\", prose(path)), "formulas are text here: the site loads no script to typeset them"
