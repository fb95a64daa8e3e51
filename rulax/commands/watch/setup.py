"""Which folder to watch: the one that the user names, or the one in `runs/` that was written to last."""

from __future__ import annotations

from pathlib import Path

from rulax.commands.listing.setup import run_folders
from rulax.commands.watch.show import PAGES, written
from rulax.errors import UserError, suggestion
from rulax.records import folder as folders

RUNS = Path("runs")
MOST_NAMED = 5


def find_run(run: str | Path = "") -> Path:
    """The folder of a run that has a page."""
    folder = Path(run) if str(run) else newest()
    # `rulax runs` lists names without the folder that they are in.
    if not folder.exists() and (RUNS / folder).is_dir():
        folder = RUNS / folder
    if not folder.is_dir():
        known = [each.name for each in run_folders(RUNS)] if RUNS.is_dir() else []
        raise UserError(f"there is no run folder {folder}{suggestion(folder.name, known)}; `rulax runs` lists them")
    if (folder / folders.EXPLANATION).exists():
        raise UserError(f"{folder} holds an explanation, which does not grow; open {folder / folders.REPORT}")
    if not (folder / folders.CONFIG).exists():
        inside = sorted(str(each) for each in run_folders(folder))
        if not inside:
            raise UserError(f"{folder} holds no run (there is no {folders.CONFIG} in it)")
        named = ", ".join(inside[:MOST_NAMED]) + (", …" if len(inside) > MOST_NAMED else "")
        raise UserError(f"{folder} holds several runs; watch one of them: {named}")
    kind = folders.read_config(folder)["kind"]
    if kind not in PAGES:
        raise UserError(f"a folder of `rulax {kind}` has no page to watch; there are pages of {', '.join(PAGES)}")
    return folder


def kind_of(folder: Path) -> str:
    """What kind of run a folder holds; nothing if it cannot be read."""
    try:
        return folders.read_config(folder)["kind"]
    except UserError:
        return ""


def newest() -> Path:
    """The run in `runs/` that was written to last; one that has no page is passed over."""
    found = [each for each in run_folders(RUNS) if kind_of(each) in PAGES] if RUNS.is_dir() else []
    if not found:
        raise UserError("there is no run in runs/ to watch; start one, for example `rulax train catch`, or name its folder")
    return max(found, key=lambda each: written(each)[0])
