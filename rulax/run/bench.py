"""`rulax bench train`: how fast training is on this machine, as numbers that can be compared between versions."""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

from rulax.run.config import BenchTrainConfig, TrainConfig, build
from rulax.run.setup import make_environment, make_recipe, make_trainer, start_jax
from rulax.run.validate import check_bounds

OWN_SETTINGS = ("actor_critic", "ppo")  # timed as they are recommended; other rules in the setting of the reference
MANY_ITERATIONS = 10**7  # more than any benchmark makes, so that the budget never ends it
WARM_UP_CHUNKS = 4  # the trainer finds its chunk length in a few chunks


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    config = build(BenchTrainConfig, values)
    if not config.preset and config.rule not in OWN_SETTINGS:
        config = build(BenchTrainConfig, {**values, "preset": "reference-catch"})
    result = measure(config)
    if config.json:
        print(json.dumps(result))
    else:
        show(result)
    return 0


def measure(config: BenchTrainConfig) -> dict[str, Any]:
    """Build, compile, warm up, measure."""
    check_bounds(config)
    recipe = make_recipe(config.rule, config.rule_options, config.overrides)
    start_jax(config.platform, cache=False)  # a cached program would make the time to compile look like nothing
    import jax

    env = config.env or "catch"
    environment = make_environment(env, config.env_options)
    steps = recipe.learning.streams * recipe.learning.unroll * MANY_ITERATIONS
    trainer = make_trainer(environment, recipe, TrainConfig(env=env, rule=config.rule, seeds=config.seeds, steps=steps))
    began = time.perf_counter()
    state = trainer.init(jax.random.key(0))
    state, _ = trainer.advance(state)  # compiles
    compile_seconds = time.perf_counter() - began
    for _ in range(WARM_UP_CHUNKS):
        state, _ = trainer.advance(state)
    try:
        wall, cpu, iterations = time_chunks(trainer, state, config.seconds)
        peak = peak_memory()  # before the next line, which compiles once more
        flops = trainer.flops_per_iteration(trainer.init(jax.random.key(0)))
    finally:
        trainer.close()
    updates, made = iterations * config.seeds, iterations * config.seeds * trainer.steps_per_iteration
    return {
        "rule": config.rule,
        "env": env,
        "seeds": config.seeds,
        "updates_per_s": updates / wall,
        "env_steps_per_s": made / wall,
        "updates_per_cpu_s": updates / cpu,
        "env_steps_per_cpu_s": made / cpu,
        "compile_s": compile_seconds,
        "peak_rss_mb": peak,
        "flops": flops if math.isfinite(flops) else None,
        "seconds": wall,
        "cpu_seconds": cpu,
        "device": jax.devices()[0].device_kind,
    }


def time_chunks(trainer: Any, state: Any, seconds: float) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and iterations of at least one chunk."""
    wall, cpu, iterations = time.perf_counter(), time.process_time(), 0
    while not iterations or time.perf_counter() - wall < seconds:
        state, metrics = trainer.advance(state)
        iterations += len(next(iter(metrics.values())))
    return time.perf_counter() - wall, time.process_time() - cpu, iterations


def peak_memory() -> float:
    """Largest resident size so far, in MB."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes on macOS, kilobytes elsewhere


def show(result: dict[str, Any]) -> None:
    """A table for people."""
    print(f"{result['rule']} on {result['env']}, {result['seeds']} seed(s), {result['device']}\n")
    rows = {
        "updates": f"{result['updates_per_s']:,.1f} per second, {result['updates_per_cpu_s']:,.1f} per CPU second",
        "steps": f"{result['env_steps_per_s']:,.0f} per second, {result['env_steps_per_cpu_s']:,.0f} per CPU second",
        "first chunk": f"{result['compile_s']:.2f} s (mostly compiling)",
        "peak memory": f"{result['peak_rss_mb']:,.0f} MB",
        "work": "not known" if result["flops"] is None else f"{result['flops'] / 1e6:,.1f} MFLOP per iteration",
    }
    for name, text in rows.items():
        print(f"  {name:<12} {text}")
