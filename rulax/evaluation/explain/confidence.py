"""Analysis 1: how confident the agent's predictions are in the steps before a reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from rulax.evaluation.explain.intervals import over_groups

FEWEST = 8  # events below which a kind of reward is left out


def confidence_before(
    confidence: np.ndarray, reward: np.ndarray, episode: np.ndarray, valid: np.ndarray, back: int = 10, seed: int = 0
) -> dict[str, Any]:
    """Confidence [L, B] at 0 to `back` steps before rewards [L, B], in standard deviations from its mean over all steps.

    A reward counts as an event if it differs from the most frequent one, which usually means that nothing happened; larger and
    smaller ones are reported apart. Only steps of the same `episode` [L, B] are used, and intervals are over episodes.
    """
    usual = usual_reward(reward[valid])
    spread = float(np.std(confidence[valid])) or 1.0
    level = (confidence - np.mean(confidence[valid])) / spread
    found: dict[str, Any] = {"usual_reward": usual, "mean": float(np.mean(confidence[valid])), "deviation": spread, "kinds": {}}
    for kind, events in {"more": valid & (reward > usual), "less": valid & (reward < usual)}.items():
        if events.sum() < FEWEST:
            continue
        rows = []
        for distance in range(back + 1):
            before, groups = steps_before(level, episode, events, distance)
            if len(before) < FEWEST:
                break
            rows.append({"steps_before": distance, **over_groups(before, groups, seed)})
        found["kinds"][kind] = {"events": int(events.sum()), "rows": rows}
    return found


def usual_reward(rewards: np.ndarray) -> float:
    """The most frequent reward."""
    # Rounded, so that float noise does not split one reward into many.
    values, counts = np.unique(np.round(rewards.astype(np.float64), 6), return_counts=True)
    return float(values[np.argmax(counts)]) if len(values) else 0.0


def steps_before(level: np.ndarray, episode: np.ndarray, events: np.ndarray, distance: int) -> tuple[np.ndarray, np.ndarray]:
    """The level [L, B] `distance` steps before each event of the same episode, [E], and the numbers of those episodes, [E]."""
    time, stream = np.nonzero(events)
    inside = time >= distance
    time, stream = time[inside], stream[inside]
    same = episode[time, stream] == episode[time - distance, stream]
    time, stream = time[same], stream[same]
    return level[time - distance, stream], episode[time, stream]
