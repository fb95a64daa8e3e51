"""What a training run prints at its end: a small curve, a table, and where things are."""

from __future__ import annotations

from rulax.commands.driver import print_places
from rulax.commands.train.result import Run
from rulax.evaluation.normalised import ends
from rulax.records import folder as folders
from rulax.report.plot import block_curve, seed_mean
from rulax.text import count, duration

MOST_SEEDS = 20  # rows of the table


def show(run: Run) -> None:
    """Print the result of a finished run on stdout; quiet runs print only their folder, for scripts."""
    if run.config.quiet:
        print(run.folder)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    summary = run.summary()
    console.print(f"\n[bold]{run.title}[/]  episode return\n")
    last = summary["steps"]
    for line in block_curve(seed_mean(run.returns), last, width=min(60, console.width - 14)):
        console.print(f"  {line}", markup=False)
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("seed")
    table.add_column("final return", justify="right")
    for seed, value in enumerate(summary["final_return_per_seed"][:MOST_SEEDS]):
        table.add_row(str(seed), cell(value))
    if len(summary["final_return_per_seed"]) > MOST_SEEDS:
        table.add_row("…", "…")
    if run.config.seeds > 1:
        table.add_row("[bold]mean[/]", f"[bold]{cell(summary['final_return'])}[/]")
    console.print(table)
    axis = ends(run.config.env, run.config.env_options)
    if axis is not None and summary["normalised"] is not None:
        name, low, high = axis
        console.print(f"[bold]{name} {summary['normalised']:.3f}[/]  (0 is {low:g}, 1 is {high:g})")
    speed = f", {count(run.steps_per_second)} steps/s" if run.steps_per_second else ""
    console.print(f"[dim]over the last tenth of {last:,} steps; {duration(run.seconds)} in all{speed}[/]\n")
    if summary.get("restarts"):
        why = f"; the last one: {escape(summary['last_failure'])}" if summary["last_failure"] else ""
        console.print(f"[yellow]environments raised errors and were restarted {summary['restarts']} times{why}[/]\n")
    print_places(
        ("run folder", run.folder),
        ("the curve", f"{run.folder}/{folders.CURVE}"),
        ("train on", f"rulax train --resume {run.folder} --steps {2 * run.config.steps}"),
        ("in Python", f"rulax.load('{run.folder}').agent.act(observation)"),
        ("the page", f"{run.folder}/{folders.REPORT}"),
    )


def cell(value: float | None) -> str:
    """One number of the table."""
    return "no episode ended" if value is None else f"{value:.3f}"
