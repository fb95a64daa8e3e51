"""What a training run prints at its end: a small curve, a table, and where things are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rulax.commands.tables import make_table, print_places
from rulax.commands.train.result import Run
from rulax.evaluation.normalised import ends
from rulax.evaluation.skill_words import SKILL_COLUMNS
from rulax.records import folder as folders
from rulax.report.plot import block_curve, seed_mean
from rulax.rules.registry import RULES
from rulax.text import count, duration

if TYPE_CHECKING:
    from rich.console import Console

MOST_SEEDS = 20  # rows of the table


def show(run: Run) -> None:
    """Print the result of a finished run on stdout; quiet runs print only their folder, for scripts."""
    if run.config.quiet:
        print(run.folder)
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    summary = run.summary()
    # A rule of skills learns from its discriminator; a newcomer would take a flat curve of rewards for a failure.
    whose = "what the environment pays in training episodes, which skills do not learn from"
    console.print(f"\n[bold]{run.title}[/]  {whose if run.skills else 'return of training episodes'}")
    if run.config.rule in RULES:
        # A newcomer has not chosen the rule of the demonstration, and should know that nobody designed it.
        console.print(f"[dim]{run.config.rule}: {RULES[run.config.rule].summary}[/]")
    console.print()
    last = summary["steps"]
    for line in block_curve(seed_mean(run.returns), last, width=min(60, console.width - 14)):
        console.print(f"  {line}", markup=False)
    console.print()
    table = make_table(run.unit, ["final return"])
    for seed, value in enumerate(summary["final_return_per_seed"][:MOST_SEEDS]):
        table.add_row(str(seed), cell(value))
    if len(summary["final_return_per_seed"]) > MOST_SEEDS:
        table.add_row("…", "…")
    if run.config.seeds > 1:
        table.add_row("[bold]mean[/]", f"[bold]{cell(summary['final_return'])}[/]")
    console.print(table)
    show_found(run, console)
    if summary["final_return"] is None and can_be_limited(run):
        console.print("[yellow]no episode ended; with a time limit they do:[/] --env-options max_episode_steps=200")
    for name, what in (("greedy", "greedy actions"), ("sampled", "actions as in training")):
        if f"evaluation_{name}_return" in summary:
            value = cell(summary[f"evaluation_{name}_return"])
            console.print(f"[bold]evaluation {value}[/]  (separate episodes at step {summary['evaluation_step']:,}, {what})")
    axis = ends(run.config.env, run.config.env_options)
    if axis is not None and summary["normalised"] is not None:
        name, low, high = axis
        console.print(f"[bold]{name} {summary['normalised']:.3f}[/]  (0 is {low:g}, 1 is {high:g})")
    speed = f", {count(run.steps_per_second)} steps/s" if run.steps_per_second else ""
    if run.stopped_by:
        console.print(f"[yellow]stopped at step {last:,} of {run.config.steps:,} by {escape(run.stopped_by)}[/]")
    console.print(f"[dim]training episodes in the last tenth of {last:,} steps; {duration(run.seconds)} in all{speed}[/]\n")
    if run.no_animation:
        console.print(f"[yellow]the page shows no episode ({escape(run.no_animation)})[/]\n")
    if summary.get("restarts"):
        why = f"; the last one: {escape(summary['last_failure'])}" if summary["last_failure"] else ""
        console.print(f"[yellow]environments raised errors and were restarted {summary['restarts']} times{why}[/]\n")
    print_places(
        ("run folder", run.folder),
        ("the curve", f"{run.folder}/{folders.CURVE}"),
        ("train on", f"rulax train --resume {run.folder}" + (f" --steps {2 * run.config.steps}" if run.finished else "")),
        ("watch it", f"rulax play {run.folder}" + (f" --agent {run.best}" if run.best else "")),
        *([("the skills", f"{run.folder}/{folders.SKILLS}")] if run.skills else []),
        *([("schedule", f"{run.folder}/{folders.SCHEDULE}")] if run.turns else []),
        ("in Python", f"rulax.load('{run.folder}').agent.act(observation)"),
        ("the page", f"{run.folder}/{folders.REPORT}"),
    )


def show_found(run: Run, console: Console) -> None:
    """What a rule of skills or a population found beside returns."""
    if run.skills:
        skills = make_table(SKILL_COLUMNS[0], list(SKILL_COLUMNS[1:]))
        for seed, found in enumerate(run.skills[:MOST_SEEDS]):
            skills.add_row(*found.row(str(seed)))
        console.print(skills)
    if run.turns:
        copies = sum(parent != member for turn in run.turns for member, parent in enumerate(turn["parents"]))
        settings = ", ".join(f"{name} {value:.3g}" for name, value in run.schedule[-1].items() if name != "step")
        console.print(f"[bold]best: member {run.best}[/]  ({settings} at the end; {copies} copies in {len(run.turns) - 1} turns)")


def can_be_limited(run: Run) -> bool:
    """Whether its environment takes a time limit as an option."""
    from rulax.envs.adapters.gymnasium import GymnasiumEnvironment

    return run.source is not None and isinstance(run.source[0].environment, GymnasiumEnvironment)


def cell(value: float | None) -> str:
    """One number of the table."""
    return "no episode ended" if value is None else f"{value:.3f}"
