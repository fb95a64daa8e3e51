"""What a benchmark says, as a table for people; `--json` prints the same numbers for programs."""

from __future__ import annotations

from typing import Any


def show_training(result: dict[str, Any]) -> None:
    """The speed of training."""
    print(f"{result['rule']} on {result['env']}, {result['seeds']} seed(s), {result['device']}\n")
    show(
        {
            "updates": f"{result['updates_per_s']:,.1f} per second, {result['updates_per_cpu_s']:,.1f} per CPU second",
            "steps": f"{result['env_steps_per_s']:,.0f} per second, {result['env_steps_per_cpu_s']:,.0f} per CPU second",
            "first chunk": f"{result['compile_s']:.2f} s (mostly compiling)",
            "peak memory": f"{result['peak_rss_mb']:,.0f} MB",
            "work": "not known" if result["flops"] is None else f"{result['flops'] / 1e6:,.1f} MFLOP per iteration",
        },
        result,
        "updates",
    )


def show_discovery(result: dict[str, Any]) -> None:
    """The speed of discovery; without meta-steps, what compiling has told."""
    print(f"{result['agents']} agent(s) x {result['inner']} update(s), memory {result['memory']}, {result['device']}\n")
    rows = {
        "compile": f"{result['compile_s']:.1f} s, {result['compile_cpu_s']:.1f} CPU seconds",
        "stored": f"{result['temp_bytes'] / 2**20:,.0f} MB of temporary arrays",
        "work": f"{result['flops'] / 1e9:,.1f} GFLOP in matrix products",
    }
    if "meta_steps" in result:
        rows |= {
            "meta-steps": f"{result['meta_steps_per_s']:.3f} per second, {result['meta_steps_per_cpu_s']:.3f} per CPU second",
            "peak memory": f"{result['peak_rss_mb']:,.0f} MB",
        }
    show(rows, result, "meta-steps")


def show(rows: dict[str, str], result: dict[str, Any], unit: str) -> None:
    """The rows, then what was measured is held against: the machine's own matrix product, and the reference."""
    if result.get("utilisation") is not None:
        speed = f"{result['matmul_flops_per_cpu_s'] / 1e9:,.0f} GFLOP per CPU second in a matrix product"
        rows |= {"machine": f"{speed}; this reached {result['utilisation']:.0%} of it"}
    if "times_reference_speed" in result:
        speed = f"{result['times_reference_speed']:.2f} times its recorded {unit} per CPU second"
        rows |= {"reference": f"{speed}, {result['share_of_reference_memory']:.0%} of its memory (docs/performance.md)"}
    for name, text in rows.items():
        print(f"  {name:<12} {text}")
