"""`rulax bench train`: how fast training is on this machine, as numbers that can be compared between versions."""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

from rulax.commands.bench.references import REFERENCE_RSS_MB, matmul_peak, reference_cpu_seconds
from rulax.commands.bench.settings import REFERENCE, BenchTrainConfig, build_bench
from rulax.commands.build import make_environment, make_recipe, make_trainer, start_jax, user_errors
from rulax.commands.settings import check_bounds
from rulax.commands.train.settings import TrainConfig
from rulax.errors import UserError

MANY_ITERATIONS = 10**7  # more than any benchmark makes, so that the budget never ends it
WARM_UP_CHUNKS = 4  # the trainer finds its chunk length in a few chunks


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    config = build_bench(values)
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
    environment = widen(make_environment(env, config.env_options), config.actions)
    steps = recipe.learning.streams * recipe.learning.unroll * MANY_ITERATIONS
    trainer = make_trainer(environment, recipe, TrainConfig(env=env, rule=config.rule, seeds=config.seeds, steps=steps))
    began = time.perf_counter()
    state = trainer.init(jax.random.key(0))
    state, _ = trainer.advance(state)  # compiles
    compile_seconds = time.perf_counter() - began
    # Not measured: short chunks at the beginning are mostly overhead.
    for _ in range(WARM_UP_CHUNKS):
        state, _ = trainer.advance(state)
    try:
        wall, cpu, iterations = time_chunks(trainer, state, config.seconds)
        peak = peak_memory()  # before the next line, which compiles once more
        # Of a new state, since the old one was consumed.
        flops = trainer.flops_per_iteration(trainer.init(jax.random.key(0)))
    finally:
        trainer.close()
    # In the same process right after the measurement, so that both saw the machine equally busy.
    machine = matmul_peak()
    updates, made = iterations * config.seeds, iterations * config.seeds * trainer.steps_per_iteration
    return {
        "rule": config.rule,
        "env": env,
        "seeds": config.seeds,
        "actions": environment.num_actions,
        "updates_per_s": updates / wall,
        "env_steps_per_s": made / wall,
        "updates_per_cpu_s": updates / cpu,
        "env_steps_per_cpu_s": made / cpu,
        "cpu_s_per_update": cpu / updates,
        "compile_s": compile_seconds,
        "peak_rss_mb": peak,
        "flops": flops if math.isfinite(flops) else None,
        "matmul_flops_per_cpu_s": machine,
        "utilisation": flops * iterations / cpu / machine if math.isfinite(flops) else None,
        **against_reference(config, recipe, environment, cpu / updates, peak),
        "seconds": wall,
        "cpu_seconds": cpu,
        "device": jax.devices()[0].device_kind,
    }


def widen(environment: Any, actions: int) -> Any:
    """The environment with as many actions as were asked for."""
    from rulax.envs.base import HostEnvironment
    from rulax.envs.wrappers import MoreActions

    if not actions or actions == environment.num_actions:
        return environment
    if isinstance(environment, HostEnvironment):
        raise UserError("--actions needs an environment written in JAX; leave it out, or use --env catch")
    with user_errors():
        return MoreActions(environment, actions)


def against_reference(config: BenchTrainConfig, recipe: Any, environment: Any, cpu: float, memory: float) -> dict[str, float]:
    """The comparison with DeepMind's reference, if the setting is the one that was recorded; else nothing."""
    if config.rule not in ("disco", "disco103"):
        return {}
    recorded = make_recipe(config.rule, {}, build_bench({"preset": REFERENCE}).overrides)
    same = (recipe.learning, recipe.network) == (recorded.learning, recorded.network)
    # A factor against a measurement in another setting would be a wrong claim, so there is none.
    if not same or config.rule_options or (config.env or "catch") != "catch" or environment.observation.shape[:2] != (8, 8):
        return {}
    reference = reference_cpu_seconds(environment.num_actions)
    return {
        "reference_cpu_s_per_update": reference,
        "times_reference_speed": reference / cpu,
        "share_of_reference_memory": memory / REFERENCE_RSS_MB,  # recorded with 3 actions only
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
    if result["utilisation"] is not None:
        rows["machine"] = (
            f"{result['matmul_flops_per_cpu_s'] / 1e9:,.0f} GFLOP per CPU second in a matrix product; "
            f"this reached {result['utilisation']:.0%} of it"
        )
    if "times_reference_speed" in result:
        rows["reference"] = (
            f"{result['times_reference_speed']:.2f} times its recorded updates per CPU second, "
            f"{result['share_of_reference_memory']:.0%} of its memory (docs/performance.md)"
        )
    for name, text in rows.items():
        print(f"  {name:<12} {text}")
