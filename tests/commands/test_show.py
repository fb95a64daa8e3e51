"""What is drawn and printed: the block curve, the picture, numbers in a few characters."""

from __future__ import annotations

import numpy as np
import pytest

from rulax.commands.progress import Bar, Lines, Status
from rulax.report.plot import block_curve, curve_figure, save_figure, seed_mean
from rulax.text import count, duration, shown_return


def test_block_curve_rises() -> None:
    lines = block_curve(np.linspace(-1, 1, 200), 1e6, width=40, height=5)
    assert lines[0].startswith(" 0.98 ┤ ")
    assert lines[0].endswith("▁▂▃▄▅▆▇█")
    assert lines[4].startswith("-0.98 ┤▁")
    assert lines[-1].endswith("1M steps")
    bottom = lines[4].split("┤")[1]
    assert len(bottom) == 40
    assert " " not in bottom


@pytest.mark.parametrize("values", [[], [np.nan, np.nan], [1.0], [2.0, 2.0, 2.0], [np.nan, 1.0, -3.0]])
def test_odd_curves_are_drawn_too(values: list[float], tmp_path) -> None:
    array = np.array(values, float)
    assert block_curve(array, 100)
    save_figure(tmp_path / "c.png", curve_figure(np.arange(len(array)), array[:, None], "title"))
    assert (tmp_path / "c.png").stat().st_size > 1000


def test_picture_names_its_axes() -> None:
    figure = curve_figure(np.arange(3), np.array([[0.0, 1.0], [1.0, np.nan], [np.nan, np.nan]]), "catch · ppo")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "environment steps per seed"
    assert axes.get_ylabel() == "episode return"
    assert axes.get_title(loc="left") == "catch · ppo"


def test_a_seed_without_an_episode_keeps_its_last_value() -> None:
    np.testing.assert_array_equal(seed_mean(np.array([[1.0, 3.0], [np.nan, 4.0]])), [2.0, 2.5])
    np.testing.assert_array_equal(seed_mean(np.array([[np.nan, 3.0], [1.0, np.nan]])), [3.0, 2.0])
    assert np.isnan(seed_mean(np.array([[np.nan]])))[0]


def test_numbers_are_short() -> None:
    assert [count(7), count(1234), count(2.5e6)] == ["7", "1.23k", "2.5M"]
    assert [duration(5), duration(65), duration(3661), duration(None)] == ["0:05", "1:05", "1:01:01", "-"]
    assert [shown_return(None), shown_return(0.12345), shown_return(12345.6)] == ["-", "0.123", "12,346"]


def test_plain_lines_are_rare(capsys) -> None:
    lines = Lines()
    lines.start("catch", Status(0, 100, (), None))
    for step in range(1, 101):
        lines.update(Status(step, 100, ["return 0.5", "50 steps/s"], 3.0))
    output = capsys.readouterr().err.splitlines()
    assert output[0] == "catch: compiling…"
    assert len(output) <= 3
    assert output[-1] == "100.0 % · step 100 · return 0.5 · 50 steps/s"  # at the end nothing is left


def test_the_end_is_told_once_and_a_bar_needs_no_words(capsys) -> None:
    lines = Lines()
    lines.start("compare", Status(0, 100, (), None))
    lines.update(Status(100, 100, ["return 0.5"], 6.0))  # the last cell
    lines.update(Status(100, 100, (), None))  # and the comparison
    assert capsys.readouterr().err.count("100.0 %") == 1
    bar = Bar()
    bar.start("compare", Status(0, 100, (), None))
    bar.update(Status(100, 100, (), None))
    bar.stop()
