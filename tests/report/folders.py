"""Run folders made by hand, so that a page can be checked number by number and without JAX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VERSIONS = {"versions": {"rulax": "0.1.0", "jax": "0.10.2"}, "commit": "abc", "fingerprint": "f00d"}


def write(folder: Path, config: dict[str, Any], rows: list[Any], summary: dict[str, Any] | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def train_row(step: int, returns: list[float | None]) -> dict[str, Any]:
    known = [value for value in returns if value is not None]
    return {
        "step": step,
        "seconds": step / 100,
        "episodes": 4 * len(known),
        "episode_return": sum(known) / len(known) if known else None,
        "return_per_seed": returns,
        "episodes_per_seed": [0 if value is None else 4 for value in returns],
        "loss": 1000 / step,
        "entropy": None if step < 200 else 0.5,
    }


def train_folder(folder: Path, seeds: int = 3, finished: bool = True, extra: tuple[str, ...] = (), env: str = "catch") -> Path:
    config = {
        "settings": {"env": env, "rule": "ppo", "steps": 1000, "seeds": seeds, "seed": 0},
        "learning": {"learning_rate": 0.003, "streams": 32},
        "network": {"hidden": [64, 64]},
        "custom": [],
        "command": f"rulax train {env} --rule ppo",
        **VERSIONS,
    }
    rows = [train_row(step, [step / 1000 + seed for seed in range(seeds)]) for step in range(100, 1001, 100)]
    summary = {"finished": finished, "seconds": 10.0, "cpu_seconds": 18.0}
    return write(folder, config, [*rows[:5], *extra, *rows[5:]], summary)


def discover_folder(folder: Path, finished: bool = True) -> Path:
    families = ["catch:rows=5", "grid/delayed"]
    config = {
        "settings": {
            "suite": "grids",
            "steps": 40,
            "seed": 0,
            "envs": families,
            "validation": ["catch"],
            "evaluation_seeds": 4,
        },
        "discovery": {"agents": 4, "window": 5},
        "learning": {},
        "network": {},
        "command": "rulax discover grids",
        **VERSIONS,
    }
    rows: list[Any] = []
    every = [*families, "catch"]
    for step in range(0, 41, 10):
        score = {f"score/{name}": step / 40 for name in every} | {f"evaluation_return/{name}": step / 20 for name in every}
        rows.append({"kind": "evaluation", "step": step, "seconds": 1.0, "training_score": step / 40, "validation_score": step / 80, **score})
        norm = {"meta_gradient_norm": 1 / (1 + step), "outer_loss": -step, "return/catch:rows=5": step / 30}
        rows.append({"kind": "meta", "step": step + 5, "seconds": 2.0, **norm})
    result = {"step": 40, "returns": dict.fromkeys(every, 2.0), "scores": dict.fromkeys(every, 0.987), "training_score": 1.0}
    result["validation_score"] = 0.5
    summary = {"finished": finished, "meta_steps": 40, "agent_updates": 800, "environment_steps": 12345, "seconds": 60.0}
    summary |= {"cpu_seconds": 90.0, "bad_agents": 0, "first": result, "best": result, "last": result}
    write(folder, config, rows, summary)
    (folder / "baselines.json").write_text(json.dumps({name: {"untrained": 0.0, "actor_critic": 2.0} for name in every}))
    return folder
