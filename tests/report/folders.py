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
        "kl": None if step < 200 else step / 1e5,
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
            "steps": 45,
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
        rows.append(
            {
                "kind": "evaluation",
                "step": step,
                "seconds": 1.0,
                "training_score": step / 40,
                "validation_score": step / 80,
                **score,
            }
        )
        norm = {"meta_gradient_norm_of_mean": 1 / (1 + step), "outer_loss": -step, "return/catch:rows=5": step / 30}
        rows.append({"kind": "meta", "step": step + 5, "seconds": 2.0, **norm})
    result = {"step": 40, "returns": dict.fromkeys(every, 2.0), "scores": dict.fromkeys(every, 0.987), "training_score": 1.0}
    result["validation_score"] = 0.5
    summary = {"finished": finished, "meta_steps": 45, "agent_updates": 800, "environment_steps": 12345, "seconds": 60.0}
    summary |= {"cpu_seconds": 90.0, "bad_agents": 0, "first": result, "best": result, "last": result}
    write(folder, config, rows, summary)
    (folder / "baselines.json").write_text(json.dumps({name: {"untrained": 0.0, "actor_critic": 2.0} for name in every}))
    (folder / "rule.safetensors").write_bytes(b"")  # no rule that could be read, but a place where one is
    return folder


def estimated(value: float, reach: float = 0.1) -> dict[str, float]:
    return {"value": value, "low": value - reach, "high": value + reach}


def group(scores: dict[str, float]) -> dict[str, Any]:
    def statistics(score: float) -> dict[str, Any]:
        profile = {"thresholds": [0, 0.5, 1], "value": [1, score, 0], "low": [1, score, 0], "high": [1, score, 0]}
        return {name: estimated(score) for name in ("iqm", "median", "mean", "optimality_gap")} | {"profile": profile}

    pairs = [
        {
            "rule": one,
            "over": other,
            "probability": estimated(0.5 + (scores[one] - scores[other]) / 2, 0.2),
            "paired": {"difference": scores[one] - scores[other], "pairs": 10, "p_rank": 0.125, "p_mean": 0.25},
        }
        for one in scores
        for other in scores
        if one != other
    ]
    return {"rules": {rule: statistics(score) for rule, score in scores.items()}, "improvement": pairs}


def comparison(scores: dict[str, float], envs: dict[str, str], finished: bool = True) -> dict[str, Any]:
    """What `rulax compare` writes into compare.json, as far as the page reads it."""

    def cell(env: str, rule: str) -> dict[str, Any]:
        curve = {"steps": [100, 200], "mean": [0.0, scores[rule]], "low": [None, -1.0], "high": [None, 2.0]}
        cost = {"environment_steps": 1000, "seconds": 5.0, "cpu_seconds": 9.0, "core_hours": 0.0025}
        return {
            "env": env,
            "rule": rule,
            "finished": finished,
            "folder": f"score/{env}-{rule}",
            "curve": curve,
            "command": f"rulax train {env} --rule {rule}",
            **cost,
        }

    return {
        "kind": "compare",
        "finished": finished,
        "seeds": 5,
        "steps": 200,
        "environments": [
            {"name": env, "suite": None, "role": role, "held_out": role == "held out", "complete": True, "random": -0.6}
            for env, role in envs.items()
        ],
        "rules": [{"name": rule, "summary": f"about {rule}", "ablations": [], "trained_on": [], "settings": {}} for rule in scores],
        "cells": [cell(env, rule) for env in envs for rule in scores],
        "statistics": {
            "environments": {env: {rule: estimated(score) for rule, score in scores.items()} for env in envs},
            "overall": group(scores),
            "held_out": group(scores),
        },
        "normalisation": "a score of 0 is untrained, 1 is the best rule",
        "tuning": {
            "trials": [{"learning_rate": 0.001}, {"learning_rate": 0.01}],
            "seeds": 3,
            "steps": 200,
            "rules": {rule: {"chosen": {"learning_rate": 0.01}, "scores": [0.1, 0.9]} for rule in scores},
            "words": "2 trials for every rule",
        },
        "warnings": ["only 5 seeds"],
        "settings": {"seeds": 5},
        "versions": {"rulax": "0.1.0"},
        "commit": "abc",
        "commands": ["rulax compare catch --rules ppo"],
        "cost": {"seconds": 60.0, "cpu_seconds": 3600.0, "core_hours": 1.0},
    }
