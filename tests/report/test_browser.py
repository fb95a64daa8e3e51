"""The page in a real browser: it draws, it answers, it fits on a telephone, and it opens fast."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rulax.report import blocks as b
from rulax.report.page import write_page
from rulax.report.train import write_train_page
from tests.report.folders import train_folder
from tests.report.test_page import EVIL, every_block
from tests.report.waiting import until

pytestmark = pytest.mark.browser


def line(name: str, shift: float, points: int = 200) -> b.Line:
    x = [1000 * (i + 1) for i in range(points)]
    mean = [shift + math.tanh(i / 40) for i in range(points)]
    return b.Line(name, x, mean, [value - 0.1 for value in mean], [value + 0.1 for value in mean])


@pytest.fixture
def two_lines(tmp_path: Path) -> Path:
    curves = b.Curves("Curve", "steps", "return", [line("ppo", 0.0), line("disco", 0.5)], log="x")
    table = b.Table("Scores", ["rule", "score"], [["b", 9.0], ["a", 10.0], ["c", None], ["d", -1.5]])
    panels = b.Panels("Panels", [b.Curves(env, "steps", "", [line("ppo", 0.0), line("disco", 0.1)]) for env in "xyz"])
    return write_page(tmp_path / "report.html", "Two lines", "", [curves, panels, table, b.Commands("Run", ["rulax train catch"])])


def test_everything_is_drawn_and_nothing_complains(open_page, tmp_path: Path) -> None:
    page = open_page(write_page(tmp_path / "report.html", EVIL, EVIL, every_block(EVIL)))
    assert page.evaluate("document.querySelectorAll('.chart').length") == 5
    assert page.evaluate(
        "[...document.querySelectorAll('.chart')].every((c) => c.querySelector('svg path, svg rect, table.heat td'))"
    )
    assert page.evaluate("document.querySelectorAll('.notice').length") == 1  # the one of the example: no chart failed
    assert page.locator(".interactive").get_attribute("data-ran") == str(len(EVIL.encode("utf-16-le")) // 2)
    assert page.locator("h1").inner_text() == EVIL.replace("\u2028", " ") or EVIL in page.locator("h1").text_content()


def highest(ticks: Any) -> float:
    """The largest number at an axis; the page writes a true minus."""
    return max(float(tick.replace("−", "-")) for tick in ticks.all_text_contents())


def test_published_figures_are_diamonds_that_flatten_nothing(open_page, tmp_path: Path) -> None:
    def mark(name: str, steps: int, value: float) -> b.Line:
        return b.Line(name, [steps], [value], style="published")

    marks = [mark("near: 1.2", 100_000, 1.2), mark("later: 0.5", 10**9, 0.5), mark("far: 900", 10**9, 900.0)]
    rows = [
        b.IntervalRow("ppo", 0.5, 0.4, 0.6),
        b.IntervalRow("near", 0.7, published=True),
        b.IntervalRow("far", 90.0, published=True),
    ]
    blocks = [b.Curves("Curve", "steps", "return", [line("ppo", 0.0), *marks]), b.Intervals("Scores", "score", rows)]
    page = open_page(write_page(tmp_path / "report.html", "t", "", blocks))
    curve, scores = (page.locator(f".chart >> nth={number}") for number in (0, 1))
    assert curve.locator("path.published").count() == 3
    said = [text for text in curve.locator("text.reference").all_text_contents() if ":" in text]
    assert said == ["near: 1.2", "later: 0.5 →", "far: 900 → ↑"]
    assert highest(curve.locator("text.tick.y")) <= 2  # the axis of our own curve
    assert (scores.locator("path.published").count(), scores.locator("circle.dot").count()) == (2, 1)
    assert [text[-1] for text in scores.locator("text.words").all_text_contents()] == ["]", "0", "→"]
    assert highest(scores.locator("text.tick")) < 2


def test_an_injected_script_is_refused(browser, tmp_path: Path) -> None:
    """Should escaping ever fail, the policy still lets nothing run."""
    path = write_page(tmp_path / "report.html", "t", "", [b.Text("t", ["HERE"])])
    path.write_text(path.read_text().replace("HERE", "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"))
    page = browser.new_page()
    page.goto(f"file://{path}")
    page.wait_for_selector("html[data-drawn]")
    assert page.evaluate("window.hacked === undefined")
    page.close()


def test_an_interactive_part_draws_with_the_charts_of_the_page(open_page, tmp_path: Path) -> None:
    html = '<label>slope <input type="range" min="0" max="10" value="1"></label>'
    html += '<div class="a"></div><div class="b"></div><div class="c"></div>'
    script = """
      const line = (k) => ({ name: 'k', x: data.x, mean: data.x.map((x) => k * x) });
      const spec = (k) => ({ title: 'line', x_label: 'x', y_label: 'y', lines: [line(k)] });
      const rows = (k) => ({ title: 'rows', unit: '', rows: [{ name: 'k', value: k, low: k - 1, high: k + 1 }] });
      const matrix = (k) => ({ x_labels: ['a'], y_labels: ['b'], values: [[k]] });
      const [a, b, c] = ['.a', '.b', '.c'].map((name) => root.querySelector(name));
      const drawn = [charts.curves(a, spec(1)), charts.intervals(b, rows(1)), charts.heatmap(c, matrix(1))];
      root.querySelector('input').addEventListener('input', (event) => {
        const k = Number(event.target.value);
        drawn[0].update(spec(k)); drawn[1].update(rows(k)); drawn[2].update(matrix(k));
      });
    """
    page = open_page(write_page(tmp_path / "report.html", "t", "", [b.Interactive("Drag", html, script, {"x": [0, 1, 2]})]))
    before = page.locator(".a path.line").get_attribute("d")
    page.locator("input").fill("7")
    assert page.locator(".a path.line").count() == 1
    assert page.locator(".a text.tick.y").last.text_content() == "15"  # 7 * 2, rounded up by the axis
    assert page.locator(".a path.line").get_attribute("d") != before
    assert "7.000" in page.locator(".b text.words").text_content()
    assert page.locator(".c tbody td").inner_text() == "7.00"


def test_the_legend_switches_lines(open_page, two_lines: Path) -> None:
    page = open_page(two_lines)
    first, panels = page.locator("#s0"), page.locator("#s1")
    assert first.locator("path.line").count() == 2
    first.get_by_role("button", name="disco").click()
    assert first.locator("path.line").count() == 1
    assert first.locator("path.band").count() == 1
    assert first.get_by_role("button", name="disco").get_attribute("aria-pressed") == "false"
    assert panels.locator("path.line").count() == 6  # another legend
    panels.get_by_role("button", name="ppo").focus()
    page.keyboard.press("Enter")
    assert panels.locator("path.line").count() == 3
    first.get_by_role("button", name="disco").click()
    assert first.locator("path.line").count() == 2
    first.get_by_role("button", name="ppo").click(modifiers=["Alt"])
    assert first.locator("path.line").count() == 1
    assert first.get_by_role("button", name="disco").get_attribute("aria-pressed") == "false"


def test_hovering_and_arrow_keys_read_the_curve(open_page, two_lines: Path) -> None:
    page = open_page(two_lines)
    area = page.locator("#s0 rect.area").bounding_box()
    page.mouse.move(area["x"] + area["width"] - 1, area["y"] + 40)
    text = page.locator("#s0 .readout").inner_text()
    assert "200,000 steps" in text
    assert f"{0.5 + math.tanh(199 / 40):.3f}" in text
    assert text.index("disco") < text.index("ppo")  # the higher line first
    page.mouse.move(5, 5)
    assert page.locator("#s0 .readout").is_hidden()
    page.locator("#s0 svg[role=img]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert "2,000 steps" in page.locator("#s0 .readout").inner_text()
    assert f"{math.tanh(1 / 40):.3f}" in page.locator("#said").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#s0 .readout").is_hidden()


def test_the_axis_can_be_a_logarithm(open_page, two_lines: Path) -> None:
    page = open_page(two_lines)
    ticks = "[...document.querySelectorAll('#s0 text.tick')].map((t) => t.textContent)"
    assert "50k" in page.evaluate(ticks)
    page.locator("#s0").get_by_role("button", name="log x").click()
    assert {"1k", "10k", "100k"} <= set(page.evaluate(ticks))


def test_ticks_are_round_numbers(open_page, tmp_path: Path) -> None:
    ranges = [
        (0, 1, {"0", "0.5", "1"}),
        (-0.93, 0.98, {"−1", "0", "1"}),
        (1.0985, 1.0992, {"1.0986", "1.099"}),
        (3e6, 9e6, {"4M", "8M"}),
        (2e-5, 9e-5, {"4e−5"}),
    ]
    panels = [b.Curves(str(i), "x", "", [b.Line("a", [0, 1], [low, high])]) for i, (low, high, _) in enumerate(ranges)]
    page = open_page(write_page(tmp_path / "report.html", "t", "", [b.Panels("p", panels)]))
    for index, (_, _, expected) in enumerate(ranges):
        found = page.evaluate(
            f"[...document.querySelectorAll('.panel')[{index}].querySelectorAll('text.tick.y')].map((t) => t.textContent)"
        )
        assert len(found) == len(set(found)) <= 9
        assert expected & set(found), (found, expected)


def test_tables_sort(open_page, two_lines: Path) -> None:
    page = open_page(two_lines)
    column = "[...document.querySelectorAll('#s2 tbody tr')].map((r) => r.cells[0].textContent).join('')"
    head = page.locator("#s2 th").nth(1)
    head.get_by_role("button").click()
    assert page.evaluate(column) == "abdc"  # largest first, as numbers, what was not measured last
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").click()
    assert page.evaluate(column) == "dbac"
    page.locator("#s2 th").nth(0).get_by_role("button").click()
    assert page.evaluate(column) == "abcd"
    assert head.get_attribute("aria-sort") == "none"


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_and_the_button(open_page, two_lines: Path, dark: bool) -> None:
    page = open_page(two_lines, dark=dark)
    paper = "getComputedStyle(document.body).backgroundColor"
    light, night = "rgb(253, 253, 252)", "rgb(20, 23, 27)"
    assert page.evaluate(paper) == (night if dark else light)
    page.locator("#theme").click()
    assert page.evaluate(paper) == (light if dark else night)
    # The browser hands what a page stores to another process, which is in no hurry on a busy machine.
    for _ in range(20):
        page.wait_for_timeout(500)
        page.reload()
        if page.evaluate(paper) == (light if dark else night):
            return
    pytest.fail("the choice is not remembered")


def test_a_telephone_needs_no_scrolling_sideways(open_page, tmp_path: Path) -> None:
    names = ["a_rule_with_quite_a_long_name", "ppo", "runs/discover-grids-001/rule.safetensors"]
    blocks: list[b.Block] = [
        b.Panels(
            "Curves",
            [
                b.Curves(env, "environment steps", "return", [line(name, 0.1) for name in names])
                for env in ("catch", "gymnax/Breakout-MinAtar")
            ],
        ),
        b.Intervals("IQM", "score", [b.IntervalRow(name, 0.5, 0.4, 0.6) for name in names]),
        b.Heatmap("Improvement", names, names, [[0.5] * 3] * 3),
        b.Table("Wide", [f"a column {i}" for i in range(12)], [[0.5] * 12]),
        b.Commands(
            "Run", ["rulax train gymnax/Breakout-MinAtar --rule runs/discover-grids-001/rule.safetensors --steps 1000000 --seeds 5"]
        ),
    ]
    path = write_page(tmp_path / "report.html", "A_title_that_is_one_very_long_word_without_any_space_in_it", "", blocks)
    for width in (320, 390, 768):
        page = open_page(path, width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    train = open_page(write_train_page(train_folder(tmp_path / "run")), width=360)
    assert train.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_chart_follows_the_width_of_the_window(open_page, two_lines: Path) -> None:
    page = open_page(two_lines)
    page.set_viewport_size({"width": 500, "height": 800})
    width = "document.querySelector('#s0 svg[role=img]').viewBox.baseVal.width"
    until(page, lambda: page.evaluate(width) < 500)


def test_copying_a_command(open_page, two_lines: Path) -> None:
    page = open_page(two_lines)
    page.locator("button.copy").click()
    page.get_by_text("copied", exact=True).first.wait_for(timeout=3000)


def fifty_runs(path: Path, panels: bool) -> Path:
    lines = [line(f"run {number}", number / 50) for number in range(50)]
    if not panels:
        return write_page(path, "Fifty runs", "", [b.Curves("Curves", "steps", "return", lines)])
    charts = [b.Curves(f"environment {i}", "steps", "return", [line(f"rule {j}", j / 5) for j in range(5)]) for i in range(10)]
    return write_page(path, "Fifty runs", "", [b.Panels("Curves", charts)])


@pytest.mark.parametrize("panels", [False, True])
def test_fifty_runs_open_in_under_a_second(open_page, tmp_path: Path, panels: bool) -> None:
    path = fifty_runs(tmp_path / "report.html", panels)
    times: list[int] = []
    # The best of ten, because others use this machine too.
    while len(times) < 10 and min(times, default=1000) >= 1000:
        page = open_page(path)
        page.wait_for_selector("html[data-shown]")
        times.append(int(page.evaluate("document.documentElement.dataset.shown")))
    assert page.locator("path.line").count() == 50
    assert page.locator("path.band").count() == (50 if panels else 0)  # fifty bands in one chart would hide each other
    # Milliseconds from asking for the page until it is on the screen.
    assert min(times) < 1000, times
    print(f"fifty runs, {'ten panels' if panels else 'one chart'}: {times} ms")
