"""What a sweep says on the terminal, and what Python users hold: the best settings, all trials, the run of the result."""

from __future__ import annotations

from typing import Any

from rulax.commands.tables import Tables, escaped, make_table, number
from rulax.commands.train.result import Run, load
from rulax.records.folder import REPORT, SWEEP
from rulax.report.parts import shown
from rulax.text import duration, plural, with_interval

MOST_TRIALS = 10  # rows of the table on the terminal; the page has all


class Sweep(Tables):
    """A search for settings, finished or not: `sweep.best`, `sweep.trials`, `sweep.importances`, `sweep.run`, `sweep.folder`."""

    file = SWEEP

    @property
    def best(self) -> dict[str, Any]:
        """The settings with the highest return among the trials; empty if none is finished."""
        return (self.results["best"] or {"settings": {}})["settings"]

    @property
    def trials(self) -> list[dict[str, Any]]:
        """Every trial: `settings`, `final_return`, `final_return_per_seed`, `folder`, ..."""
        return self.results["trials"]

    @property
    def importances(self) -> dict[str, float]:
        """How much each setting mattered, adding up to 1; empty where too few trials are finished to tell."""
        return {row["name"]: row["importance"] for row in self.results["mattered"] or ()}

    @property
    def run(self) -> Run:
        """The run of the best settings on fresh seeds: its returns, its agents."""
        return load(self.folder / self.results["result"]["folder"]) if self.results["result"] else load(self.folder)

    def print_tables(self, console: Any) -> None:
        """The best trials, what mattered, and what the best settings came to on fresh seeds."""
        found = self.results
        names = list(found["space"])
        console.print(
            f"\n[bold]{escaped(found['env'])} · {escaped(found['rule'])}[/]  the best of {plural(len(self.trials), 'trial')}\n"
        )
        table = make_table("trial", [*map(escaped, names), "final return", ""])
        order = sorted(self.trials, key=lambda row: (row["final_return"] is None, -(row["final_return"] or 0), row["trial"]))
        for row in order[:MOST_TRIALS]:
            score = "-" if row["final_return"] is None else number(row["final_return"])
            table.add_row(
                str(row["trial"]), *(escaped(shown(row["settings"].get(name))) for name in names), score, escaped(row["note"])
            )
        console.print(table)
        if found["mattered"]:
            weights = ", ".join(f"{row['name']} {row['importance']:.0%}" for row in found["mattered"])
            console.print(f"\nwhat mattered: {escaped(weights)}")
        if found["result"] and found["result"]["final_return"] is not None:
            result = {"value": found["result"]["final_return"], "low": found["result"]["low"], "high": found["result"]["high"]}
            seeds = plural(found["result"]["seeds"], "fresh seed")
            console.print(f"\n[bold]the best settings on {seeds}: {escaped(with_interval(result, number))}[/]")
            console.print(
                f"[dim]their {number(found['best']['final_return'])} above is the highest of many and so flatters them[/]"
            )
        console.print(f"[dim]{duration(found['cost']['seconds'])} in all[/]\n")

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        return f"Sweep({self.results['env']} · {self.results['rule']}, {plural(len(self.trials), 'trial')}{state})"


def show(sweep: Sweep, quiet: bool) -> None:
    """Print a sweep on stdout; a quiet one prints only its folder, for scripts."""
    folder = sweep.folder
    sweep.show(
        quiet,
        ("more trials", f"rulax tune --resume {folder} --trials {2 * len(sweep.trials)}"),
        ("in Python", f"rulax.load('{folder / sweep.results['result']['folder']}').agent.act(observation)"),
        ("the page", folder / REPORT),
    )
