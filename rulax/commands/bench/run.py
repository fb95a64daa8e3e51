"""`rulax bench train` and `rulax bench discover`: how fast this machine is, as numbers that can be compared between versions."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from rulax.commands.bench.references import REFERENCE_META_STEPS, REFERENCE_RSS_MB, matmul_peak, reference_cpu_seconds
from rulax.commands.bench.settings import BenchDiscoverConfig, BenchTrainConfig, build_bench
from rulax.commands.bench.setup import as_recorded, make_discoverer, prepare, trace
from rulax.commands.bench.show import show_discovery, show_training
from rulax.commands.settings import configured

if TYPE_CHECKING:
    from rulax.discovery.discover import Discoverer
    from rulax.learning.train import Trainer, TrainState

WARM_UP_CHUNKS = 4  # the trainer finds its chunk length in a few chunks
LEAST_STEPS = 3  # meta-steps of which the median is taken
Measured = dict[str, Any]


def train_command(values: dict[str, Any]) -> int:
    """Entry point of `rulax bench train`."""
    config = build_bench(values)
    result = measure_training(config)
    print(json.dumps(result)) if config.json else show_training(result)
    return 0


def discover_command(values: dict[str, Any]) -> int:
    """Entry point of `rulax bench discover`."""
    config = configured(BenchDiscoverConfig, values)
    result = measure_discovery(config)
    print(json.dumps(result)) if config.json else show_discovery(result)
    return 0


# -- training ------------------------------------------------------------------------------------------------------------------


def measure_training(config: BenchTrainConfig) -> Measured:
    """Build, compile, warm up, measure."""
    trainer = prepare(config)
    import jax

    began = time.perf_counter()
    state = trainer.init(jax.random.key(0))
    state, metrics = trainer.advance(state)  # compiles
    compile_seconds = time.perf_counter() - began
    try:
        state = warm_up(trainer, state, iterations_of(metrics))
        wall, cpu, iterations = time_chunks(trainer, state, config.seconds)
        peak = peak_memory()  # before the next line, which compiles once more
        # Of a new state, since the old one was consumed.
        flops = trainer.flops_per_iteration(trainer.init(jax.random.key(0)))
    finally:
        trainer.close()
    # In the same process right after the measurement, so that both saw the machine equally busy.
    machine = matmul_peak()
    updates, made = iterations * config.seeds, iterations * config.seeds * trainer.steps_per_iteration
    actions = trainer.environment.num_actions
    against = {}
    if as_recorded(config, trainer.recipe, trainer.environment):
        # The memory was recorded with 3 actions only.
        against = against_reference("update", reference_cpu_seconds(actions), REFERENCE_RSS_MB, cpu / updates, peak)
    return {
        "rule": config.rule,
        "env": config.env,
        "seeds": config.seeds,
        "actions": actions,
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
        **against,
        "seconds": wall,
        "cpu_seconds": cpu,
        "device": jax.devices()[0].device_kind,
    }


def warm_up(trainer: Trainer, state: TrainState, made: int) -> TrainState:
    """Go on, after `made` iterations, until there is something to measure.

    Iterations that only fill the replay buffer make no update, and short chunks at the beginning are mostly overhead.
    """
    while made < trainer.warm_iterations:
        state, metrics = trainer.advance(state)
        made += iterations_of(metrics)
    for _ in range(WARM_UP_CHUNKS):
        state, _ = trainer.advance(state)
    return state


def time_chunks(trainer: Trainer, state: TrainState, seconds: float) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and iterations of at least one chunk."""
    wall, cpu, iterations = time.perf_counter(), time.process_time(), 0
    while not iterations or time.perf_counter() - wall < seconds:
        state, metrics = trainer.advance(state)
        iterations += iterations_of(metrics)
    return time.perf_counter() - wall, time.process_time() - cpu, iterations


def iterations_of(metrics: dict[str, Any]) -> int:
    """How many iterations a chunk had."""
    return len(next(iter(metrics.values())))


# -- discovery -----------------------------------------------------------------------------------------------------------------


def measure_discovery(config: BenchDiscoverConfig) -> Measured:
    """Compile, make a first meta-step, measure."""
    discoverer = make_discoverer(config)
    import jax

    from rulax.discovery.flops import matrix_flops

    wall, cpu = time.perf_counter(), time.process_time()
    (programs,) = discoverer.compile()
    compiled: Any = programs.estimate
    result: Measured = {
        "agents": config.agents,
        "inner": config.inner,
        "memory": config.memory,
        "agents_at_once": config.agents_at_once or config.agents,
        "compile_s": time.perf_counter() - wall,
        "compile_cpu_s": time.process_time() - cpu,
        "temp_bytes": compiled.memory_analysis().temp_size_in_bytes,
        "flops": matrix_flops(trace(discoverer)),
        "device": jax.devices()[0].device_kind,
    }
    return result if config.compile_only else result | time_steps(config, discoverer, result["flops"])


def time_steps(config: BenchDiscoverConfig, discoverer: Discoverer, flops: float) -> Measured:
    """Medians over meta-steps: other jobs on the machine disturb some of them."""
    import jax

    # Not timed: it may still compile the smaller programs around the meta-gradient.
    state, _ = discoverer.advance(discoverer.init(jax.random.key(0)))
    walls: list[float] = []
    cpus: list[float] = []
    while len(walls) < LEAST_STEPS or sum(walls) < config.seconds:
        wall, cpu = time.perf_counter(), time.process_time()
        state, metrics = discoverer.advance(state)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    # The peak is read before the product is timed, from left to right, so that its arrays do not count.
    wall, cpu, peak, machine = statistics.median(walls), statistics.median(cpus), peak_memory(), matmul_peak()
    found = {
        "meta_steps_per_s": 1 / wall,
        "meta_steps_per_cpu_s": 1 / cpu,
        "cpu_s_per_meta_step": cpu,
        "least_cpu_s_per_meta_step": min(cpus),
        "meta_steps": len(walls),
        "peak_rss_mb": peak,
        "matmul_flops_per_cpu_s": machine,
        "utilisation": flops / cpu / machine,
        "bad_agents": int(metrics[""]["bad_agents"]),
    }
    recorded = REFERENCE_META_STEPS.get((config.agents, config.inner))
    return found | (against_reference("meta_step", *recorded, cpu, peak) if recorded else {})


# -- both ----------------------------------------------------------------------------------------------------------------------


def against_reference(unit: str, reference: float, reference_mb: float, cpu: float, memory: float) -> Measured:
    """The comparison with what was recorded of DeepMind's reference: CPU seconds per `unit`, and resident memory in MB."""
    return {
        f"reference_cpu_s_per_{unit}": reference,
        "times_reference_speed": reference / cpu,
        "share_of_reference_memory": memory / reference_mb,
    }


def peak_memory() -> float:
    """Largest resident size so far, in MB."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes on macOS, kilobytes elsewhere
