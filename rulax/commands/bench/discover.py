"""`rulax bench discover`: how fast a meta-step is in the setting of the reference's meta-training notebook, and what it stores."""

from __future__ import annotations

import json
import math
import statistics
import time
from typing import Any

from rulax.commands.bench.references import REFERENCE_META_STEPS, matmul_peak
from rulax.commands.bench.settings import BenchDiscoverConfig
from rulax.commands.bench.train import peak_memory
from rulax.commands.build import make_environment, make_recipe, read_spec, start_jax
from rulax.commands.discover.settings import build_discover
from rulax.commands.settings import assemble, check_bounds, override, read_values
from rulax.discovery.settings import Discovery

SUITE = "catch-notebook"
LEAST_STEPS = 3  # of which the median is taken


def command(values: dict[str, Any]) -> int:
    """Entry point of the command line."""
    config = assemble(BenchDiscoverConfig, read_values(BenchDiscoverConfig, values))
    check_bounds(config)
    result = measure(config)
    if config.json:
        print(json.dumps(result))
    else:
        show(result)
    return 0


def measure(config: BenchDiscoverConfig) -> dict[str, Any]:
    """Compile, make a first meta-step, measure."""
    start_jax(config.platform, cache=False)  # a cached program would make the time to compile look like nothing
    import jax

    from rulax.discovery.flops import matrix_flops

    discoverer = make_discoverer(config)
    wall, cpu = time.perf_counter(), time.process_time()
    (programs,) = discoverer.compile()
    compiled: Any = programs.estimate
    result: dict[str, Any] = {
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


def make_discoverer(config: BenchDiscoverConfig) -> Any:
    """Discovery of a random rule of Disco103's sizes in the notebook's setting."""
    from rulax.discovery.discover import Discoverer
    from rulax.discovery.population import Family

    asked = {"agents": config.agents, "window": config.inner, "memory": config.memory, "agents_at_once": config.agents_at_once}
    suite = build_discover({"suite": SUITE, **asked})
    (spec,) = (read_spec(text) for text in suite.envs)
    recipe = make_recipe("disco", {}, suite.overrides)
    environment: Any = make_environment(spec.env, spec.options)
    family = Family(spec.name, environment, recipe, override(Discovery(), suite.overrides))
    return Discoverer([family], suite.steps)


def trace(discoverer: Any) -> Any:
    """The program of its one family, not compiled."""
    import jax

    from rulax.discovery.meta_step import estimate, rule_problem

    (family,), state = discoverer.families, discoverer.skeleton()
    plan = discoverer.plans[family.name]
    return jax.make_jaxpr(estimate(family, rule_problem(family, plan.strategy), plan.at_once))(state.meta_params, state.members[0])


def time_steps(config: BenchDiscoverConfig, discoverer: Any, flops: float) -> dict[str, Any]:
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
    reference = REFERENCE_META_STEPS.get((config.agents, config.inner))
    if reference is not None:
        found |= {
            "reference_cpu_s_per_meta_step": reference.cpu_seconds,
            "times_reference_speed": reference.cpu_seconds / cpu,
            "share_of_reference_memory": peak / reference.rss_mb,
        }
    return found


def show(result: dict[str, Any]) -> None:
    """A table for people."""
    print(f"{result['agents']} agent(s) x {result['inner']} update(s), memory {result['memory']}, {result['device']}\n")
    rows = {
        "compile": f"{result['compile_s']:.1f} s, {result['compile_cpu_s']:.1f} CPU seconds",
        "stored": f"{result['temp_bytes'] / 2**20:,.0f} MB of temporary arrays",
        "work": f"{result['flops'] / 1e9:,.1f} GFLOP in matrix products",
    }
    if not math.isnan(result.get("cpu_s_per_meta_step", math.nan)):
        rows |= {
            "meta-steps": f"{result['meta_steps_per_s']:.3f} per second, {result['meta_steps_per_cpu_s']:.3f} per CPU second",
            "peak memory": f"{result['peak_rss_mb']:,.0f} MB",
            "machine": f"{result['matmul_flops_per_cpu_s'] / 1e9:,.0f} GFLOP per CPU second in a matrix product; "
            f"this reached {result['utilisation']:.0%} of it",
        }
    if "times_reference_speed" in result:
        rows["reference"] = (
            f"{result['times_reference_speed']:.2f} times its recorded meta-steps per CPU second, "
            f"{result['share_of_reference_memory']:.0%} of its memory"
        )
    for name, text in rows.items():
        print(f"  {name:<12} {text}")
