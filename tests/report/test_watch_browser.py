"""A live page in a real browser: it grows without being loaded again, and leaves the reader where they were."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rulax
from tests.report.folders import train_folder, train_row
from tests.report.waiting import until

pytestmark = pytest.mark.browser

POINTS = "(document.querySelector('.chart.curves path.line').getAttribute('d').match(/[ML]/g) || []).length"
STATE = "document.getElementById('live').className"


def at_rest(page: Any, part: Any) -> float:
    """Where a part is on the screen once the page has stopped scrolling: clicks and a focus scroll smoothly."""
    seen: list[float] = []
    until(page, lambda: (seen.append(part.bounding_box()["y"]) or len(set(seen[-5:])) == 1) and len(seen) >= 5)
    return seen[-1]


def test_it_grows_and_the_reader_stays(visit, tmp_path: Path) -> None:
    folder = train_folder(tmp_path / "run", finished=False)
    (folder / "summary.json").unlink()
    with rulax.watch(folder) as watching:
        page = visit(watching.url)
        until(page, lambda: "Live. Last written" in page.locator("#live").inner_text())
        page.evaluate("window.marker = 1")
        page.locator("#theme").click()
        seeds = page.locator("section", has=page.get_by_role("heading", name="Seeds"))
        seeds.locator("th").nth(1).get_by_role("button").click()
        page.get_by_text("Configuration").click()
        page.get_by_role("button", name="log x").click()
        curve = page.locator(".chart.curves svg[role=img]").first
        curve.focus()
        page.keyboard.press("Home")
        page.evaluate("scrollTo({ top: 400, behavior: 'instant' })")
        assert page.evaluate(POINTS) == 10
        seen = at_rest(page, curve)
        with (folder / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(train_row(step, [1.0, 3.0, 2.0])) + "\n" for step in (1100, 1200))
        until(page, lambda: page.evaluate(POINTS) == 12)
        assert page.locator(".subtitle").inner_text() == "3 seeds, 1,200 environment steps each"
        assert [cell.strip() for cell in seeds.locator("tbody td:first-child").all_inner_texts()] == ["seed 1", "seed 2", "seed 0"]
        assert seeds.locator("th").nth(1).get_attribute("aria-sort") == "descending"
        # What the reader looks at stays where it is on the screen; scrollY itself may change, since the browser scrolls by what
        # has grown above it.
        assert curve.bounding_box()["y"] == pytest.approx(seen, abs=2)
        assert page.evaluate("[window.marker, document.documentElement.dataset.theme]") == [1, "dark"]
        assert page.evaluate("[...document.querySelectorAll('details[open] h2')].map((h) => h.textContent)") == [
            "Cost",
            "Configuration",
        ]
        assert page.get_by_role("button", name="log x").get_attribute("aria-pressed") == "true"
        assert page.evaluate("document.activeElement.getAttribute('role')") == "img"
        assert "100 environment steps" in page.locator(".readout").first.inner_text()
        (folder / "summary.json").write_text(json.dumps({"finished": True, "steps": 1200, "seconds": 12.0}))
        until(page, lambda: "Finished." in page.locator("#live").inner_text())
        page.context.close()


def test_a_real_run_from_its_first_moment_until_it_is_stopped(visit, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    line = [sys.executable, "-m", "rulax", "train", "catch", "--rule", "policy_gradient", "--steps", "1e9", "--log-every", "2e4"]
    line += ["--hidden", "8", "--streams", "8", "--out", str(folder), "--quiet"]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(line, stdout=said, stderr=said)
    try:
        while not (folder / "config.json").exists():
            assert process.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.1)
        with rulax.watch(folder) as watching:
            page = visit(watching.url)
            page.evaluate("window.marker = 1")
            until(page, lambda: page.evaluate(STATE) == "running")
            seen = page.evaluate(POINTS)
            until(page, lambda: page.evaluate(POINTS) > seen + 1)
            assert page.evaluate("window.marker") == 1  # it was never loaded again
            process.send_signal(signal.SIGTERM)
            until(page, lambda: page.evaluate(STATE) == "stopped")
            until(page, lambda: page.locator("text=goes on from there").count() == 1)
            page.context.close()
    finally:
        process.kill()
        process.wait()
