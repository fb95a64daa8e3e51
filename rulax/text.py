"""Numbers as a reader wants them: short counts, durations, returns."""

from __future__ import annotations


def count(number: float) -> str:
    """1234567 -> '1.23M'."""
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{suffix}"
    return f"{number:.3g}"


def duration(seconds: float | None) -> str:
    """3661 -> '1:01:01'."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def shown_return(value: float | None) -> str:
    """A return in a few characters."""
    return "-" if value is None else f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
