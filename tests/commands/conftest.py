"""A trainer small enough to run thousands of times: no environment, no rule, but real arrays, keys and donated buffers."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest


class FakeState(NamedTuple):
    params: dict[str, jax.Array]  # weight [K, 3]
    key: jax.Array  # [K] typed
    iteration: jax.Array  # []


class FakeTrainer:
    """One iteration is 10 steps; chunks are of 1, 2, 3, 4, 1, ... iterations, so that they do not line up with anything."""

    steps_per_iteration = 10

    def __init__(self, seeds: int, total_steps: int, bad_at: int | None = None, on_chunk: Any = None):
        self.seeds, self.bad_at, self.on_chunk = seeds, bad_at, on_chunk
        self.total_iterations = -(-total_steps // self.steps_per_iteration)
        self.chunks, self.closed = 0, False
        self.warm_iterations, self.last_failure = 0, ""

    def init(self, key: jax.Array) -> FakeState:
        return self._initial_state(key)

    def _initial_state(self, key: jax.Array) -> FakeState:
        keys = jax.random.split(key, self.seeds)
        return FakeState({"weight": jnp.zeros((self.seeds, 3))}, keys, jnp.zeros((), jnp.int32))

    def skeleton(self) -> FakeState:
        return jax.eval_shape(self._initial_state, jax.random.key(0))

    def check(self) -> None:
        pass

    def reserve(self, seeds: int = 0) -> str:
        return ""

    def resume(self, state: FakeState) -> FakeState:
        return state

    def done(self, state: FakeState) -> bool:
        return int(state.iteration) >= self.total_iterations

    def advance(self, state: FakeState, most: int = 1000) -> tuple[FakeState, dict[str, np.ndarray]]:
        self.chunks += 1
        rows = []
        left = self.total_iterations - int(state.iteration)
        for _ in range(min(left, 1 + self.chunks % 4, most)):
            state, metrics = fake_iteration(state)
            row = jax.tree.map(np.asarray, metrics)
            row["bad_rewards"] = np.full(self.seeds, int(state.iteration) == self.bad_at, np.int32)
            rows.append(row)
        if self.on_chunk is not None:
            self.on_chunk(self.chunks)
        return state, {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def agent(self, state: FakeState, seed: int = 0) -> Any:
        return jax.tree.map(lambda x: x[seed], state.params)

    def flops_per_iteration(self, state: FakeState) -> float:
        return float("nan")

    def close(self) -> None:
        self.closed = True


@functools.partial(jax.jit, donate_argnums=0)
def fake_iteration(state: FakeState) -> tuple[FakeState, dict[str, jax.Array]]:
    keys = jax.vmap(jax.random.split)(state.key)  # [K, 2]
    noise = jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys[:, 0])
    weight = 0.9 * state.params["weight"] + noise
    episodes = jnp.full(weight.shape[0], 2, jnp.int32)
    measured = jnp.where(state.iteration < 3, jnp.nan, weight.mean(-1))  # as before the first update of a replaying agent
    metrics = {"episodes": episodes, "episode_return": weight.sum(-1), "episode_length": 5.0 * episodes, "loss": measured}
    return FakeState({"weight": weight}, keys[:, 1], state.iteration + 1), metrics


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> SimpleNamespace:
    """Every trainer is a fake one, configured by the attributes of what this gives; works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    options = SimpleNamespace(bad_at=None, on_chunk=None, trainers=[])

    def make_trainer(environment: Any, recipe: Any, config: Any) -> FakeTrainer:
        trainer = FakeTrainer(config.seeds, config.steps, options.bad_at, options.on_chunk)
        options.trainers.append(trainer)
        return trainer

    from rulax.rules.base import Recipe, UpdateRule
    from rulax.settings import Learning, Network

    environment = SimpleNamespace(observation=jax.ShapeDtypeStruct((3,), jnp.float32), num_actions=2)
    monkeypatch.setattr("rulax.commands.build.make_trainer", make_trainer)
    monkeypatch.setattr("rulax.commands.build.make_environment", lambda name, settings: environment)
    recipe = Recipe(UpdateRule(*[None] * 5), Learning(streams=2, unroll=5), Network())  # type: ignore[arg-type]
    monkeypatch.setattr("rulax.commands.build.registered_recipe", lambda name, options: recipe)
    monkeypatch.setattr("rulax.commands.build.start_jax", lambda *arguments, **keywords: None)
    return options
