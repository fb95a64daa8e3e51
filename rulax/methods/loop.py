"""A pure step repeated for about a second at a time: what a study's `advance` is made of where no `Trainer` is."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from rulax.learning.train import CHUNK_SECONDS
from rulax.types import Array, Metrics, PyTree, strong


class Loop:
    """Repeats `step: state -> state, metrics`. The number of repetitions is an argument, so one program serves them all."""

    def __init__(self, step: Callable[[PyTree], tuple[PyTree, Metrics]], total: int):
        self.step, self.total, self.made = step, total, 0
        self._chunk = 1
        self._several = jax.jit(self._repeat)

    def done(self) -> bool:
        """Whether all repetitions are made."""
        return self.made >= self.total

    def advance(self, state: PyTree) -> tuple[PyTree, dict[str, float]]:
        """Go on for about a second: the next state, and the means of the metrics."""
        number = min(self._chunk, self.total - self.made)
        began = time.perf_counter()
        state, sums = jax.block_until_ready(self._several(strong(state), jnp.int32(number)))
        self._chunk = max(1, int(number * min(CHUNK_SECONDS / (time.perf_counter() - began), 4)))
        self.made += number
        return state, {name: float(value) / number for name, value in sums.items()}

    def _repeat(self, state: PyTree, number: Array) -> tuple[PyTree, Metrics]:
        example = jax.eval_shape(self.step, state)[1]
        nothing = {name: jnp.zeros((), jnp.float32) for name in example}

        def body(_: Array, carry: tuple[PyTree, Metrics]) -> tuple[PyTree, Metrics]:
            state, sums = carry
            state, metrics = self.step(state)
            return state, {name: sums[name] + metrics[name] for name in sums}

        return jax.lax.fori_loop(0, number, body, (state, nothing))
