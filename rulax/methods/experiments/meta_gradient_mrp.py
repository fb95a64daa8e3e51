"""Two Markov reward processes with exact values, in which a discount or a trace per state beats every constant.

The processes are our own, after what is remembered of figure 1 of Xu et al. (2018).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from rulax.methods.base import WORST_MARGIN, Experiment, Progress, Reference, SeedRun, Suite, Tested
from rulax.methods.loop import Loop
from rulax.methods.meta_gradient_mrp import GRID, Process, TabularMetaGradient, TabularState, init_tabular, meta_update
from rulax.types import Metrics

LIVES = 10  # independent learners side by side in one run


class ProcessRun(SeedRun):
    """Ten learners at once. Each is compared with the fixed constant that, in hindsight, was best for its own rewards."""

    kept = ("state", "loop.made")

    def __init__(self, suites: dict[Suite, TabularMetaGradient], suite: Suite, seed: int):
        self.method = suites[suite]
        self.loop = Loop(self._step, self.method.episodes)
        keys = jax.random.split(jax.random.key(seed), LIVES)
        self.state = jax.vmap(functools.partial(init_tabular, self.method))(keys)

    def _step(self, state: TabularState) -> tuple[TabularState, Metrics]:
        state = jax.vmap(functools.partial(meta_update, self.method))(state)
        return state, {"error": jnp.mean(jax.vmap(self.method.process.error)(state.table))}

    def advance(self) -> Progress:
        self.state, metrics = self.loop.advance(self.state)
        made = self.loop.made
        steps = made * LIVES * len(self.method.process.mean)
        return Progress(made / self.method.episodes, made, steps, metrics["error"])

    def done(self) -> bool:
        return self.loop.done()

    def test(self) -> Tested:
        counted = max(self.loop.made - self.method.episodes // 2, 1)
        ours = np.asarray(self.state.error, float) / counted  # [lives]
        constants = np.asarray(self.state.constant_error, float) / counted  # [lives, grid]
        process, learned = self.method.process, np.asarray(jax.nn.sigmoid(self.state.params)).mean(0)
        low, high = learned[list(process.wanted_low)], learned[list(process.wanted_high)]
        best = constants.mean(0).argmin()
        details = {
            "mean squared error": float(ours.mean()),
            "that of the best constant of each life": float(constants.min(1).mean()),
            f"best constant {process.tuned}": GRID[best],
            f"mean {process.tuned} where it should be high": float(high.mean()),
            f"mean {process.tuned} where it should be low": float(low.mean()),
            "lowest of those that should be high": float(high.min()),
            "highest of those that should be low": float(low.max()),
            WORST_MARGIN: float(high.min() - low.max()),  # the order must be right in every state
        }
        names = {0: "constant 0", best: "best constant", len(GRID) - 1: "constant 1"}
        others = {f"error of {name}": float(constants[:, place].mean()) for place, name in names.items()}
        better = (ours < constants.min(1)).astype(float)
        return Tested(better, 0.0, Reference("every life", 1.0, "exact"), others, details)


def process_experiment(name: str, about: str, process: Process) -> Experiment:
    """One process as an experiment."""
    suites: dict[Suite, TabularMetaGradient] = {
        "quick": TabularMetaGradient(process, episodes=10_000),
        "full": TabularMetaGradient(process, episodes=50_000),
    }
    return Experiment(
        method="meta_gradient",
        name=name,
        about=about,
        metric="share of ten lifetimes with a smaller error than the best of 21 constants",
        goal=0.9,
        quick_goal=0.9,
        start=functools.partial(ProcessRun, suites),
        minutes=1,
    )


SIGNAL_THEN_NOISE = Process(
    tuned="discount",
    mean=(*(1.0,) * 5, *(0.0,) * 5),
    deviation=(*(0.0,) * 5, *(3.0,) * 5),
    entry=tuple(range(10)),
    wanted_high=(1, 2, 3, 4),  # no transition arrives at the first state
    wanted_low=(5, 6, 7, 8, 9),
)
LOOK_ALIKES = Process(
    tuned="trace",
    mean=(1.0,) * 10,
    deviation=(2.0,) * 10,
    entry=(0, 5, 1, 5, 2, 5, 3, 5, 4, 5),
    wanted_high=(1, 3, 7, 9),
    wanted_low=(2, 4, 5, 6, 8),  # the value of 5 is the mean over those that look alike, so it may be trusted
)
MRP_EXPERIMENTS = (
    process_experiment("noise", "a discount per state: five rewards of 1, then five of mean 0 and deviation 3", SIGNAL_THEN_NOISE),
    process_experiment("look-alikes", "a trace per state: every second of ten states looks like the others", LOOK_ALIKES),
)
