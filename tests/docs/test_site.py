"""The site is built, strictly, as `make docs` builds it; skipped where the builder is not installed."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, name
from tests.shared import ROOT

pytestmark = pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="no Zensical: pip install 'rulax[docs]'")


def build(folder: Path) -> subprocess.CompletedProcess:
    """A copy is built, so that a test writes nothing into the working tree; links to source files need the files' names only."""
    shutil.copytree(DOCS, folder / "docs")
    shutil.copytree(ROOT / "tools", folder / "tools")
    for part in ("rulax", "examples", "benchmarks", "tests"):
        (folder / part).symlink_to(ROOT / part)
    shutil.copy(ROOT / "mkdocs.yml", folder)
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    result = build(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not re.search("warning|error", result.stdout + result.stderr, re.IGNORECASE), result.stdout + result.stderr
    return folder / "build" / "site"


class Targets(HTMLParser):
    """Collects what a page refers to, and the places in it that can be referred to."""

    def __init__(self, path: Path):
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.places.add(found.get("id") or "")
        if tag == "a" and found.get("href"):
            self.targets.append(found["href"])
        loaded = found.get("src") or (found.get("href") if tag == "link" and found.get("rel") == "stylesheet" else None)
        if loaded:
            self.loaded.append(loaded)


def test_every_page_is_there_and_no_link_is_dead(site):
    pages = {path: Targets(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert {str(path.relative_to(site)) for path in pages} == {str(p.relative_to(DOCS).with_suffix(".html")) for p in PAGES}
    dead = []
    for path, page in pages.items():
        for target in [*page.targets, *page.loaded]:
            file, _, place = target.partition("#")
            if re.match("[a-z]+:", target):
                continue
            found = (path.parent / file).resolve() if file not in ("", ".", "./") else path
            found = found / "index.html" if found.is_dir() else found
            if not found.exists() or (place and found in pages and place not in pages[found].places and not place.startswith("__")):
                dead.append(f"{path.relative_to(site)}: {target}")
    assert dead == []


def test_pages_load_nothing_from_another_host(site):
    for path in site.rglob("*.html"):
        assert [each for each in Targets(path).loaded if re.match("(https?:)?//", each)] == [], path.name


def test_docstrings_are_on_the_page_of_the_python_interface(site):
    text = (site / "api.html").read_text(encoding="utf-8")
    assert ":::" not in text
    for each in ("api.train", "types.Experience", "rules.base.UpdateRule", "values.returns.vtrace"):
        assert f'id="rulax.{each}"' in text


def test_links_to_source_files_are_plain_text_on_the_site(site):
    text = (site / "read_in_this_order.html").read_text(encoding="utf-8")
    assert "rulax/types.py" in text
    assert "../rulax/types.py" not in text


@pytest.mark.parametrize("mistake", ["", "[a](nowhere.md)", "[a](results.md#nowhere)", "[a](../rulax/nowhere.py)"])
def test_only_a_mistake_fails_the_build(tmp_path, mistake):
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "rulax").mkdir()
    (tmp_path / "docs").mkdir()
    for path in PAGES:
        page = tmp_path / name(path)
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"# Page\n\n{mistake if path.name == 'index.md' else ''}\n")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300).returncode != 0
    assert failed == bool(mistake)
