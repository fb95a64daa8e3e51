"""All numbers of a study: scores of every discovery, means over seeds with intervals, and differences to what points are compared
with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from rulax.commands.study.cells import StudyCell
from rulax.commands.study.plan import Plan
from rulax.commands.study.settings import StudyConfig
from rulax.evaluation.statistics import student_factor
from rulax.files import jsonable, read_json
from rulax.records import folder as folders

SCORES = ("held_out", "validation", "training")
Found = dict[str, Any]


def results(config: StudyConfig, plan: Plan, record: Found, cells: list[StudyCell]) -> Found:
    """The content of study.json."""
    points = {name: of_point([cell for cell in cells if cell.point.name == name]) for name in plan.points}
    for name, point in points.items():
        point |= {"label": plan.points[name].label, "x": plan.points[name].x, "paper": plan.points[name].paper}
        point["settings"] = plan.points[name].settings
    questions = []
    for question in plan.questions:
        first = question.points[0]
        differences = {name: difference(points[name], points[first]) for name in question.points if name != first}
        questions.append(question._asdict() | {"differences": differences})
    spent = [row["spent"] for point in points.values() for row in point["discoveries"]]
    return jsonable({
        "kind": "study",
        "study": Path(config.study).stem,
        "settings": record["settings"],
        "shared": plan.settings,
        "steps": cells[0].config.steps,
        "held_out": list(plan.held_out),
        "validation": list(cells[0].config.validation),
        "points": points,
        "questions": questions,
        "made": sum(cell.finished for cell in cells),
        "wanted": len(cells),
        "finished": all(cell.finished for cell in cells),
        "cost": {name: sum(each.get(name) or 0 for each in spent) for name in ("seconds", "cpu_seconds", "environment_steps")},
        **{name: record.get(name) for name in ("command", "versions", "commit", "machine")},
    })  # fmt: skip


def of_point(cells: list[StudyCell]) -> Found:
    """One point: every discovery, and means over those that came to their end."""
    rows = [of_cell(cell) for cell in cells]
    done = [row for row in rows if row["finished"] and not row["failure"]]
    return {"discoveries": rows} | {score: mean([row[score] for row in done]) for score in SCORES}


def of_cell(cell: StudyCell) -> Found:
    """One discovery: the scores at its end in families of training and validation, and held out those of the rule it chose."""
    summary, held_out = read_json(cell.folder / folders.SUMMARY, folders.Summary), cell.held_out.get("scores", {})
    last, best = summary.get("last") or {}, summary.get("best") or {}
    spent = {name: summary.get(name) for name in ("seconds", "cpu_seconds", "environment_steps", "agent_updates")}
    return {
        "seed": cell.seed,
        "folder": str(Path(cell.folder.parent.name) / cell.folder.name),
        "finished": cell.finished,
        "failure": cell.failure,
        "training": last.get("training_score"),
        "validation": last.get("validation_score"),
        "held_out": sum(held_out.values()) / len(held_out) if held_out else None,
        "families": held_out,
        "chosen": best.get("step"),
        "spent": spent,
    }


def mean(values: list[float | None]) -> Found:
    """A mean with its 95 % interval by Student's t, of the values that are known; no interval with a single one."""
    known = np.array([value for value in values if value is not None], float)
    if not len(known):
        return {"value": None, "low": None, "high": None, "number": 0}
    value = float(known.mean())
    if len(known) < 2:
        return {"value": value, "low": None, "high": None, "number": 1}
    half = student_factor(len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return {"value": value, "low": value - half, "high": value + half, "number": len(known)}


def difference(point: Found, other: Found) -> Found:
    """By how much a point is above another one, mean over the seeds that both have: the same seed has the same fresh agents."""
    found = {}
    for score in SCORES:
        ours, theirs = (
            {row["seed"]: row[score] for row in each["discoveries"] if row["finished"] and row[score] is not None}
            for each in (point, other)
        )
        found[score] = mean([ours[seed] - theirs[seed] for seed in ours if seed in theirs])
    return found
