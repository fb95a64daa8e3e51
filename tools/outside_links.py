"""A Markdown extension for the site: links that leave docs/ lose their link, or lead to the repository.

Pages link to source files (`../rulax/types.py`), which works wherever the repository is browsed. A site holds docs/ alone, so there
such a link would be dead. Zensical refuses links to Markdown outside of docs/ before it asks us: name such files, do not link.
Images and links within docs/ are left to the site's builder, which checks them.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

ROOT = Path(__file__).resolve().parents[1]


class Rewrite(Treeprocessor):
    """Rewrites the links of one page."""

    def __init__(self, md: Markdown, source: str):
        super().__init__(md)
        self.source = source.rstrip("/")

    def run(self, root: Element) -> None:
        """Turn each link that climbs out of docs/ into plain text, or into a link to `source`."""
        for link in root.iter("a"):
            outside = re.match(r"(?:\.\./)+((?:rulax|examples|benchmarks|tests)/[^#]*)", link.get("href", ""))
            if outside is None:
                continue
            if not (ROOT / outside[1]).exists():
                raise ValueError(f"a page links to {outside[1]}, which is not there")
            if self.source:
                link.set("href", f"{self.source}/{outside[1]}")
            else:
                link.tag = "span"
                link.attrib.clear()


class OutsideLinks(Extension):
    """Option `source`: where the repository's files can be browsed, such as `https://host/owner/rulax/blob/main`."""

    def __init__(self, **options: str):
        self.config = {"source": ["", "address of the repository's files; empty: no link"]}
        super().__init__(**options)

    def extendMarkdown(self, md: Markdown) -> None:
        """Called by Markdown; after inline parsing (20), before MkDocs looks at links (0)."""
        md.treeprocessors.register(Rewrite(md, self.getConfig("source")), "outside_links", 5)


def makeExtension(**options: str) -> OutsideLinks:
    """The entry point that Markdown looks for."""
    return OutsideLinks(**options)
