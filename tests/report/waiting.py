"""Waits for a page in a browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(page: Any, found: Callable[[], bool], seconds: float = 60) -> None:
    """Not Playwright's wait_for_function, which evaluates text in the page: its policy refuses that, unless it is true at once."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, page.locator("body").inner_text()[:300]
        page.wait_for_timeout(100)
