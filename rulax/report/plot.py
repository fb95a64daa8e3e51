"""Draws learning curves: `curve.png` with matplotlib, and a small one in blocks for the terminal."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from rulax.files import write_atomically
from rulax.text import count, shown_return

INK, MUTED, LINE = "#1f2933", "#7b8794", "#2563eb"
BLOCKS = " ▁▂▃▄▅▆▇█"


def carry_forward(returns: np.ndarray) -> np.ndarray:
    """Each seed's last value where no episode of it ended, [P, K] -> [P, K]: else the mean would jump as seeds come and go."""
    points = np.arange(len(returns))[:, None]
    # Before its first value a seed points to row 0, which is NaN there, so what is unknown stays unknown.
    last = np.maximum.accumulate(np.where(np.isfinite(returns), points, 0), axis=0)
    return np.take_along_axis(returns, last, axis=0)


def seed_mean(returns: np.ndarray) -> np.ndarray:
    """Mean over the seeds, each with its last value, [P, K] -> [P]; NaN before any has one."""
    returns = carry_forward(returns)
    known = np.isfinite(returns)
    # Not nanmean, which warns wherever no seed has a value yet.
    total = np.where(known, returns, 0.0).sum(-1)
    return np.where(known.any(-1), total / np.maximum(known.sum(-1), 1), np.nan)


def curve_figure(steps: np.ndarray, returns: np.ndarray, title: str) -> Any:
    """Mean over seeds, each seed faintly, and the range between the worst and the best."""
    from matplotlib.figure import Figure  # not pyplot: no global state, no display needed

    figure = Figure(figsize=(7.2, 4.2), dpi=140, layout="constrained")
    axes = figure.subplots()
    known = np.isfinite(returns).any(-1)
    steps, returns = steps[known], carry_forward(returns)[known]
    if len(steps):
        draw_returns(axes, steps, returns)
    else:
        axes.text(0.5, 0.5, "no episode has ended", transform=axes.transAxes, ha="center", color=MUTED)
    tidy(axes, title, 12)
    axes.set_xlabel("environment steps per seed", color=INK)
    axes.set_ylabel("episode return", color=INK)
    axes.margins(x=0.01, y=0.08)
    return figure


def tidy(axes: Any, title: str, size: float) -> None:
    """The look that all our pictures share."""
    axes.set_title(title, loc="left", color=INK, fontsize=size, fontweight="bold", pad=size)
    axes.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(colors=MUTED, length=0, labelsize=min(9, size))
    axes.xaxis.set_major_formatter(lambda value, _: count(value, 6))


def draw_returns(axes: Any, steps: np.ndarray, returns: np.ndarray) -> None:
    """The lines and the band, with the last value written at their end."""
    mean, seeds = seed_mean(returns), returns.shape[1]
    if seeds > 1:
        low = np.where(np.isfinite(returns), returns, np.inf).min(-1)
        high = np.where(np.isfinite(returns), returns, -np.inf).max(-1)
        axes.fill_between(steps, low, high, color=LINE, alpha=0.13, linewidth=0, label="worst to best seed")
        # More lines than that merge into an area that says no more than the band.
        if seeds <= 10:
            axes.plot(steps, returns, color=LINE, alpha=0.25, linewidth=0.8)
    name = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
    axes.plot(steps, mean, color=LINE, linewidth=2.2, label=name, marker="o" if len(steps) == 1 else None)
    axes.annotate(
        shown_return(float(mean[-1])),
        (steps[-1], mean[-1]),
        xytext=(6, 0),
        textcoords="offset points",
        color=LINE,
        fontweight="bold",
        va="center",
        annotation_clip=False,
    )
    axes.legend(frameon=False, loc="best", labelcolor=MUTED, fontsize=9)


def save_figure(path: Path, figure: Any) -> None:
    """Write a figure; the format follows the ending of the name."""
    # Drawn into memory first: the file is replaced as a whole, as everything in a run folder.
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lstrip(".") or "png")
    write_atomically(path, buffer.getvalue())


def block_curve(values: np.ndarray, last_step: float, width: int = 60, height: int = 6) -> list[str]:
    """The curve as lines of text, with the range on the left and the steps below."""
    values = values[np.isfinite(values)]
    if not len(values):
        return ["no episode has ended yet"]
    width = min(width, len(values))
    columns = np.array([part.mean() for part in np.array_split(values, width)])
    low, high = columns.min(), columns.max()
    # A constant curve is drawn in the middle, since at the bottom it would look like failure.
    scale = (columns - low) / (high - low) if high > low else np.full(width, 0.5)
    eighths = np.maximum(1, np.round(scale * height * 8)).astype(int)  # at least a sliver: the worst point is a point too
    labels = {height - 1: shown_return(float(high)), 0: shown_return(float(low))}
    margin = max(map(len, labels.values()))
    lines = []
    for row in reversed(range(height)):
        cells = "".join(BLOCKS[int(np.clip(level - 8 * row, 0, 8))] for level in eighths)
        lines.append(f"{labels.get(row, ''):>{margin}} ┤{cells}")
    end = f"{count(last_step)} steps"
    lines.append(f"{'':>{margin}} └{'─' * width}")
    lines.append(f"{'':>{margin}}  0{end:>{max(width - 1, len(end) + 1)}}")
    return lines
