"""Where the time of a meta-step goes when agents act on the host: acting, differentiating beside it, and waiting for that."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

ACTING, DIFFERENTIATING, WAITING = "seconds_acting", "seconds_differentiating", "seconds_waiting"
COMPILING = "seconds_compiling"  # before the first meta-step


class Shares:
    """A second thread for estimates, and clocks.

    JAX runs what one thread asks for in order, so an estimate that the acting thread had asked for would hold up the next decision.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "estimator")
        self.seconds = dict.fromkeys((ACTING, DIFFERENTIATING, WAITING, COMPILING), 0.0)

    def submit(self, function: Callable, *arguments: Any) -> Callable[[], Any]:
        """Start an estimate beside the acting; the function that is returned waits for it."""
        future = self._thread.submit(self.timed(DIFFERENTIATING, function), *arguments)
        return self.timed(WAITING, future.result)

    def timed(self, what: str, function: Callable) -> Callable:
        """The function, whose time is counted."""

        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return jax.block_until_ready(function(*arguments))
            finally:
                self.seconds[what] += time.perf_counter() - began

        return call

    def take(self) -> dict[str, float]:
        """The seconds since this was last asked."""
        taken, self.seconds = self.seconds, dict.fromkeys(self.seconds, 0.0)
        return taken

    def close(self) -> None:
        """End the thread, once it is idle."""
        self._thread.shutdown()
