"""Reads the pages as text: headings with their anchors, links, sections. No package is needed for it."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from tests.shared import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.DOTALL | re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """A page without its blocks of code; indented blocks stay, nothing in ours looks like a link."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def links(text: str) -> list[str]:
    """Targets of all links and images, but not of what stands between backquotes."""
    return LINK.findall(re.sub(r"`[^`\n]*`", "code", text))


def headings(path: Path) -> list[str]:
    return re.findall(r"^#{1,6} +(.*?)\s*$", prose(path), re.MULTILINE)


def hub_anchor(heading: str) -> str:
    """The anchor that repository hosts give a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def site_anchor(heading: str) -> str:
    """The anchor that Python-Markdown, hence the site, gives it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def sections(path: Path) -> dict[str, str]:
    """A page's second-level headings, in order, and what stands under each."""
    parts = re.split(r"^## +(.*?)\s*$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def broken_links(path: Path) -> list[str]:
    """What is wrong with a page's relative links, in sentences."""
    wrong = []
    for target in links(prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.exists():
            wrong.append(f"{name(path)}: {target} is not there")
        elif not found.is_relative_to(ROOT):
            wrong.append(f"{name(path)}: {target} leaves the repository")
        elif anchor and not any(hub_anchor(each) == site_anchor(each) == anchor for each in headings(found)):
            wrong.append(f"{name(path)}: {name(found)} has no heading for #{anchor}")
    return wrong
