"""The page of a run as it is now, as often as one asks; it is made anew only when a file of the run has changed."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rulax.errors import UserError
from rulax.files.reading import DAMAGE
from rulax.records import folder as folders
from rulax.report.blocks import Block, Commands, Notice
from rulax.report.compare import compare_page
from rulax.report.discover import discover_page
from rulax.report.page import Page, render
from rulax.report.train import train_page

PAGES: dict[str, Callable[[Path], Page]] = {"train": train_page, "discover": discover_page, "compare": compare_page}
WAITING, RUNNING, STOPPED, FINISHED = "waiting", "running", "stopped", "finished"  # words of live.js


class Shown(NamedTuple):
    """A page to be sent."""

    body: bytes
    tag: str  # another one for another page
    age: int  # seconds since the run wrote something


class LivePage:
    """The page of one folder; threads may share it."""

    def __init__(self, folder: Path):
        self.folder, self.lock = folder, threading.Lock()
        self.seen: tuple[tuple[str, int, int], ...] = ()
        self.body, self.tag = b"", ""

    def now(self) -> Shown:
        """The page as the folder is now."""
        with self.lock:
            seen = signature(self.folder)
            if seen != self.seen or not self.body:
                self.body, self.seen = make(self.folder).encode(), seen
                self.tag = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'
            return Shown(self.body, self.tag, max(0, int(time.time() - written(self.folder)[0])))


def make(folder: Path) -> str:
    """The page, with a word for how the run stands."""
    try:
        page = PAGES[folders.read_config(folder)["kind"]](folder)
        render(*page)  # which is what some damage shows in
    # A folder whose first files are still to be written, or one that was damaged or removed while it was watched.
    except (UserError, OSError, *DAMAGE) as error:
        page = Page(folder.name, "", [Notice("There is no page yet", [str(error)])], str(error))
    state = state_of(folder, page)
    if state in (WAITING, RUNNING):
        # How to go on is no advice for a run that is going on: two processes would write into one folder.
        page = page._replace(unfinished="", blocks=[without_resumption(block) for block in page.blocks])
    return render(*page, live=state)


def without_resumption(block: Block) -> Block:
    """The commands of a page, but for the one that goes on; any other block as it is."""
    if not isinstance(block, Commands):
        return block
    kept = [place for place, line in enumerate(block.lines) if " --resume " not in line]
    return Commands(block.title, [block.lines[place] for place in kept], [block.captions[place] for place in kept])


def state_of(folder: Path, page: Page) -> str:
    """How the run stands, as far as its files tell: nothing in them says whether its process still lives."""
    if not page.unfinished:
        return FINISHED
    last, rows = written(folder)
    report = folder / folders.REPORT
    # A run that ends, in whichever way, writes its page last; one that goes on writes its configuration first.
    if report.exists() and report.stat().st_mtime >= last:
        return STOPPED
    return RUNNING if rows else WAITING


def files_of(folder: Path) -> list[Path]:
    """What a page is made from; a comparison's cells are folders two levels below."""
    return sorted([*folder.glob("*.json"), *folder.glob(folders.METRICS), *folder.glob(f"*/*/{folders.METRICS}")])


def signature(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Something that is another one as soon as a file has changed."""
    report = folder / folders.REPORT
    found = [(path, path.stat()) for path in [*files_of(folder), report] if path.exists()]
    return tuple((str(path), facts.st_mtime_ns, facts.st_size) for path, facts in found)


def written(folder: Path) -> tuple[float, bool]:
    """When the run last wrote something, and whether it has measured anything."""
    found = [(path, path.stat()) for path in files_of(folder) if path.exists()]
    rows = any(facts.st_size for path, facts in found if path.name == folders.METRICS)
    return max((facts.st_mtime for _, facts in found), default=0.0), rows
