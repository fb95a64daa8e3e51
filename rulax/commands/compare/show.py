"""What a comparison says on the terminal, and what Python users hold: tables of returns, scores and probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rulax.commands.driver import as_text, make_table, print_places
from rulax.files import load_json
from rulax.records.folder import COMPARISON, REPORT
from rulax.report.compare import AGGREGATES
from rulax.text import count, duration, plural


class Comparison:
    """A comparison, finished or not: `print(comparison.table)`, `comparison.scores["ppo"]`, `comparison.folder`."""

    def __init__(self, folder: Path, results: dict[str, Any]):
        self.folder, self.results = folder, results

    @classmethod
    def load(cls, folder: str | Path) -> Comparison:
        """From its folder."""
        return cls(Path(folder), load_json(Path(folder) / COMPARISON))

    @property
    def finished(self) -> bool:
        """Whether every cell was trained to its end."""
        return self.results["finished"]

    @property
    def environments(self) -> list[str]:
        """Those in which every rule is finished: the columns of `scores`."""
        return [env["name"] for env in self.results["environments"] if env["complete"]]

    @property
    def rules(self) -> list[str]:
        """In the order in which they were named."""
        return [rule["name"] for rule in self.results["rules"]]

    @property
    def scores(self) -> dict[str, np.ndarray]:
        """Normalised scores by rule, [seeds, environments]."""
        overall = self.results["statistics"]["overall"]
        return {rule: np.array(values, float) for rule, values in overall["scores"].items()} if overall else {}

    @property
    def returns(self) -> dict[str, np.ndarray]:
        """Final returns by rule, [seeds, environments]; NaN where no episode ended."""
        cells = {(cell["env"], cell["rule"]): np.array(cell["final_returns"], float) for cell in self.results["cells"]}
        return {rule: np.stack([cells[env, rule] for env in self.environments], 1) for rule in self.rules if self.environments}

    @property
    def table(self) -> str:
        """The tables as text."""
        return as_text(lambda console: print_tables(console, self))

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        return f"Comparison({', '.join(self.rules)} in {len(self.results['environments'])} environments{state})"

    def _repr_html_(self) -> str:
        """What a notebook shows: returns with their intervals, and the curves."""
        from rulax.report.notebook import comparison_html

        return comparison_html(self.results)


def show(comparison: Comparison, quiet: bool) -> None:
    """Print a comparison on stdout; a quiet one prints only its folder, for scripts."""
    if quiet:
        print(comparison.folder)
        return
    from rich.console import Console

    console = Console(highlight=False)
    print_tables(console, comparison)
    folder = comparison.folder
    print_places(
        ("folder", folder),
        ("all numbers", folder / COMPARISON),
        ("curves", f"rulax board {folder}"),
        ("in Python", f"rulax.Comparison.load('{folder}').scores"),
        ("the page", folder / REPORT),
    )


def print_tables(console: Any, comparison: Comparison) -> None:
    """Returns by environment, scores over all of them, and who beats whom."""
    found, overall = comparison.results, comparison.results["statistics"]["overall"]
    budget = f"{plural(found['seeds'], 'seed')}, {count(found['steps'])} steps each"
    console.print(f"\n[bold]{' · '.join(comparison.rules)}[/]  {budget}\n")
    if overall is None:
        console.print("no environment is finished yet\n")
    else:
        console.print("final return of training episodes, interquartile mean over seeds \\[95 % interval]")
        console.print(returns_table(comparison))
        console.print(f"\nscores over {plural(len(comparison.environments), 'environment')}: {found['normalisation']}")
        console.print(scores_table(overall))
        if found["statistics"]["held_out"]:
            console.print("\nscores over the environments held out")
            console.print(scores_table(found["statistics"]["held_out"]))
        if len(comparison.rules) > 1:
            console.print("\nprobability that a run of the row's rule beats one of the column's")
            console.print(improvement_table(comparison.rules, overall["improvement"]))
    for rule, tuned in (found["tuning"] or {"rules": {}})["rules"].items():
        chosen = ", ".join(f"{name} {value}" for name, value in tuned["chosen"].items())
        console.print(f"tuned: {rule} with {chosen} (best of {len(tuned['scores'])} trials)", markup=False)
    for warning in found["warnings"]:
        console.print(f"[yellow]warning:[/] {escaped(warning)}")
    if any(env["held_out"] for env in found["environments"]):
        console.print("[dim]* held out: no suite of `rulax discover` trains or validates rules in it[/]")
    cost = found["cost"]
    spent = f"{cost['cpu_seconds']:,.0f} CPU seconds ({cost['core_hours']:.3g} core-hours)"
    console.print(f"[dim]{duration(cost['seconds'])} in all, {spent}[/]\n")


def returns_table(comparison: Comparison) -> Any:
    """One row per environment, one column per rule; the best is bold."""
    table = make_table("environment", [*map(escaped, comparison.rules), "untrained"])
    for env in comparison.results["environments"]:
        name = escaped(env["name"]) + (" *" if env["held_out"] else "")
        if not env["complete"]:
            table.add_row(name, *["unfinished"] * len(comparison.rules), "" if env["random"] is None else number(env["random"]))
            continue
        found = comparison.results["statistics"]["environments"][env["name"]]
        best = max(found[rule]["value"] for rule in comparison.rules)
        cells = [cell(found[rule], bold=found[rule]["value"] == best) for rule in comparison.rules]
        table.add_row(name, *cells, number(env["random"]))
    return table


def scores_table(group: dict[str, Any]) -> Any:
    """One row per aggregate."""
    table = make_table("", [*map(escaped, group["rules"])])
    for name, words in AGGREGATES.items():
        values = {rule: found[name] for rule, found in group["rules"].items()}
        best = (min if name == "optimality_gap" else max)(value["value"] for value in values.values())
        table.add_row(words, *(cell(value, bold=value["value"] == best) for value in values.values()))
    return table


def improvement_table(rules: list[str], improvement: list[dict[str, Any]]) -> Any:
    """One row and one column per rule."""
    table = make_table("", [*map(escaped, rules)])
    found = {(pair["rule"], pair["over"]): pair["probability"] for pair in improvement}
    for rule in rules:
        table.add_row(escaped(rule), *(cell(found[rule, other]) if rule != other else "" for other in rules))
    return table


def cell(found: dict[str, Any], bold: bool = False) -> str:
    """A value and its interval."""
    value = f"[bold]{number(found['value'])}[/]" if bold else number(found["value"])
    return value if found["low"] is None else f"{value} \\[{number(found['low'])}, {number(found['high'])}]"


def number(value: float) -> str:
    """About three digits, and as many for equal sizes, so that columns line up."""
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def escaped(text: str) -> str:
    """A name may hold brackets, which rich would read as style."""
    return text.replace("[", "\\[")
