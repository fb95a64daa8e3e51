"""Look-ups in an episodic memory: how many per CPU second, beside faiss (IndexFlatL2) on the same work.

A query is the 11 nearest of C keys with 64 numbers each, by exact search: one at a time, as one stream acts, and 32 at a time.

    taskset -c 0 python benchmarks/episodic_memory.py [--json] [--rows 1000 10000 100000] [--seconds 2]

faiss is optional (`pip install 'rulax[benchmarks]'`); without it only our own numbers are printed. Both use one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rulax.agents.memory import Memory, empty_memory, nearest

try:
    import faiss
except ImportError:
    faiss = None

KEY_SIZE, NEIGHBOURS, BATCHES = 64, 11, (1, 32)


def per_cpu_second(work: Callable[[], Any], queries: int, seconds: float) -> float:
    """Queries per CPU second of `work`, which makes so many at a time."""
    work()  # compiles, and warms caches
    began, turns = time.process_time(), 0
    while time.process_time() - began < seconds:
        work()
        turns += 1
    return turns * queries / (time.process_time() - began)


def measure(rows: int, seconds: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(rows, KEY_SIZE)).astype(np.float32)
    memory = empty_memory(rows, KEY_SIZE)
    memory = Memory(jax.device_put(keys), memory.values, memory.stamp, memory.valid | True, memory.clock)
    ask = jax.jit(lambda memory, queries: nearest(memory, queries, NEIGHBOURS))
    found = []
    for batch in BATCHES:
        queries = rng.normal(size=(batch, KEY_SIZE)).astype(np.float32)
        ours = per_cpu_second(lambda q=queries: jax.block_until_ready(ask(memory, q)), batch, seconds)
        row = {"rows": rows, "at a time": batch, "rulax": ours}
        if faiss is not None:
            faiss.omp_set_num_threads(1)
            index = faiss.IndexFlatL2(KEY_SIZE)
            index.add(keys)
            same = np.array_equal(index.search(queries, NEIGHBOURS)[1], np.asarray(ask(memory, queries).rows))
            row |= {
                "faiss": per_cpu_second(lambda q=queries, index=index: index.search(q, NEIGHBOURS), batch, seconds),
                "same rows": same,
            }
        found.append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds per measurement")
    arguments = parser.parse_args()
    for rows in arguments.rows:
        for row in measure(rows, arguments.seconds):
            print(json.dumps(row) if arguments.json else "  ".join(f"{k} {v:,.0f}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
