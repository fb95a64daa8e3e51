"""A real browser for the tests that are marked `browser`, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium: Playwright's own, or that of the system."""
    api = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install 'rulax[browser]'")
    with api.sync_playwright() as playwright:
        found = None
        for path in (None, *filter(None, map(shutil.which, SYSTEM))):
            try:
                found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
                break
            except api.Error:
                continue
        if found is None:
            pytest.skip("no Chromium: `playwright install chromium`, or the system's package `chromium`")
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """`open_page(path, width, dark)` opens a file without a network; at the end no page may have complained."""
    complaints: list[str] = []
    contexts = []

    def open_it(path: Any, width: int = 1280, dark: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or complaints.append(request.url))
        page.goto(f"file://{path}")
        page.wait_for_selector("html[data-drawn]", timeout=10_000)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
