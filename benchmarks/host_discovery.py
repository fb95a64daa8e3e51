"""What a meta-step costs where agents act on the host, beyond acting and differentiating themselves.

Timed in turns, in medians over rounds:

    acting           all families live their window: environments, decisions, updates, the critic
    differentiating  the meta-gradients of these windows from their records
    meta-step        `Discoverer.advance`: both, where one family acts while another is differentiated, and the step of the rule

`ratio` is meta-step / (acting + differentiating), by the wall clock; the goal is at most 1.25.

    python benchmarks/host_discovery.py [--json] [--families CartPole-v1] [--families CartPole-v1 Acrobot-v1] [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rulax.commands.discover.settings import build_discover
from rulax.commands.discover.setup import prepare_discovery


def clock(work: Callable, *arguments: Any) -> tuple[float, Any]:
    """Wall seconds, and the result."""
    began = time.perf_counter()
    result = jax.block_until_ready(work(*arguments))
    return time.perf_counter() - began, result


def measure(families: list[str], rounds: int) -> dict[str, Any]:
    """Medians over rounds, for agents and a rule as the suite `grids` has them."""
    prepared = prepare_discovery(build_discover({"envs": families, "steps": 10**6, "validation": []}))
    discoverer = prepared.discoverer
    state = discoverer.init(jax.random.key(0))
    programs = discoverer.compile()
    for _ in range(2):  # compiles, and fills replay
        state, _ = discoverer.advance(state)
    rows = []
    for _ in range(rounds):
        acting = differentiating = 0.0
        for family, members in zip(programs, state.members, strict=True):
            assert family.live is not None, "all families must be on the host"
            seconds, (_, recorded, _) = clock(family.live, state.meta_params, members)
            acting += seconds
            seconds, _ = clock(family.estimate, state.meta_params, recorded)
            differentiating += seconds
        seconds, (state, _) = clock(discoverer.advance, state)
        rows.append((acting, differentiating, seconds))
    discoverer.close()
    acting, differentiating, whole = np.median(rows, 0)
    ratios = [row[2] / (row[0] + row[1]) for row in rows]
    return {
        "families": families,
        "acting": round(float(acting), 4),
        "differentiating": round(float(differentiating), 4),
        "meta_step": round(float(whole), 4),
        "ratio": round(float(np.median(ratios)), 3),
        "ratios": [round(float(min(ratios)), 3), round(float(max(ratios)), 3)],
    }


def main() -> None:
    """Measure each set of families and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", action="append", help="host environments of one discovery; may be given again")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    for families in given.families or [["CartPole-v1"], ["CartPole-v1", "Acrobot-v1"]]:
        found = measure(families, given.rounds)
        if given.json:
            print(json.dumps(found), flush=True)
        else:
            parts = [f"{name.replace('_', '-')} {found[name]:.3f} s" for name in ("acting", "differentiating", "meta_step")]
            print(f"{' + '.join(families)}: {', '.join(parts)}, ratio {found['ratio']:.2f} ({found['ratios']})", flush=True)


if __name__ == "__main__":
    main()
