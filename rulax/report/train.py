"""The page of a training run, made from what its folder holds: whether it is finished or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rulax.evaluation.skill_words import SKILL_NOTE
from rulax.own import shown, shown_with
from rulax.records import folder as folders
from rulax.records.population import best_member, read_turns
from rulax.records.rows import Row, final_returns, is_whole, read_lines
from rulax.report import parts
from rulax.report.blocks import Block, Commands, Curves, Fact, Facts, Line, Picture, Table
from rulax.report.html import number
from rulax.report.page import Page, from_folder, write_page
from rulax.report.plot import carry_forward, seed_mean
from rulax.report.population_plot import population_block
from rulax.text import count, duration, plural

EVALUATIONS = {"evaluation, greedy": "evaluation_greedy_return", "evaluation, as in training": "evaluation_sampled_return"}
NO_PANEL = ("step", "seconds", "episodes", "episode_return", "return_per_seed", "episodes_per_seed", *EVALUATIONS.values())
FIRST = ("episode_length", "loss", "policy_loss", "value_loss", "entropy", "gradient_norm")  # then by name
METRICS_NOTE = "Each is a mean over the seeds and over what happened since the point before."
MOST_FAINT = 10  # seeds that are drawn one by one


@from_folder
def write_train_page(folder: str | Path) -> Path:
    """Write `report.html` into a run folder."""
    return write_page(Path(folder) / folders.REPORT, *train_page(Path(folder)))


@from_folder
def train_page(folder: Path) -> Page:
    """The page of a run folder as it is now."""
    record = folders.read_config(folder)
    settings = record["settings"]
    seeds, unit = settings["seeds"], "member" if settings.get("population") else "seed"
    # From the folder and not from the run in memory, so that the page of a killed run can be made in the same way.
    rows, broken = read_lines(folder, lambda row: is_whole(row, seeds))
    env, rule = (shown_with(settings[part], settings.get(f"{part}_options") or {}) for part in ("env", "rule"))
    title = f"{env} · {rule}"
    made = rows[-1]["step"] if rows else 0
    summary = parts.current_summary(folder, made, settings["steps"])
    subtitle = f"{plural(seeds, unit)}, {made:,} environment steps each"
    final = final_returns(rows)
    turns = read_turns(folder) if unit == "member" else []
    best = best_member(final)
    seen = population_block(turns, best, made)
    seen += animation(folder, shown(settings["env"]), "The best member" if turns else "The first seed's agent")
    seen += skill_blocks(folder, summary)
    blocks = [*parts.broken_lines(broken, folders.METRICS), *results(rows, seeds, unit, summary, seen)]
    blocks.append(commands(folder, record, bool(summary.get("finished"))))
    episodes = sum(row["episodes"] for row in rows)
    seconds = summary.get("seconds") or (rows[-1]["seconds"] if rows else None)
    blocks.append(parts.cost(made * seeds, seconds, summary.get("cpu_seconds"), [("episodes", episodes)]))
    blocks += parts.configuration(record, ("settings", "learning", "network"))
    return Page(title, subtitle, blocks, parts.unfinished(summary, "step", made, settings["steps"]))


def animation(folder: Path, env: str, who: str) -> list[Block]:
    """What was learned, as one sees it, if the folder holds a film of it."""
    source = parts.data_url(folder / folders.FILM)
    words = f"{who} in {env}, by its most likely actions, at the end of this run."
    return [Picture("What it learned", source, words, f"{words} More: rulax play {parts.quoted(folder)}")] if source else []


def skill_blocks(folder: Path, summary: dict[str, Any]) -> list[Block]:
    """What the skills are worth and where they go, if the agents have some."""
    judged = summary.get("skills") or []
    if not judged:
        return []
    columns = ["seed", "skills", "information (nats)", "effective", "recognised", "worst skill"]
    table: list[list[Any]] = []
    for seed, skills in enumerate(judged):
        known = [share for share in skills["accuracy"] if share is not None]
        worst = [sum(known) / len(known), min(known)] if known else [None, None]
        table.append([f"seed {seed}", skills["number"], skills["information"], skills["effective"], *worst])
    source = parts.data_url(folder / folders.SKILLS)
    words = "Episodes of the first seed's agent, with actions drawn as in training; a colour for each skill, a dot where each ends."
    picture: list[Block] = [Picture("Where each skill goes", source, words, words)] if source else []
    return [*picture, Table("Skills", columns, table, f"{SKILL_NOTE[0].upper()}{SKILL_NOTE[1:]}.")]


def results(rows: list[Row], seeds: int, unit: str, summary: dict[str, Any], seen: list[Block]) -> list[Block]:
    """The results: the numbers at the top, the curve, an episode, the other metrics, the seeds."""
    returns = np.array([row["return_per_seed"] for row in rows], dtype=object).astype(np.float64).reshape(-1, seeds)
    final = final_returns(rows)
    return [
        Facts(facts(rows, final, seeds, unit, summary)),
        learning_curve(np.array([row["step"] for row in rows]), returns, evaluation_lines(rows), unit),
        *seen,
        *parts.metric_panels("What else was measured", rows, FIRST, NO_PANEL, "steps", line_name(seeds, unit), METRICS_NOTE),
        seed_table(rows, returns, final, unit),
    ]


def facts(rows: list[Row], final: list[float | None], seeds: int, unit: str, summary: dict[str, Any]) -> list[Fact]:
    """The strip of numbers."""
    known = [value for value in final if value is not None]
    spread = ""
    if len(known) > 1:
        low, high = number(min(known)), number(max(known))
        spread = f"the same in all {unit}s; " if low == high else f"{low} to {high} over {unit}s; "
    mean = number(sum(known) / len(known)) if known else "–"
    made = rows[-1]["step"] if rows else 0
    seconds = summary.get("seconds") or (rows[-1]["seconds"] if rows else None)
    return [
        Fact("final return", mean, f"{spread}training episodes in the last tenth of the steps"),
        *evaluation_facts(rows),
        Fact("environment steps", count(made * seeds), f"{count(made)} for each {unit}" if seeds > 1 else ""),
        Fact("time", duration(seconds), f"{count(made * seeds / seconds)} steps per second, all included" if seconds else ""),
        parts.core_hours_fact(summary.get("cpu_seconds")),
    ]


def evaluations(rows: list[Row]) -> dict[str, list[tuple[int, float]]]:
    """Steps and returns of the evaluations during training, by kind; empty where there were none."""
    found = {
        name: [(row["step"], row[metric]) for row in rows if isinstance(row.get(metric), int | float)]
        for name, metric in EVALUATIONS.items()
    }
    return {name: points for name, points in found.items() if points}


def evaluation_facts(rows: list[Row]) -> list[Fact]:
    """The last evaluation."""
    return [
        Fact(f"return in {name}", number(points[-1][1]), f"separate episodes at step {points[-1][0]:,}")
        for name, points in evaluations(rows).items()
    ]


def evaluation_lines(rows: list[Row]) -> list[Line]:
    """One line per kind of evaluation."""
    return [Line(name, [step for step, _ in points], [value for _, value in points]) for name, points in evaluations(rows).items()]


def learning_curve(steps: np.ndarray, returns: np.ndarray, evaluated: list[Line], unit: str) -> Curves:
    """Mean over seeds with its band, each seed faintly; evaluations beside it."""
    seeds = returns.shape[1]
    known = np.isfinite(returns).any(-1)
    # Points at which no episode ended in any seed would draw a flat piece that nobody measured.
    steps, returns = steps[known], carry_forward(returns)[known]
    name = line_name(seeds, unit)
    low, high, what = parts.seed_band(returns) if len(steps) else (np.zeros(0), np.zeros(0), "")
    lines = [Line(name, steps.tolist(), seed_mean(returns).tolist(), low.tolist(), high.tolist())]
    if unit != "seed":
        what = what.replace(" seeds", f" {unit}s")
    if 1 < seeds <= MOST_FAINT:
        lines += [Line(name, steps.tolist(), returns[:, seed].tolist(), style="faint") for seed in range(seeds)]
        what += f" Thin lines are the {unit}s."
    what = f"Return of training episodes, as they ended, with actions drawn at random from the policy. {what}"
    if evaluated:
        what += " Evaluations are separate episodes, from which nothing is learned: by the most likely actions, and as in training."
    return Curves("Learning curve", f"environment steps per {unit}", "episode return", [*lines, *evaluated], what, log="x")


def line_name(seeds: int, unit: str) -> str:
    """What every line of the page is."""
    return f"training, mean of {seeds} {unit}s" if seeds > 1 else "training, one seed"


def seed_table(rows: list[Row], returns: np.ndarray, final: list[float | None], unit: str) -> Table:
    """One row for each seed."""
    table: list[list[Any]] = []
    for seed in range(returns.shape[1]):
        values = returns[:, seed][np.isfinite(returns[:, seed])]
        episodes = sum(row["episodes_per_seed"][seed] for row in rows)
        best = float(values.max()) if len(values) else None
        table.append([f"{unit} {seed}", final[seed] if final else None, best, episodes])
    note = "Final return: mean over training episodes in the last tenth of the steps. Best point: a lucky one of the curve."
    return Table(f"{unit.capitalize()}s", [unit, "final return", "best point", "episodes"], table, note)


def commands(folder: Path, record: dict[str, Any], finished: bool) -> Commands:
    """How to do it again, go on, and use the agents."""
    settings, where = record["settings"], parts.quoted(folder)
    more = f" --steps {2 * settings['steps']}" if finished else ""
    lines = [(record["command"], "As it was started")] if record.get("command") else []
    # An object of the user's own cannot be named on a command line.
    if not record.get("custom"):
        lines.append((f"rulax train --preset {where}/config.json", "The same run again, with exactly these settings"))
        lines.append((f"rulax train --resume {where}{more}", "Train on" if finished else "Go on where it stopped"))
        lines.append((f"rulax play {where}", "Watch the agent"))
        if settings.get("population"):
            line = f"rulax train {settings['env']} --rule {settings['rule']} --schedule {where}/{folders.SCHEDULE}"
            lines.append((line, "Train other agents by the schedule that was found"))
        lines.append((f"rulax evaluate {where}", "What it earns in separate episodes, with intervals"))
    lines.append((f"run = rulax.load({str(folder)!r})", "In Python: run.returns, run.agent.act(observation)"))
    return parts.commands("Commands", lines)
