"""What a population did, turn by turn, and the schedule that its best member's line of ancestors went through.

`population.jsonl` has a line for every turn: at which step, with which scores, who went on as whose copy, and the hyper-parameters
from there on. `schedule.json` has the hyper-parameters of one line of descent, from the step at which each is in force.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from rulax.errors import UserError
from rulax.files import load_json, write_atomically, write_json
from rulax.files.reading import misfit, read_json_lines
from rulax.records import folder as folders

Turn = dict[str, Any]  # step, scores [K], parents [K], hyperparameters {name: [K]}
Point = dict[str, float]  # step, and the hyper-parameters by name
KIND = "schedule"


class TurnForm(TypedDict):
    """The same, for `misfit`."""

    step: int
    scores: list[float | None]
    parents: list[int]
    hyperparameters: dict[str, list[float]]


def write_turns(folder: Path, turns: Iterable[Turn]) -> None:
    """Add turns to those of a run folder."""
    with (folder / folders.TURNS).open("a") as file:
        file.writelines(json.dumps(turn, allow_nan=False) + "\n" for turn in turns)


def keep_turns(folder: Path, step: int) -> list[Turn]:
    """The turns before a step, which are all that the folder holds then: a run that goes on from there takes the others again."""
    # The turn of the step itself is taken when the next stretch begins, so it is not part of a checkpoint that ends there.
    kept = [turn for turn in read_turns(folder) if turn["step"] < step]
    write_atomically(folder / folders.TURNS, "".join(json.dumps(turn) + "\n" for turn in kept))
    return kept


def read_turns(folder: Path) -> list[Turn]:
    """All turns of a run folder; a line that a crash has cut off is left out."""
    turns = read_json_lines(folder / folders.TURNS, is_turn)[0]
    # Of one population: a damaged line may be a turn of other members or hyper-parameters.
    return [turn for turn in turns if _kind(turn) == _kind(turns[0])]


def _kind(turn: Turn) -> tuple[int, set[str]]:
    return len(turn["parents"]), set(turn["hyperparameters"])


def is_turn(turn: Turn) -> bool:
    """Whether a line has the form of a turn: a score, a parent and hyper-parameters for each member."""
    if misfit(turn, TurnForm):
        return False
    members, columns = len(turn["parents"]), [turn["scores"], *turn["hyperparameters"].values()]
    return all(len(each) == members for each in columns) and all(0 <= parent < members for parent in turn["parents"])


def best_member(final: Sequence[float | None]) -> int:
    """The member with the highest final return, [K]; the first one where none is known."""
    known = [(value, -member) for member, value in enumerate(final) if value is not None]
    return -max(known)[1] if known else 0


def ancestors(turns: Sequence[Turn], member: int) -> list[int]:
    """Who, after each turn, was the one that `member` goes back to, [turns]."""
    if not turns:
        return []
    line = [member]
    for turn in reversed(turns[1:]):
        line.append(turn["parents"][line[-1]])
    return line[::-1]


def schedule_of(turns: Sequence[Turn], member: int) -> list[Point]:
    """The hyper-parameters that a member and its ancestors had, with the step from which each point is in force."""
    points: list[Point] = []
    for turn, who in zip(turns, ancestors(turns, member), strict=True):
        values = {name: each[who] for name, each in turn["hyperparameters"].items()}
        if not points or {name: points[-1][name] for name in values} != values:
            points.append({"step": turn["step"], **values})
    return points


def write_schedule(path: Path, points: Sequence[Point], facts: Mapping[str, Any]) -> None:
    """A schedule with where it comes from."""
    write_json(path, {"kind": KIND, **facts, "points": list(points)})


def read_schedule(path: str | Path) -> list[Point]:
    """The points of a schedule file; one sentence if it holds none."""
    found = load_json(Path(path), "; a population writes one, `rulax train ENV --population 16 --tune learning_rate`")
    points = found.get("points") if found.get("kind") == KIND else None
    if not isinstance(points, list) or not points:
        raise UserError(f"{path} holds no schedule; a population writes one, as {folders.SCHEDULE} in its run folder")
    names = set(points[0]) if isinstance(points[0], dict) else set()
    good = all(isinstance(each, dict) and set(each) == names and all(_is_number(each[name]) for name in each) for each in points)
    steps = [each["step"] for each in points] if good and "step" in names else []
    if len(names) < 2 or steps[:1] != [0] or steps != sorted(set(steps)):
        raise UserError(f"{path} is damaged: a schedule has points that begin at step 0, rise, and have the same hyper-parameters")
    return points


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
