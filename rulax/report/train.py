"""The page of a training run, made from what its folder holds: whether it is finished or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rulax.files import read_json
from rulax.records import folder as folders
from rulax.records.rows import Row, final_returns
from rulax.report import parts
from rulax.report.blocks import Block, Commands, Curves, Fact, Facts, Line, Panels, Table
from rulax.report.html import number
from rulax.report.page import write_page
from rulax.report.plot import carry_forward, seed_mean
from rulax.text import count, duration

NO_PANEL = ("step", "seconds", "episodes", "episode_return", "return_per_seed", "episodes_per_seed")
FIRST = ("episode_length", "loss", "policy_loss", "value_loss", "entropy", "gradient_norm")  # then by name
MOST_FAINT = 10  # seeds that are drawn one by one


def write_train_page(folder: str | Path) -> Path:
    """Write `report.html` into a run folder."""
    folder = Path(folder)
    record = folders.read_config(folder)
    settings, summary = record["settings"], read_json(folder / folders.SUMMARY)
    seeds = settings["seeds"]
    # From the folder and not from the run in memory, so that the page of a killed run can be made in the same way.
    rows, broken = parts.read_lines(folder, lambda row: is_whole(row, seeds))
    title = f"{settings['env']} · {settings['rule']}"
    made = rows[-1]["step"] if rows else 0
    subtitle = f"{seeds} seeds" if seeds > 1 else "1 seed"
    subtitle += f", {made:,} environment steps each"
    blocks = [*parts.broken_lines(broken, folders.METRICS), *results(rows, seeds, summary)]
    blocks.append(commands(folder, record, bool(summary.get("finished"))))
    episodes = sum(row["episodes"] for row in rows)
    seconds = summary.get("seconds") or (rows[-1]["seconds"] if rows else None)
    blocks.append(parts.cost(made * seeds, seconds, summary.get("cpu_seconds"), [("episodes", episodes)]))
    blocks += parts.configuration(record, ("settings", "learning", "network"))
    return write_page(folder / folders.REPORT, title, subtitle, blocks, unfinished(summary, made, settings["steps"]))


def is_whole(row: Row, seeds: int) -> bool:
    """Whether a line of the metrics has all that the page needs."""
    values = row.get("return_per_seed"), row.get("episodes_per_seed")
    return all(isinstance(value, list) and len(value) == seeds for value in values) and "episodes" in row and "seconds" in row


def unfinished(summary: dict[str, Any], made: int, wanted: int) -> str:
    """What is missing, if something is."""
    if summary.get("finished"):
        return ""
    return f"It stopped at step {made:,} of {wanted:,}. The command below goes on from there."


def results(rows: list[Row], seeds: int, summary: dict[str, Any]) -> list[Block]:
    """The results: the numbers at the top, the curve, the other metrics, the seeds."""
    returns = np.array([row["return_per_seed"] for row in rows], dtype=object).astype(np.float64).reshape(-1, seeds)
    final = final_returns(rows)
    return [
        Facts(facts(rows, final, seeds, summary)),
        learning_curve(np.array([row["step"] for row in rows]), returns),
        *other_metrics(rows, line_name(seeds)),
        seed_table(rows, returns, final),
    ]


def facts(rows: list[Row], final: list[float | None], seeds: int, summary: dict[str, Any]) -> list[Fact]:
    """The strip of numbers."""
    known = [value for value in final if value is not None]
    spread = ""
    if len(known) > 1:
        low, high = number(min(known)), number(max(known))
        spread = "the same in all seeds; " if low == high else f"{low} to {high} over seeds; "
    mean = number(sum(known) / len(known)) if known else "–"
    made = rows[-1]["step"] if rows else 0
    seconds = summary.get("seconds") or (rows[-1]["seconds"] if rows else None)
    cpu = summary.get("cpu_seconds")
    return [
        Fact("final return", mean, f"{spread}last tenth of the steps"),
        Fact("environment steps", count(made * seeds), f"{count(made)} for each seed" if seeds > 1 else ""),
        Fact("time", duration(seconds), f"{count(made * seeds / seconds)} steps per second, all included" if seconds else ""),
        Fact("core-hours", parts.core_hours(cpu), f"{parts.whole(cpu)} CPU seconds" if cpu else ""),
    ]


def learning_curve(steps: np.ndarray, returns: np.ndarray) -> Curves:
    """Mean over seeds with its band, each seed faintly."""
    seeds = returns.shape[1]
    known = np.isfinite(returns).any(-1)
    # Points at which no episode ended in any seed would draw a flat piece that nobody measured.
    steps, returns = steps[known], carry_forward(returns)[known]
    name = line_name(seeds)
    low, high, what = parts.seed_band(returns) if len(steps) else (np.zeros(0), np.zeros(0), "")
    lines = [Line(name, steps.tolist(), seed_mean(returns).tolist(), low.tolist(), high.tolist())]
    if 1 < seeds <= MOST_FAINT:
        lines += [Line(name, steps.tolist(), returns[:, seed].tolist(), style="faint") for seed in range(seeds)]
        what += " Thin lines are the seeds."
    return Curves("Learning curve", "environment steps per seed", "episode return", lines, what, log="x")


def line_name(seeds: int) -> str:
    """What every line of the page is."""
    return f"mean of {seeds} seeds" if seeds > 1 else "one seed"


def other_metrics(rows: list[Row], line_name: str) -> list[Block]:
    """Everything else that was measured, as small multiples."""
    names = {name for row in rows for name, value in row.items() if isinstance(value, int | float)} - set(NO_PANEL)
    ordered = sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    panels = []
    for name in ordered:
        points = [(row["step"], row[name]) for row in rows if isinstance(row.get(name), int | float)]
        line = Line(line_name, [step for step, _ in points], [value for _, value in points])
        # A logarithmic axis is only offered where every point has a place on it.
        positive = all(value > 0 for _, value in points)
        panels.append(Curves(name.replace("_", " "), "steps", "", [line], log="y" if positive else ""))
    note = "Each is a mean over the seeds and over what happened since the point before."
    return [Panels("What else was measured", panels, note)] if panels else []


def seed_table(rows: list[Row], returns: np.ndarray, final: list[float | None]) -> Table:
    """One row for each seed."""
    table: list[list[Any]] = []
    for seed in range(returns.shape[1]):
        values = returns[:, seed][np.isfinite(returns[:, seed])]
        episodes = sum(row["episodes_per_seed"][seed] for row in rows)
        best = float(values.max()) if len(values) else None
        table.append([f"seed {seed}", final[seed] if final else None, best, episodes])
    note = "Final return: mean over the episodes in the last tenth of the steps. Best point: of the curve, so it is a lucky one."
    return Table("Seeds", ["seed", "final return", "best point", "episodes"], table, note)


def commands(folder: Path, record: dict[str, Any], finished: bool) -> Commands:
    """How to do it again, go on, and use the agents."""
    settings, where = record["settings"], parts.quoted(folder)
    more = f" --steps {2 * settings['steps']}" if finished else ""
    lines = (
        []
        if record.get("custom")
        else [(f"rulax train --preset {where}/config.json", "The same run again, with exactly these settings")]
    )
    if record.get("command"):
        lines.insert(0, (record["command"], "As it was started"))
    # An object of the user's own cannot be named on a command line.
    if not record.get("custom"):
        lines.append((f"rulax train --resume {where}{more}", "Train on" if finished else "Go on where it stopped"))
    lines.append((f"run = rulax.load({str(folder)!r})", "In Python: run.returns, run.agent.act(observation)"))
    return Commands("Commands", [line for line, _ in lines], [caption for _, caption in lines])
