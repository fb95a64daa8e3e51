"""A real browser for the tests that are marked `browser`, where there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

SYSTEM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# As root, as CI is, there is no sandbox; and a browser that looks for updates would be refused by a closed network.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def no_browser(why: str) -> NoReturn:
    """Skip, with the reason; where CI has promised a browser, fail."""
    if os.environ.get("RULAX_TEST_BROWSER") == "required":
        pytest.fail(f"RULAX_TEST_BROWSER asks for a browser, and there is {why}")
    pytest.skip(why)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium: that of the system, or Playwright's own."""
    try:
        from playwright import sync_api as api
    except ImportError:
        no_browser("no Playwright: pip install 'rulax[browser]'")
    with api.sync_playwright() as playwright:
        found, said = None, ""
        for path in (*filter(None, map(shutil.which, SYSTEM)), None):
            try:
                found = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
                break
            except api.Error as error:
                said = said or str(error).splitlines()[0]
        if found is None:
            no_browser(f"no Chromium that starts ({said}): the system's package `chromium`, or `playwright install chromium`")
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """`visit(address, width, dark)` opens a page that asks nobody else; at the end none may have complained."""
    complaints: list[str] = []
    contexts = []

    def open_it(address: str, width: int = 1280, dark: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            offline=address.startswith("file:"),
        )
        contexts.append(context)
        page = context.new_page()
        own = (address, "data:", "blob:")
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(own) or complaints.append(request.url))
        page.goto(address)
        page.wait_for_selector("html[data-drawn]", timeout=120_000)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def open_page(visit: Callable[..., Any]) -> Callable[..., Any]:
    """`open_page(path, width, dark)` opens a file, without a network."""
    return lambda path, width=1280, dark=False: visit(f"file://{path}", width, dark)
