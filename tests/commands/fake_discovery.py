"""Discovery without agents, for tests of the run around it: real files, real rules, no compiling. Also a program of its own:
`python -m tests.commands.fake_discovery discover ...` is `rulax` with the fake inside, to be killed."""

from __future__ import annotations

import functools
import os
import sys
import time
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rulax.discovery.discover import Plan
from rulax.discovery.evaluate import Baselines

TINY = {"prediction_size": 4, "bins": 7, "largest_value": 3, "hidden": 4, "lifetime_hidden": 4, "embedding": 4}


class FakeState(NamedTuple):
    meta_params: Any
    key: jax.Array
    steps: jax.Array


@functools.partial(jax.jit, donate_argnums=0)
def wander(state: FakeState) -> tuple[FakeState, jax.Array]:
    key, key_step = jax.random.split(state.key)
    noise = 0.1 * jax.random.normal(key_step)
    params = jax.tree.map(lambda p: p + noise, state.meta_params)
    return FakeState(params, key, state.steps + 1), noise


class FakeDiscoverer:
    """A rule that wanders at random. In meta-steps that `bad` names, one agent's gradient is no number."""

    def __init__(self, training: dict[str, Any], recipe: Any, settings: Any, config: Any, options: Any):
        self.families = [SimpleNamespace(name=name, recipe=recipe, on_host=False) for name in training]
        self.recipe, self.settings, self.total_steps, self.options = recipe, settings, config.steps, options
        self.plans: dict[str, Plan] = {}

    def init(self, key: jax.Array, meta_params: Any = None) -> FakeState:
        return FakeState(self.recipe.rule.init(key), key, jnp.zeros((), jnp.int32))

    def skeleton(self) -> Any:
        return jax.eval_shape(self.init, jax.random.key(0))

    def rule(self, state: FakeState) -> Any:
        return state.meta_params

    def done(self, state: FakeState) -> bool:
        return int(state.steps) >= self.total_steps

    def close(self) -> None:
        pass

    def bound(self, family: Any, plan: Plan) -> int:
        return 1000

    def compile(self, report: Any) -> None:
        for family in self.families:
            report(f"compiling {family.name}")

    def advance(self, state: FakeState) -> tuple[FakeState, dict[str, Any]]:
        state, noise = wander(state)
        step = int(state.steps)
        self.options.on_step(step)
        agents = np.full(self.settings.agents, float(noise))
        lived = {"episodes": agents * 0 + step % 3, "episode_return": agents, "outer_loss": agents, "episode_length": agents}
        metrics: dict[str, Any] = {family.name: lived for family in self.families}
        return state, metrics | {
            "": {"meta_gradient_norm_of_mean": np.abs(noise), "bad_agents": np.int32(step in self.options.bad)}
        }


class FakeEvaluation:
    restarts = 0

    def __init__(self, name: str, *arguments: Any, **options: Any):
        self.name = name

    def prepare(self):
        pass

    def close(self):
        pass

    def run(self, rule_params: Any, stopped: Any) -> float:
        return len(self.name) * float(jax.tree.leaves(rule_params)[0].ravel()[0])


def install(replace: Any) -> SimpleNamespace:
    """Put the fakes in place with `replace(name, value)`; what it gives says how they behave."""
    options = SimpleNamespace(bad=(), on_step=lambda step: None)
    replace("rulax.commands.discover.setup.make_discoverer", lambda *arguments: FakeDiscoverer(*arguments[:4], options))
    replace("rulax.commands.discover.evaluations.FamilyEvaluation", FakeEvaluation)
    replace("rulax.commands.discover.evaluations.measure_baselines", lambda *arguments: (Baselines(0.0, 2.0), 0))
    return options


def replace_for_good(name: str, value: Any) -> None:
    import importlib

    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)


if __name__ == "__main__":
    from rulax.commands.cli import main

    if os.environ.get("SLOW_STEPS"):
        install(replace_for_good).on_step = lambda step: time.sleep(float(os.environ["SLOW_STEPS"]))
    else:
        install(replace_for_good)
    sys.exit(main(sys.argv[1:]))
