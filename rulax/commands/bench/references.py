"""What a benchmark is held against: the machine's own matrix product, and DeepMind's reference as it was recorded."""

from __future__ import annotations

import time
from typing import NamedTuple

REFERENCE_ACTIONS, REFERENCE_FLOPS, REFERENCE_CPU_SECONDS = 3, 24.5e9, 0.57  # one learner step of disco_rl, recorded on two cores
REFERENCE_RSS_MB = 2600.0


class MetaStep(NamedTuple):
    """One meta-step of the reference's meta-training notebook, as it was recorded."""

    cpu_seconds: float  # median
    rss_mb: float


# By agents and updates; Catch 5x5, two shared cores (reference_curves.json).
REFERENCE_META_STEPS = {
    (1, 2): MetaStep(2.479, 3891),
    (2, 2): MetaStep(4.538, 4651),
    (4, 2): MetaStep(8.115, 6480),
    (2, 5): MetaStep(9.600, 5852),
    (2, 20): MetaStep(85.62, 16331),
}
SIZE = 2048  # large enough for the full speed of a product, small enough for a fifth of a second


def matmul_peak(repeats: int = 5) -> float:
    """FLOP per CPU second of a square float32 product: the best of some repeats, because other jobs only make it slower."""
    import jax
    import jax.numpy as jnp

    square = jnp.ones((SIZE, SIZE), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(square, square).block_until_ready()
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        product(square, square).block_until_ready()
        best = min(best, time.process_time() - began)
    return 2 * SIZE**3 / best


def reference_flops(actions: int) -> float:
    """FLOPs of the reference's learner step on Catch: what was recorded for 3 actions, plus its work for the other actions.

    It reads every action online and slow, and passes the gradient back through every action (twice the work of reading it):
    four times the action LSTM and the heads of z, q and p, and two readings of z by the meta-network's two encoders.
    """
    rows, width, outputs, encoders = 64 * 30, 128, 600 + 601, 2 * 16

    def all_actions(number: int) -> float:
        lstm = (width + number) * 4 * width
        heads = 3 * width * width + width * (outputs + number)
        return 2 * rows * number * (4 * (lstm + heads) + 2 * 600 * encoders)

    return REFERENCE_FLOPS + all_actions(actions) - all_actions(REFERENCE_ACTIONS)


def reference_cpu_seconds(actions: int) -> float:
    """CPU seconds of that step: recorded for 3 actions; for others at the same FLOP per second (49 % of a product's)."""
    return REFERENCE_CPU_SECONDS * reference_flops(actions) / REFERENCE_FLOPS
