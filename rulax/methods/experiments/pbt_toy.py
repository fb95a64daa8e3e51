"""The toy problem of the paper: two workers, neither of which can see the whole objective.

    Q(w) = 1.2 - (w1² + w2²) is what counts;  Q(w | h) = 1.2 - (h1 w1² + h2 w2²) is what a worker climbs

With h = (1, 0) or (0, 1), as in a grid search, one of the two weights never moves. A population gets to the top: a copy goes on
with other h from where its parent stood.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.methods.base import Experiment, Progress, Published, Reference, SeedRun, Suite, Tested
from rulax.methods.pbt import Pbt, Space, turn
from rulax.types import Array

TOP = 1.2
BEGIN = 0.9  # both weights of both workers
FIRST = {"h1": (1.0, 0.0), "h2": (0.0, 1.0)}  # hyper-parameters of the two workers
UNIT = {name: Space(0.0, 1.0) for name in FIRST}
WAYS = {  # the whole method, and what is left of it without a part
    "population": Pbt(UNIT),
    "grid search": Pbt(UNIT, selection="none", explorers="none"),
    "exploit only": Pbt(UNIT, explorers="none"),
    "explore only": Pbt(UNIT, selection="none", explorers="all"),
}


@dataclasses.dataclass(frozen=True)
class ToySetup:
    """How long, and how often."""

    steps: int = 200
    turn_steps: int = 5
    learning_rate: float = 0.01
    populations: int = 50  # independent ones, over which a seed is averaged


class Path(NamedTuple):
    """What two workers did; the first entries are those before the first step."""

    weights: Array  # [steps + 1, 2 workers, 2]
    value: Array  # [steps + 1, 2 workers]
    hyperparameters: Array  # [turns + 1, 2 workers, 2]
    parents: Array  # [turns, 2 workers]


def objective(weights: Array) -> Array:
    """Q, over the last axis."""
    return TOP - jnp.sum(weights**2, -1)


def surrogate(weights: Array, hyperparameters: Array) -> Array:
    """What a worker with these hyper-parameters climbs, []."""
    return TOP - jnp.sum(hyperparameters * weights**2)


def live(setup: ToySetup, pbt: Pbt, key: Array) -> Path:
    """One population of two from beginning to end."""

    def step(weights: Array, stacked: Array) -> tuple[Array, Array]:
        weights = weights + setup.learning_rate * jax.vmap(jax.grad(surrogate))(weights, stacked)
        return weights, weights

    def one_turn(carry: tuple[Array, dict[str, Array]], key: Array) -> tuple[Any, Any]:
        weights, own = carry
        stacked = jnp.stack([own[name] for name in sorted(own)], -1)
        weights, path = jax.lax.scan(lambda w, _: step(w, stacked), weights, None, setup.turn_steps)
        turned = turn(pbt, weights, own, objective(weights), key)
        after = jnp.stack([turned.hyperparameters[name] for name in sorted(own)], -1)
        return (turned.members, turned.hyperparameters), (path, after, turned.parents)

    start = jnp.full((2, 2), BEGIN), {name: jnp.asarray(values) for name, values in FIRST.items()}
    first = jnp.stack([start[1][name] for name in sorted(FIRST)], -1)
    _, (paths, after, parents) = jax.lax.scan(one_turn, start, jax.random.split(key, setup.steps // setup.turn_steps))
    weights = jnp.concatenate([start[0][None], paths.reshape(-1, 2, 2)])
    return Path(weights, objective(weights), jnp.concatenate([first[None], after]), parents)


def live_all(setup: ToySetup, key: Array) -> dict[str, Path]:
    """Every way, with as many populations as the setup has, leaves [populations, ...]."""
    keys = jax.random.split(key, setup.populations)
    return {name: jax.jit(jax.vmap(functools.partial(live, setup, pbt)))(keys) for name, pbt in WAYS.items()}


class ToyRun(SeedRun):
    """One seed: all populations of all ways, in one piece."""

    def __init__(self, setup: ToySetup, suite: Suite, seed: int):
        del suite  # a second is enough for both
        self.setup, self.key = setup, jax.random.key(seed)
        self.paths: dict[str, Path] = {}

    def advance(self) -> Progress:
        self.paths = live_all(self.setup, self.key)
        steps = 2 * self.setup.steps * self.setup.populations
        return Progress(1.0, self.setup.steps // self.setup.turn_steps, steps, float(self._final("population").mean()))

    def done(self) -> bool:
        return bool(self.paths)

    def _final(self, way: str) -> np.ndarray:
        """The value of each population's better worker at the end, [populations]."""
        return np.asarray(self.paths[way].value)[:, -1].max(-1)

    def test(self) -> Tested:
        if not self.paths:
            self.advance()
        baselines = {way: float(self._final(way).mean()) for way in WAYS if way != "population"}
        both = np.asarray(self.paths["population"].value)[:, -1]
        details = {"mean of both workers": float(both.mean()), "worst population": float(both.max(-1).min())}
        return Tested(self._final("population"), TOP - 2 * BEGIN**2, Reference("the top", TOP, "exact"), baselines, details)


TOY = Experiment(
    method="pbt",
    name="toy",
    about="two workers climb Q, of which each sees only a part; 50 populations",
    metric="Q of the better worker after 200 steps",
    goal=1.19,
    quick_goal=1.19,
    start=functools.partial(ToyRun, ToySetup()),
    published=Published(1.2, "Jaderberg et al. 2017, figure 2: the population's end; grid search there ends at about 0.4", "V"),
    minutes=0.1,
)
