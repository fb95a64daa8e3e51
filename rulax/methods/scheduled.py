"""A trainer that follows a schedule of hyper-parameters, such as a population has found: all its agents change them together."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from rulax.learning.train import MAX_CHUNK, Trainer, TrainState
from rulax.methods.population import AroundTrainer
from rulax.types import Array


class ScheduledTrainer(AroundTrainer):
    """Trains K agents with hyper-parameters that depend on the step alone, so nothing has to be saved beside their state."""

    def __init__(self, inner: Trainer, points: Sequence[Mapping[str, float]]):
        """
        Args:
            inner: as for a `PopulationTrainer`.
            points: hyper-parameters by name, and the environment `step` per agent from which they are in force, rising from 0. They
                change at the first iteration that begins there or later.
        """
        super().__init__(inner)
        self.points = points
        # In iterations, rounded up.
        self.begins = [-(-int(point["step"]) // self.steps_per_iteration) for point in points]
        inner.pause_at = lambda iteration: iteration in self.begins
        self.set_constants(self._values(0))
        self.init, self.skeleton, self.compile = inner.init, inner.skeleton, inner.compile
        self.resume = inner.resume

    def _values(self, iteration: int) -> dict[str, Array]:
        """Those in force in an iteration, [K] each."""
        point = self.points[bisect.bisect_right(self.begins, iteration) - 1]
        return {name: jnp.full(self.config.seeds, value, jnp.float32) for name, value in point.items() if name != "step"}

    def advance(self, state: TrainState, most: int = MAX_CHUNK) -> tuple[TrainState, dict[str, np.ndarray]]:
        """About a second of training, and never beyond the next point."""
        made = int(state.iteration)
        values = self._values(made)
        left = [begin - made for begin in self.begins if begin > made]
        state, metrics = self.inner.advance(self.install(state, values), min([most, *left]))
        shape = metrics["episodes"].shape
        return state, metrics | {name: np.broadcast_to(np.asarray(each), shape) for name, each in values.items()}
