"""What a sweep says on the terminal, and what Python users hold: the best settings, all trials, the run of the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rulax.commands.compare.show import escaped, number
from rulax.commands.driver import as_text, make_table, print_places
from rulax.commands.train.result import Run, load
from rulax.files import load_json
from rulax.records.folder import REPORT, SWEEP
from rulax.report.parts import shown
from rulax.text import duration, plural, with_interval

MOST_TRIALS = 10  # rows of the table on the terminal; the page has all


class Sweep:
    """A search for settings, finished or not: `sweep.best`, `sweep.trials`, `sweep.importances`, `sweep.run`, `sweep.folder`."""

    def __init__(self, folder: Path, results: dict[str, Any]):
        self.folder, self.results = folder, results

    @classmethod
    def load(cls, folder: str | Path) -> Sweep:
        """From its folder."""
        return cls(Path(folder), load_json(Path(folder) / SWEEP))

    @property
    def finished(self) -> bool:
        """Whether all trials are made and the best settings were trained on fresh seeds."""
        return self.results["finished"]

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

    @property
    def table(self) -> str:
        """The tables as text."""
        return as_text(lambda console: print_tables(console, self))

    def __repr__(self) -> str:
        state = "" if self.finished else ", unfinished"
        return f"Sweep({self.results['env']} · {self.results['rule']}, {plural(len(self.trials), 'trial')}{state})"


def show(sweep: Sweep, quiet: bool) -> None:
    """Print a sweep on stdout; a quiet one prints only its folder, for scripts."""
    if quiet:
        print(sweep.folder)
        return
    from rich.console import Console

    print_tables(Console(highlight=False), sweep)
    folder = sweep.folder
    print_places(
        ("folder", folder),
        ("all numbers", folder / SWEEP),
        ("more trials", f"rulax tune --resume {folder} --trials {2 * len(sweep.trials)}"),
        ("in Python", f"rulax.load('{folder / sweep.results['result']['folder']}').agent.act(observation)"),
        ("the page", folder / REPORT),
    )


def print_tables(console: Any, sweep: Sweep) -> None:
    """The best trials, what mattered, and what the best settings came to on fresh seeds."""
    found = sweep.results
    names = list(found["space"])
    console.print(
        f"\n[bold]{escaped(found['env'])} · {escaped(found['rule'])}[/]  the best of {plural(len(sweep.trials), 'trial')}\n"
    )
    table = make_table("trial", [*map(escaped, names), "final return", ""])
    order = sorted(sweep.trials, key=lambda row: (row["final_return"] is None, -(row["final_return"] or 0), row["trial"]))
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
        console.print(f"[dim]their {number(found['best']['final_return'])} above is the highest of many and so flatters them[/]")
    console.print(f"[dim]{duration(found['cost']['seconds'])} in all[/]\n")
