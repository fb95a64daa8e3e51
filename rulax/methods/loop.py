"""What `advance` of a seed does: about a second of a `Trainer`, or of a pure step where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from rulax.learning.train import CHUNK_SECONDS, Trainer, TrainState
from rulax.methods.base import Progress
from rulax.types import Array, Metrics, PyTree, strong


def advance_trainer(trainer: Trainer, state: TrainState) -> tuple[TrainState, Progress]:
    """The next state, and how far it has come; its value is the mean return of the training episodes that ended on the way."""
    state, metrics = trainer.advance(state)
    updates = int(state.iteration)
    value = float(metrics["episode_return"].sum() / max(metrics["episodes"].sum(), 1))
    return state, Progress(updates / trainer.total_iterations, updates, trainer.steps(state), value)


class Loop:
    """Repeats `step: state -> state, metrics` up to `total` times. It compiles once, for any number of repetitions."""

    def __init__(self, step: Callable[[PyTree], tuple[PyTree, Metrics]], total: int):
        self.step, self.total, self.made = step, total, 0
        self._chunk = 1
        self._several = jax.jit(self._repeat)

    def done(self) -> bool:
        """Whether all repetitions have been made."""
        return self.made >= self.total

    def advance(self, state: PyTree) -> tuple[PyTree, dict[str, float]]:
        """Repeat the step for about a second: the next state, and the mean of each metric."""
        number = min(self._chunk, self.total - self.made)
        began = time.perf_counter()
        # With weak types in the first state the second call would compile again.
        state, sums = jax.block_until_ready(self._several(strong(state), jnp.int32(number)))
        # The first chunk includes compilation, so its speed says little: grow by a factor of 4 at most.
        self._chunk = max(1, int(number * min(CHUNK_SECONDS / (time.perf_counter() - began), 4)))
        self.made += number
        return state, {name: float(value) / number for name, value in sums.items()}

    def _repeat(self, state: PyTree, number: Array) -> tuple[PyTree, Metrics]:
        # Traced for the names of the metrics only: the carry of the loop needs its structure in advance.
        example = jax.eval_shape(self.step, state)[1]
        zeros = {name: jnp.zeros((), jnp.float32) for name in example}

        def body(_: Array, carry: tuple[PyTree, Metrics]) -> tuple[PyTree, Metrics]:
            state, sums = carry
            state, metrics = self.step(state)
            return state, {name: sums[name] + metrics[name] for name in sums}

        return jax.lax.fori_loop(0, number, body, (state, zeros))
