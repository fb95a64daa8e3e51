"""Records as a table in the terminal, as Markdown, and as one picture on the common axis: 0 no learning, 1 the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from rulax.commands.tables import print_places
from rulax.files import write_atomically
from rulax.methods.catalogue import METHODS, experiments_of
from rulax.report.plot import save_figure

TABLE, PICTURE = "table.md", "scores.png"
HEAD = ("experiment", "value", "goal", "", "reference", "published", "score", "random", "seeds", "minutes")


class MethodResults(NamedTuple):
    """What Python users hold after `rulax.method(...)`."""

    folder: Path
    records: list[dict[str, Any]]  # one per experiment, as in the folder

    @property
    def table(self) -> str:
        """All experiments as a table in Markdown."""
        return markdown(self.records)

    def __repr__(self) -> str:
        judged = [record for record in self.records if record["goal"] is not None]
        return f"MethodResults({self.folder}, {sum(record['pass'] for record in judged)} of {len(judged)} goals reached)"


def list_methods() -> None:
    """Every method and its experiments."""
    for method, about in METHODS.items():
        print(f"{method}\n  {about}")
        for each in experiments_of(method):
            sign = ">=" if each.higher_is_better else "<="
            goal = f"goal: {each.metric} {sign} {each.goal:g}" if each.goal is not None else f"{each.metric}, no goal"
            print(f"    {each.name:18} {each.about}; {goal}; about {each.minutes:g} min per seed")
    print("\nrulax method NAME --experiment EXPERIMENT --seeds 3      rulax method all --suite quick")


def row(record: dict[str, Any]) -> tuple[str, ...]:
    """One experiment."""
    published, reference = record["published"], record["reference"]
    sign = "≥" if record["higher_is_better"] else "≤"
    return (
        record["id"],
        f"{record['value']:.4g} ± {record['ci95']:.2g}",
        f"{sign} {record['goal']:g}" if record["goal"] is not None else "-",
        ("-" if record["goal"] is None else "pass" if record["pass"] else "MISSED") + cut_short(record),
        f"{reference['value']:.4g} ({reference['kind']})",
        f"{published['value']:g}" if published else "-",
        "-" if record["score"] is None else f"{record['score']:.3f}",  # where nobody learns the axis has no length
        f"{record['random']:.4g}",
        str(len(record["seeds"])),
        f"{record['wall_s'] / 60:.1f}",
    )


def cut_short(record: dict[str, Any]) -> str:
    """A remark on an experiment that --budget ended."""
    stopped = [seed for seed in record["per_seed"] if not seed["complete"]]
    return f" (stopped by --budget after {min(seed['meta_updates'] for seed in stopped):,} meta-updates)" if stopped else ""


def show(records: list[dict[str, Any]], folder: Path) -> None:
    """The table and where things are."""
    cells = [HEAD, *map(row, records)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    for number, line in enumerate(cells):
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("─" * width for width in widths))
    for record in records:
        numbers = record["baselines"] | record["details"]
        others = [f"{name} {'diverged' if value is None else format(value, '.4g')}" for name, value in numbers.items()]
        if others:
            print(f"{record['id']}: {', '.join(others)}")
    judged = [record for record in records if record["goal"] is not None]
    missed = [record["id"] for record in judged if not record["pass"]]
    print(f"\n{len(judged) - len(missed)} of {len(judged)} goals reached" + (f"; missed: {', '.join(missed)}" if missed else ""))
    print_places(("records", folder), ("the table", folder / TABLE), ("the picture", folder / PICTURE))


def markdown(records: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    return "\n".join(lines + ["| " + " | ".join(line) + " |" for line in map(row, records)]) + "\n"


def write_summary(folder: Path, records: list[dict[str, Any]]) -> None:
    """Table and picture, into the folder."""
    write_atomically(folder / TABLE, markdown(records))
    save_figure(folder / PICTURE, picture(records))


def picture(records: list[dict[str, Any]]) -> Any:
    """One line per experiment: our score with its interval, and what was published."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display needed

    figure = Figure(figsize=(7.5, 1.2 + 0.36 * len(records)), dpi=140, layout="constrained")
    axes = figure.subplots()
    for place, record in enumerate(reversed(records)):
        # The interval is in units of the metric and is drawn on the axis of scores.
        gap = abs(record["reference"]["value"] - record["random"]) or 1.0
        colour = "#777777" if record["goal"] is None else "#2a7f62" if record["pass"] else "#c4573a"
        axes.errorbar(
            float("nan") if record["score"] is None else record["score"],
            place,
            xerr=record["ci95"] / gap,
            fmt="o",
            color=colour,
            capsize=3,
        )
        if record["published_score"] is not None:
            axes.plot(record["published_score"], place, "d", color="#555577", markersize=6, markerfacecolor="none")
    axes.set_yticks(range(len(records)), [record["id"] for record in reversed(records)])
    axes.axvline(0, color="#999999", linewidth=0.8)
    axes.axvline(1, color="#999999", linewidth=0.8)
    axes.set_xlabel("score: 0 no learning, 1 the reference\ngreen: goal reached, red: missed, ◇ published")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
