"""Pages about single seeds: what a `SeedRun.story` is, and who writes it down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rulax.files import write_json
from rulax.methods.poet_story import PoetStory, as_record
from rulax.report.page import write_page
from rulax.report.poet import poet_page


def write_story(folder: Path, name: str, story: Any) -> None:
    """Write a story beside the records, as a page (`name`.html) and as data (`name`.json); nothing if it is None."""
    if story is None:
        return
    if not isinstance(story, PoetStory):
        raise TypeError(f"there is no page for a {type(story).__name__}")
    # A name without a dot: those with one are records.
    write_json(folder / f"{name}.json", as_record(story))
    write_page(folder / f"{name}.html", *poet_page(story))
