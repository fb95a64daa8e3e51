"""Pictures on a terminal: two pixels to a character, one above the other, in full colour."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rulax.text import plural, shown_return

if TYPE_CHECKING:
    import numpy as np

    from rulax.evaluation.playing import Moment

HIDE, SHOW, RESET, CLEAR_LINE, CLEAR_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[0m", "\x1b[K", "\x1b[J"
HALF = "▀"  # its upper half has the foreground's colour, its lower half the background's
MOST_COLUMNS = 80
PAUSE = 0.7  # seconds between episodes


def watch(moments: Iterable[Moment], fps: float) -> None:
    """Show moment after moment in one place; the terminal is left as it was, also after Ctrl-C."""
    out, drawn, due = sys.stdout, 0, time.monotonic()
    out.write(HIDE)
    try:
        for moment in moments:
            columns, rows = shutil.get_terminal_size()
            lines = [*as_blocks(moment.picture, min(columns - 1, MOST_COLUMNS), max(2, rows - 3)), said(moment)]
            up = f"\x1b[{drawn}F" if drawn else ""
            # What is left of a larger picture below this one goes too.
            out.write(up + "".join(f"{line}{RESET}{CLEAR_LINE}\n" for line in lines) + CLEAR_BELOW)
            out.flush()
            drawn = len(lines)
            due = max(due + 1 / fps, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()) + (PAUSE if moment.ended else 0))
    finally:
        out.write(RESET + SHOW)
        out.flush()


def tell(moments: Iterable[Moment]) -> None:
    """One line per episode, for pipes and logs."""
    for moment in moments:
        if moment.ended:
            print(said(moment), flush=True)
    print("to see it, run this in a terminal, or save a film with --gif FILE", file=sys.stderr)


def said(moment: Moment) -> str:
    """Where an episode is."""
    end = (", time limit" if moment.truncated else ", ended") if moment.ended else ""
    return f"episode {moment.episode + 1}: {plural(moment.step, 'step')}, return {shown_return(moment.total)}{end}"


def as_blocks(picture: np.ndarray, columns: int, rows: int) -> list[str]:
    """A picture as lines of coloured characters, at most so many of each."""
    import numpy as np
    from PIL import Image

    image = Image.fromarray(picture)
    scale = min(columns / image.width, 2 * rows / image.height, 1.0)
    width, height = max(1, round(image.width * scale)), max(2, round(image.height * scale) // 2 * 2)
    pixels = np.asarray(image.resize((width, height), Image.Resampling.BOX)).tolist()
    lines = []
    for row in range(0, height, 2):
        line, last = "", None
        for column in range(width):
            colours = (*pixels[row][column], *pixels[row + 1][column])
            # Only where it changes: a frame is then a few kB, which even a slow connection shows in time.
            if colours != last:
                line += "\x1b[38;2;{};{};{};48;2;{};{};{}m".format(*colours)
                last = colours
            line += HALF
        lines.append(line)
    return lines
