"""The page of a study, made from its `study.json`: question by question, what a point is worth, and what the paper found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rulax.records import folder as folders
from rulax.report import parts
from rulax.report.blocks import Block, Chart, Curves, Estimate, Fact, Facts, IntervalRow, Intervals, Line, Panels, Table, Text
from rulax.report.page import Page, from_folder, write_page
from rulax.text import count, duration

Found = dict[str, Any]
SCORES = {"held_out": "families held out", "validation": "validation families"}
INTERVALS = "95 % intervals of the mean over discoveries (Student's t), which with three are wide."


@from_folder
def write_study_page(folder: str | Path) -> Path:
    """Write `report.html` into the folder of a study."""
    return write_page(Path(folder) / folders.REPORT, *study_page(Path(folder)))


@from_folder
def study_page(folder: Path) -> Page:
    """The page of a study as it is now."""
    found = parts.read_results(folder / folders.STUDY, "study", "the results of a study")
    subtitle = f"{len(found['points'])} points, {found['wanted']} discoveries of {found['steps']:,} meta-steps"
    blocks: list[Block] = [Facts(facts(found)), Text("How it is judged", judged(found))]
    for question in found["questions"]:
        blocks += about(found, question)
    blocks += [every_discovery(found), *commands(folder, found), *parts.configuration(found, ("settings", "shared"))]
    missing = f"{found['made']} of {found['wanted']} discoveries are made." if not found["finished"] else ""
    return Page(f"Study: {found['study']}", subtitle, blocks, missing)


def facts(found: Found) -> list[Fact]:
    """The strip of numbers."""
    cost = found["cost"]
    made = Fact("discoveries", f"{found['made']} of {found['wanted']}", f"{found['settings']['seeds']} seeds per point")
    steps = Fact("environment steps", count(cost["environment_steps"]), "of all agents of discovery")
    return [made, steps, Fact("core-hours", parts.core_hours(cost["cpu_seconds"]), f"{duration(cost['seconds'])} in all")]


def judged(found: Found) -> list[str]:
    """What the scores mean."""
    said = [
        "A score is that of fresh agents that learn by the rule: 0 is an untrained agent, 1 is actor-critic with as many "
        "environment steps. Points differ in what is named; seeds, budgets and evaluations are the same."
    ]
    held_out, validation = ", ".join(found["held_out"]), ", ".join(found["validation"])
    if validation:
        said.append(
            f"Validation families ({validation}) choose which meta-step's rule is kept; their score is that of the last one."
        )
    if held_out:
        said.append(f"Families held out ({held_out}) decide about nothing; the rule that was kept is judged there once.")
    return said


def about(found: Found, question: Found) -> list[Block]:
    """One question: pictures, a table, what the paper found."""
    panels = [
        picture(found, question, score)
        for score in SCORES
        if any(found["points"][name][score]["number"] for name in question["points"])
    ]
    rows: list[list[Any]] = []
    for name in question["points"]:
        point, above = found["points"][name], question["differences"].get(name)
        values = [estimate(point["held_out"]), estimate(above["held_out"]) if above else None]
        values.append(estimate(point["validation"]))
        rows.append([point["label"], *values, point["held_out"]["number"], point["paper"] or "–"])
    first = found["points"][question["points"][0]]["label"]
    columns = ["", "held out", f"above '{first}'", "validation", "discoveries", "the paper"]
    note = f"{INTERVALS} Differences are between discoveries from the same seed."
    said = [Text("What the paper found", [question["paper"]])] if question["paper"] else []
    shown = [Panels(question["title"], panels, INTERVALS)] if panels else []
    return [*shown, Table(f"{question['title']} In numbers", columns, rows, note), *said]


def picture(found: Found, question: Found, score: str) -> Chart:
    """Scores of the points: along their axis if they have one, else one under the other."""
    points = [found["points"][name] for name in question["points"]]
    if not question["axis"]:
        rows = [IntervalRow(point["label"], *(point[score][part] for part in ("value", "low", "high"))) for point in points]
        return Intervals(SCORES[score], "score", rows, reference=1)
    points = sorted((point for point in points if point[score]["number"]), key=lambda point: point["x"])
    x = [point["x"] for point in points]
    single = any(point[score]["low"] is None for point in points)
    low, high = ([] if single else [point[score][part] for point in points] for part in ("low", "high"))
    lines = [Line("mean over discoveries", x, [point[score]["value"] for point in points], low, high)]
    lines += [
        Line("mean over discoveries", x, [scores_of(point, seed, score) for point in points], style="faint")
        for seed in sorted({row["seed"] for point in points for row in point["discoveries"]})
    ]
    return Curves(SCORES[score], question["axis"], "score", lines, log="x", points=True, starts_log=True)


def scores_of(point: Found, seed: int, score: str) -> float | None:
    """The score of one discovery."""
    return next((row[score] for row in point["discoveries"] if row["seed"] == seed), None)


def estimate(value: Found) -> Estimate | None:
    """A cell with its interval."""
    return Estimate(value["value"], value["low"], value["high"]) if value["value"] is not None else None


def every_discovery(found: Found) -> Table:
    """One row per discovery."""
    rows = []
    for point in found["points"].values():
        for row in point["discoveries"]:
            state = row["failure"] or ("" if row["finished"] else "not finished")
            spent = row["spent"]["cpu_seconds"]
            rows.append(
                [
                    point["label"],
                    row["seed"],
                    row["held_out"],
                    row["validation"],
                    row["training"],
                    row["chosen"],
                    spent,
                    state or row["folder"],
                ]
            )
    columns = ["point", "seed", "held out", "validation", "training", "rule of meta-step", "CPU seconds", ""]
    return Table("Every discovery", columns, rows, "Each is a run folder of `rulax discover`, with a page of its own.")


def commands(folder: Path, found: Found) -> list[Block]:
    """How to go on."""
    lines = [(found["command"], "As it was started")] if found.get("command") else []
    where = parts.quoted(folder)
    more = f" --seeds {found['settings']['seeds'] + 2}" if found["finished"] else ""
    lines.append((f"rulax study --resume {where}{more}", "More discoveries per point" if more else "Go on where it stopped"))
    return [parts.commands("Commands", lines)]
