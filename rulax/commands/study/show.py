"""What a study says on the terminal, and what Python users hold: a table per question."""

from __future__ import annotations

from typing import Any

from rulax.commands.study.plan import read_plan, study_names
from rulax.commands.tables import Tables, escaped, make_table, number
from rulax.records.folder import REPORT, STUDY
from rulax.text import duration, with_interval


class StudyResults(Tables):
    """A study, finished or not: `study.points`, `study.results`, `study.table`, `study.folder`."""

    file = STUDY

    @property
    def points(self) -> dict[str, dict[str, Any]]:
        """By name: `held_out`, `validation` and `training`, each with `value`, `low` and `high`, and every `discoveries`."""
        return self.results["points"]

    def print_tables(self, console: Any) -> None:
        """A table per question, then what it cost."""
        found = self.results
        for question in found["questions"]:
            console.print(f"\n[bold]{escaped(question['title'])}[/]  scores of fresh agents: 0 untrained, 1 actor-critic\n")
            table = make_table(question["axis"] or "", ["held out", "validation", "above the first, held out", "the paper"])
            for name in question["points"]:
                point = self.points[name]
                above = question["differences"].get(name)
                cells = [shown(point["held_out"]), shown(point["validation"]), shown(above["held_out"]) if above else ""]
                table.add_row(escaped(point["label"]), *map(escaped, (*cells, point["paper"])))
            console.print(table)
            if question["paper"]:
                console.print(f"[dim]the paper: {escaped(question['paper'])}[/]")
        spent = f"{duration(found['cost']['seconds'])}, {found['cost']['cpu_seconds']:,.0f} CPU seconds"
        console.print(f"\n[dim]{found['made']} of {found['wanted']} discoveries; {spent}[/]\n")

    def __repr__(self) -> str:
        return f"StudyResults({self.results['study']}, {self.results['made']} of {self.results['wanted']} discoveries)"


def shown(value: dict[str, Any]) -> str:
    """A mean with its interval, or a dash."""
    return "-" if value["value"] is None else with_interval(value, number)


def show(results: StudyResults, quiet: bool) -> None:
    """Print a study on stdout; a quiet one prints only its folder, for scripts."""
    seeds = results.results["settings"]["seeds"]
    more = ("more seeds", f"rulax study --resume {results.folder} --seeds {seeds + 2}")
    results.show(quiet, more, ("the page", results.folder / REPORT))


def list_studies() -> None:
    """Every study and its points."""
    for name, about in study_names().items():
        plan = read_plan(name)
        print(f"{name}\n  {about}")
        for question in plan.questions:
            print(f"    {question.title}: {', '.join(question.points)}")
    print("\nrulax study NAME --seeds 3      rulax study NAME --points POINT ...      rulax study mine.yaml")
