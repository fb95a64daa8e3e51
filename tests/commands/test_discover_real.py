"""The parts of `rulax discover` that compute: evaluations, memory, and the real state of discovery through a checkpoint."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rulax.commands.cli import main
from rulax.commands.discover import setup as discover_setup
from rulax.commands.discover.memory import MEMORY, plan_memory
from rulax.discovery.bound import bound_of
from rulax.discovery.discover import Plan
from rulax.discovery.evaluate import Baselines, FamilyEvaluation, frozen, late_mean
from rulax.envs.base import EnvironmentFailed
from rulax.envs.catch import Catch
from rulax.errors import UserError
from rulax.records import checkpoint
from rulax.records.rows import read_rows
from rulax.rules.registry import make_rule
from tests.commands.fake_discovery import TINY, FakeEvaluation
from tests.commands.test_discover import assert_same_run

SIZES = [f"{name}={value}" for name, value in TINY.items()] + ["value=false", "next_policy=false", "lifetime=false"]
LINE = ["discover", "catch:rows=3,columns=3", "--steps", "4", "--window", "2", "--agents", "2", "--validation-unroll", "4"]
LINE += ["--lifetimes", "3", "--streams", "4", "--unroll", "4", "--batch", "6", "--replay", "0.5", "--capacity", "8"]
LINE += ["--hidden", "8", "--action-model", "8", "--action-hidden", "8", "--critic-hidden", "8", "--evaluate-every", "2"]
LINE += ["--evaluation-seeds", "2", "--evaluation-updates", "6", "--quiet", "--rule-options", *SIZES]


# -- evaluation ----------------------------------------------------------------------------------------------------------------


def test_scores_stand_between_the_baselines() -> None:
    sticks = Baselines(-1.0, 3.0)
    assert [sticks.score(value) for value in (-1.0, 3.0, 1.0, 100.0, -100.0, float("nan"))] == [0.0, 1.0, 0.5, 2.0, -1.0, -1.0]
    assert Baselines(0.5, 0.5).score(1.0) == 0.5  # without a gain to measure by, one unit of return
    assert Baselines(0.5, 0.1).score(1.0) == 0.5


def test_the_last_fifth_counts() -> None:
    returns, episodes = np.arange(10.0), np.full(10, 2.0)
    assert late_mean(returns, episodes) == (8 + 9) / 4
    assert late_mean(np.array([4.0, 6, 0, 0, 0, 0, 0, 0, 0, 0]), np.array([1.0, 2, 0, 0, 0, 0, 0, 0, 0, 0])) == 3.0
    assert np.isnan(late_mean(np.zeros(3), np.zeros(3)))


def test_untrained_agents_are_those_with_a_learning_rate_of_zero() -> None:
    recipe = make_rule("actor_critic")
    learning = dataclasses.replace(recipe.learning, streams=4, unroll=8, learning_rate=0.0)
    recipe = recipe._replace(learning=learning, network=dataclasses.replace(recipe.network, hidden=(8,)))
    evaluations = [FamilyEvaluation("catch", Catch(5, 5), each, 2, 800) for each in (recipe, frozen(recipe))]
    found = [evaluation.run(evaluation.trainer.rule_params) for evaluation in evaluations]
    assert found[0] == found[1]
    assert evaluations[1].run({}) == found[1]  # the same agents and the same luck, every time


def test_an_evaluation_counts_what_failed_and_leaves_no_environment_open(tmp_path: Path) -> None:
    """Copy 2 raises once in its life (0 and 1 are opened to prepare), and copies are counted by the files that they leave."""
    pytest.importorskip("gymnasium")
    from rulax.envs.adapters import gymnasium as adapter
    from tests.envs.failing import ID

    recipe = make_rule("policy_gradient")
    learning = dataclasses.replace(recipe.learning, streams=2, unroll=4)
    recipe = frozen(recipe._replace(learning=learning, network=dataclasses.replace(recipe.network, hidden=(4,))))
    environment = adapter.make(ID, folder=str(tmp_path), who=(2,))
    evaluation = FamilyEvaluation("failing", environment, recipe, 1, 64)
    assert not list(tmp_path.iterdir())  # nothing is opened before it is wanted
    assert evaluation.run({}) == 4.0
    assert (evaluation.restarts, len(list(tmp_path.iterdir()))) == (1, 5)
    assert evaluation.trainer.streams.released  # type: ignore[attr-defined]
    assert evaluation.run({}) == 4.0
    assert (evaluation.restarts, len(list(tmp_path.iterdir()))) == (1, 7)
    evaluation.close()
    evaluation = FamilyEvaluation("failing", adapter.make(ID, folder=str(tmp_path), who=(9,)), recipe, 1, 64, most_restarts=0)
    with pytest.raises(EnvironmentFailed, match="none is allowed"):
        evaluation.run({})


# -- memory --------------------------------------------------------------------------------------------------------------------


def test_the_bound_holds_for_what_the_compiler_needs() -> None:
    def loss(weight: jax.Array, inputs: jax.Array) -> jax.Array:
        carry, stacked = jax.lax.scan(lambda x, _: ((y := jnp.tanh(x @ weight)), y), inputs, None, length=20)
        return jnp.sum(stacked**2) + jnp.sum(carry)

    traced = jax.jit(jax.grad(loss)).trace(jnp.ones((64, 64)), jnp.ones((128, 64)))
    needed = traced.lower().compile().memory_analysis().temp_size_in_bytes
    assert 20 * 128 * 64 * 4 <= needed <= bound_of(traced.jaxpr) <= 20 * needed


class Predicting:
    """A discoverer whose bytes are known."""

    def __init__(self, memory: str):
        self.sizes = {"plain": 8000, "mixed": 5000, "remat": 2000, "both": 1000, "segments": 500}
        learning = SimpleNamespace(epochs=1, minibatches=1)
        names = {"big": 10_000, "small": 5_000}
        self.bounds = names
        self.families = [SimpleNamespace(name=name, recipe=SimpleNamespace(learning=learning)) for name in names]
        self.settings = SimpleNamespace(memory=memory, agents_at_once=0, pairs_at_once=0, window=20)
        self.plans: dict[str, Plan] = {}

    def bound(self, family: Any, plan: Plan) -> int:
        return self.bounds[family.name]

    def predict(self, family: Any, plan: Plan) -> int:
        assert family.name == "big"
        return self.sizes[plan.strategy]

    def choose(self, limit: int, predicted: dict[str, dict[str, int]]) -> None:
        self.plans = {name: Plan(next(s for s in self.sizes if sizes[s] <= limit), 0) for name, sizes in predicted.items()}


@pytest.mark.parametrize(
    ("memory", "limit", "strategies"),
    [("auto", 20_000, ["plain", "plain"]), ("auto", 4_000, ["remat", "plain"]), ("remat", 4_000, ["remat", "remat"])],
)
def test_memory_is_planned_once(tmp_path: Path, memory: str, limit: int, strategies: list[str]) -> None:
    said: list[str] = []
    discoverer = Predicting(memory)
    plan_memory(discoverer, limit / 1e9, tmp_path, said.append, lambda text: None)  # type: ignore[arg-type]
    assert [plan.strategy for plan in discoverer.plans.values()] == strategies
    known = json.loads((tmp_path / MEMORY).read_text())
    assert ("predicted" in known) == (limit < 10_000)
    assert said
    again = Predicting(memory)
    plan_memory(again, 1e-9, tmp_path, said.append, lambda text: None)  # type: ignore[arg-type]
    assert again.plans == discoverer.plans  # a resumed run keeps its plan, whatever is free now


def test_a_strategy_that_does_not_fit_is_refused_with_one_that_does(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"plain needs .* for a window of 20.*--memory remat would fit"):
        plan_memory(Predicting("plain"), 2_500 / 1e9, tmp_path, lambda text: None, lambda text: None)  # type: ignore[arg-type]


# -- the whole -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_state_of_discovery_survives_a_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Real agents, whose programs are compiled once for all runs; only their evaluation is a fake.

    By evolution, whose program is the quickest to compile; the slow test below is by backprop.
    """
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    real = discover_setup.make_discoverer
    monkeypatch.setattr(
        discover_setup, "make_discoverer", lambda *a: made.setdefault("it", None) or made.update(it=real(*a)) or made["it"]
    )
    monkeypatch.setattr("rulax.commands.discover.evaluations.FamilyEvaluation", FakeEvaluation)
    monkeypatch.setattr("rulax.commands.discover.evaluations.measure_baselines", lambda *arguments: (Baselines(0.0, 2.0), 0))
    line = [*LINE, "--estimator", "evolution", "--pairs", "1"]
    assert main([*line, "--out", "whole"]) == 0
    discoverer = made["it"]
    advance = discoverer.advance

    def interrupted(state: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.05)
        return advance(state)

    monkeypatch.setattr(discoverer, "advance", interrupted)
    assert main([*line, "--out", "parts"]) == 130
    for _ in range(2):
        assert main(["discover", "--resume", "parts"]) == 130
    monkeypatch.setattr(discoverer, "advance", advance)
    assert main(["discover", "--resume", "parts"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    resets = [row["bad_agents"] for row in read_rows(tmp_path / "whole") if row["kind"] == "meta"]
    assert resets == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_killed_discovery_goes_on_exactly_and_its_rule_trains(tmp_path: Path) -> None:
    """Everything real, in real processes."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "RULAX_CACHE": str(tmp_path / "cache")}
    rulax = functools.partial(subprocess.run, cwd=tmp_path, env=environment, check=True)
    command = [sys.executable, "-m", "rulax"]
    line = [*command, *LINE, "--steps", "30", "--evaluate-every", "10"]
    process = subprocess.Popen([*line, "--out", "parts"], cwd=tmp_path, env=environment)
    while process.poll() is None and not ((tmp_path / "parts").exists() and len(read_rows(tmp_path / "parts")) > 13):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert read_rows(tmp_path / "parts")[-1]["step"] < 30
    assert checkpoint.load(tmp_path / "parts" / "checkpoint.safetensors").facts["step"] in (10, 20)
    rulax([*command, "discover", "--resume", "parts", "--quiet"])
    rulax([*line, "--out", "whole"])
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    steps = ["--steps", "2000", "--streams", "4", "--unroll", "4", "--batch", "4", "--hidden", "8", "--warmup", "0"]
    rulax([*command, "train", "catch", "--rule", "parts/rule.safetensors", *steps, "--quiet"])
