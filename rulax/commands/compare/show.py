"""What a comparison says on the terminal, and what Python users hold: tables of returns, scores and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from rulax.commands.tables import Tables, escaped, make_table, number
from rulax.records.folder import COMPARISON, REPORT
from rulax.report.compare import AGGREGATES, SPENT, costs, discoveries, more_scores, titled
from rulax.text import count, duration, plural

RETURNS = {False: "final return of training episodes", True: "return of separate evaluation episodes"}


class Comparison(Tables):
    """A comparison, finished or not: `print(comparison.table)`, `comparison.scores["ppo"]`, `comparison.folder`."""

    file = COMPARISON

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

    def print_tables(self, console: Any) -> None:
        """Returns by environment, scores over all of them, and who beats whom."""
        found, overall = self.results, self.results["statistics"]["overall"]
        budget = f"{plural(found['seeds'], 'seed')}, {count(found['steps'])} steps each"
        console.print(f"\n[bold]{' · '.join(self.rules)}[/]  {budget}\n")
        if overall is None:
            console.print("no environment is finished yet\n")
        else:
            console.print(f"{RETURNS[bool(found.get('eval_episodes'))]}, interquartile mean over seeds \\[95 % interval]")
            console.print(returns_table(self, console))
            console.print(f"\nscores over {plural(len(self.environments), 'environment')}: {found['normalisation']}")
            console.print(scores_table(overall, console, found.get("published")))
            for title, values in more_scores(found):
                console.print(f"\n{title}")
                console.print(values_table(values, console))
            if found["statistics"]["held_out"]:
                console.print("\nscores over the environments held out")
                console.print(scores_table(found["statistics"]["held_out"], console))
            if len(self.rules) > 1:
                console.print("\nprobability that a run of the row's rule beats one of the other's")
                console.print(improvement_table(self.rules, overall["improvement"], console))
        console.print("cost of training, all environments and seeds together")
        console.print(cost_table(found, console))
        if discoveries(found):
            console.print("\ncost of finding the rules, as their files say")
            console.print(discovery_table(found, console))
        console.print()
        for rule, tuned in (found["tuning"] or {"rules": {}})["rules"].items():
            chosen = ", ".join(f"{name} {value}" for name, value in tuned["chosen"].items())
            console.print(f"tuned: {rule} with {chosen} (best of {len(tuned['scores'])} trials)", markup=False)
        for line in sources(found):
            console.print(f"[dim]{escaped(line)}[/]")
        for warning in found["warnings"]:
            console.print(f"[yellow]warning:[/] {escaped(warning)}")
        if any(env["held_out"] for env in found["environments"]):
            console.print("[dim]* held out: no suite of `rulax discover` trains or validates rules in it[/]")
        cost = found["cost"]
        spent = f"{cost['cpu_seconds']:,.0f} CPU seconds ({cost['core_hours']:.3g} core-hours)"
        console.print(f"[dim]{duration(cost['seconds'])} in all, {spent}[/]\n")

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        return f"Comparison({', '.join(self.rules)} in {plural(len(self.results['environments']), 'environment')}{state})"

    def _repr_html_(self) -> str:
        """What a notebook shows: returns with their intervals, and the curves."""
        from rulax.report.notebook import comparison_html

        return comparison_html(self.results)


def show(comparison: Comparison, quiet: bool) -> None:
    """Print a comparison on stdout; a quiet one prints only its folder, for scripts."""
    folder = comparison.folder
    comparison.show(
        quiet,
        ("curves", f"rulax board {folder}"),
        ("in Python", f"rulax.Comparison.load('{folder}').scores"),
        ("the page", folder / REPORT),
    )


def returns_table(comparison: Comparison, console: Any) -> Any:
    """One row per environment, one column per rule; the best is bold."""
    rows = {}
    others = [entry for entry in comparison.results.get("published", []) if entry["returns"]]
    for env in comparison.results["environments"]:
        name = escaped(env["name"]) + (" *" if env["held_out"] else "")
        beside = ["" if env["random"] is None else number(env["random"])]
        beside += [number(entry["returns"][env["name"]]) if env["name"] in entry["returns"] else "" for entry in others]
        if not env["complete"]:
            rows[name] = [*["unfinished"] * len(comparison.rules), *beside]
            continue
        found = comparison.results["statistics"]["environments"][env["name"]]
        best = max(found[rule]["value"] for rule in comparison.rules)
        rows[name] = [*(cell(found[rule], bold=found[rule]["value"] == best) for rule in comparison.rules), *beside]
    return fitting("environment", "rule", [*comparison.rules, "untrained", *map(titled, others)], rows, console)


def scores_table(group: dict[str, Any], console: Any, published: list[dict[str, Any]] | None = None) -> Any:
    """One row per aggregate; published ones have no interval."""
    rows = {}
    others = [entry for entry in published or [] if entry["statistics"]]
    for name, words in AGGREGATES.items():
        values = {rule: found[name] for rule, found in group["rules"].items()}
        best = (min if name == "optimality_gap" else max)(value["value"] for value in values.values())
        rows[words] = [cell(value, bold=value["value"] == best) for value in values.values()]
        rows[words] += [number(entry["statistics"][name]) if name in entry["statistics"] else "" for entry in others]
    return fitting("", "rule", [*group["rules"], *map(titled, others)], rows, console)


def values_table(values: dict[str, Any], console: Any) -> Any:
    """One row per rule or published agent."""
    return fitting("", "", [""], {escaped(name): [cell(value)] for name, value in values.items()}, console)


def sources(found: dict[str, Any]) -> list[str]:
    """Where published figures come from, and in what they differ from what is measured here."""
    if found.get("suite") and not found["suite"]["published"]:
        return [f"nobody has published scores in the suite {found['suite']['name']} with a budget to repeat"]
    lines = [
        f"{titled(entry)}: {entry['source']}{'; ' + entry['note'] if entry['note'] else ''}" for entry in found.get("published", [])
    ]
    return ["published, with the steps that they had:", *lines] if lines else []


def improvement_table(rules: list[str], improvement: list[dict[str, Any]], console: Any) -> Any:
    """One row and one column per rule."""
    found = {(pair["rule"], pair["over"]): pair["probability"] for pair in improvement}
    rows = {escaped(rule): [cell(found[rule, other]) if rule != other else "" for other in rules] for rule in rules}
    return fitting("", "other", rules, rows, console)


def cost_table(found: dict[str, Any], console: Any) -> Any:
    """One row per rule: what it took to train by it."""
    columns = {"environment_steps": "environment steps", "updates": "updates", "cpu_seconds": "CPU seconds"}
    rows = {escaped(rule): [counted(took[name]) for name in columns] for rule, took in costs(found).items()}
    return fitting("rule", "", list(columns.values()), rows, console)


def discovery_table(found: dict[str, Any], console: Any) -> Any:
    """One row per rule: how it was found, and what that took; dashes for those that were designed by hand."""
    rows = {escaped(rule): [counted((spent or {}).get(name)) for name in SPENT] for rule, spent in discoveries(found).items()}
    return fitting("rule", "", list(SPENT.values()), rows, console)


def counted(value: float | str | None) -> str:
    """A cost, or a word about it."""
    return "-" if value is None else escaped(value) if isinstance(value, str) else count(value)


def fitting(corner: str, across: str, columns: list[str], rows: dict[str, list[str]], console: Any) -> Any:
    """A table as wide as the console: where the columns do not fit, each row becomes as many as it has cells.

    Args:
        corner: what the names of the rows are.
        across: what the names of the columns are, for a table in which they stand below each other.
        columns: those names.
        rows: the cells of each row, as many as there are columns; empty ones are left out of a narrow table.
        console: where it is printed.
    """
    wide = make_table(corner, [*map(escaped, columns)])
    for name, cells in rows.items():
        wide.add_row(name, *cells)
    # With more room than there is: a measure is never above the room.
    if console.measure(wide, options=console.options.update(width=2 * console.width)).maximum <= console.width:
        return wide
    narrow = make_table(corner, [across, ""])
    narrow.columns[1].justify = "left"
    for name, cells in rows.items():
        for column, text in zip(columns, cells, strict=True):
            if text:
                narrow.add_row(name, escaped(column), text)
    return narrow


def cell(found: dict[str, Any], bold: bool = False) -> str:
    """A value and its interval."""
    value = f"[bold]{number(found['value'])}[/]" if bold else number(found["value"])
    return value if found["low"] is None else f"{value} \\[{number(found['low'])}, {number(found['high'])}]"
