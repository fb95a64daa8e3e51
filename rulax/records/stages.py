"""Which parts of a run are made, each with the step that it is of: `--resume` makes what a kill has left out.

A run is finished when all of them are of its last step. The number of steps alone does not say so: a run may end between its last
checkpoint and its page.
"""

from __future__ import annotations

from pathlib import Path

from rulax.files import read_json, write_json

STAGES = "stages.json"
TRAINED, EVALUATED, SUMMARY, CURVE, PAGE = "trained", "evaluated", "summary", "curve", "page"
OF_TRAINING = (TRAINED, SUMMARY, CURVE, PAGE)
OF_DISCOVERY = (TRAINED, EVALUATED, SUMMARY, CURVE, PAGE)


def begin(folder: Path) -> None:
    """Nothing is made yet."""
    write_json(folder / STAGES, {})


def record(folder: Path, stage: str, step: int) -> None:
    """A stage is made, and on disk."""
    write_json(folder / STAGES, read_json(folder / STAGES, dict[str, int]) | {stage: step})


def missing(folder: Path, wanted: tuple[str, ...], step: int) -> list[str]:
    """The stages that are not made, or of an earlier step; none in a folder from before they were recorded."""
    if not (folder / STAGES).exists():
        return []
    made = read_json(folder / STAGES, dict[str, int])
    return [stage for stage in wanted if made.get(stage) != step]
