"""Records as a table in the terminal, as Markdown, and as one picture on the common axis: 0 no learning, 1 the reference."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rulax.files import write_atomically
from rulax.methods.catalogue import METHODS, experiments_of

TABLE, PICTURE = "table.md", "scores.png"
HEAD = ("experiment", "value", "goal", "", "reference", "published", "score", "random", "seeds", "minutes")


def list_methods() -> None:
    """Every method and its experiments."""
    for method, about in METHODS.items():
        print(f"{method}\n  {about}")
        for each in experiments_of(method):
            sign = ">=" if each.higher_is_better else "<="
            goal = f"goal: {each.metric} {sign} {each.goal:g}" if each.goal is not None else f"{each.metric}, no goal"
            print(f"    {each.name:18} {each.about}; {goal}; about {each.minutes:g} min per seed")
    print("\nrulax method NAME --experiment EXPERIMENT --seeds 3      rulax method all --suite quick")


def rows(records: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The cells of the table."""
    return [row(record) for record in records]


def row(record: dict[str, Any]) -> tuple[str, ...]:
    """One experiment."""
    published, reference = record["published"], record["reference"]
    sign = "≥" if record["higher_is_better"] else "≤"
    return (
        record["id"],
        f"{record['value']:.4g} ± {record['ci95']:.2g}",
        f"{sign} {record['goal']:g}" if record["goal"] is not None else "-",
        "-" if record["goal"] is None else "pass" if record["pass"] else "MISSED",
        f"{reference['value']:.4g} ({reference['kind']})",
        f"{published['value']:g}" if published else "-",
        f"{record['score']:.3f}",
        f"{record['random']:.4g}",
        str(len(record["seeds"])),
        f"{record['wall_s'] / 60:.1f}",
    )


def show(records: list[dict[str, Any]], folder: Path) -> None:
    """The table and where things are."""
    cells = [HEAD, *rows(records)]
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
    print(f"records      {folder}\nthe table    {folder / TABLE}\nthe picture  {folder / PICTURE}")


def markdown(records: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    return "\n".join(lines + ["| " + " | ".join(line) + " |" for line in rows(records)]) + "\n"


def write_summary(folder: Path, records: list[dict[str, Any]]) -> None:
    """Table and picture, into the folder."""
    write_atomically(folder / TABLE, markdown(records))
    write_atomically(folder / PICTURE, picture(records))


def picture(records: list[dict[str, Any]]) -> bytes:
    """One line per experiment: our score with its interval, and what was published."""
    import matplotlib

    # Before pyplot is imported, which would otherwise look for a display.
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 1.2 + 0.36 * len(records)), layout="constrained")
    for place, record in enumerate(reversed(records)):
        # The interval is in units of the metric and is drawn on the axis of scores.
        gap = abs(record["reference"]["value"] - record["random"]) or 1.0
        colour = "#777777" if record["goal"] is None else "#2a7f62" if record["pass"] else "#c4573a"
        axes.errorbar(record["score"], place, xerr=record["ci95"] / gap, fmt="o", color=colour, capsize=3)
        if record["published_score"] is not None:
            axes.plot(record["published_score"], place, "d", color="#555577", markersize=6, markerfacecolor="none")
    axes.set_yticks(range(len(records)), [record["id"] for record in reversed(records)])
    axes.axvline(0, color="#999999", linewidth=0.8)
    axes.axvline(1, color="#999999", linewidth=0.8)
    axes.set_xlabel("score: 0 no learning, 1 the reference\ngreen: goal reached, red: missed, ◇ published")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=140)
    # pyplot keeps every figure until it is closed.
    plt.close(figure)
    return buffer.getvalue()
