"""Which way of meta-learning pays: four kinds of rules on three roads, at equal CPU seconds, in the suite `grids`.

python benchmarks/roads.py runs/roads --seconds 120 --seeds 3     # 36 cells, about three minutes each on one core
python benchmarks/roads.py runs/roads --table                     # of the cells that there are
python benchmarks/roads.py runs/roads --table --record benchmarks/records/roads.json    # and all of them in one file

Every cell is a discovery from the kind's own start, for so many CPU seconds of meta-steps: compilation is not counted. Its score is
that of fresh agents in the validation families, 0 for an untrained agent and 1 for actor-critic. Agents differ from kind to kind,
and with them both ends of the scale: compare roads within a kind, not scores of different kinds. PES weighs perturbations by ranks,
as evolution does; without bias it is by values only. One JSON file per cell, so that a run which was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rulax.commands.discover.evaluations import Evaluator
from rulax.commands.discover.result import Spent
from rulax.commands.discover.settings import build_discover
from rulax.commands.discover.setup import prepare_discovery
from rulax.evaluation.statistics import student_factor
from rulax.files import write_json

# Agents that make several gradient steps per batch, fewer than PPO recommends: a window of the same length costs less.
PROXIMAL = {"streams": 32, "unroll": 16, "epochs": 2, "minibatches": 2, "schedule": "constant"}
KINDS: dict[str, dict[str, Any]] = {
    "disco": {},
    "lpg": {"rule_options": {"hidden": 64}},
    "lpo": PROXIMAL,
    "epg": PROXIMAL | {"rule_options": {"buffer": 256}},
}
PERTURBED = {"pairs": 4, "noise": 0.05, "meta_optimiser": "mean"}
ROADS: dict[str, dict[str, Any]] = {
    "backprop": {},
    "evolution": PERTURBED,  # windows, as the others: one whole life of a Disco rule's agents takes longer than a cell
    "pes": PERTURBED,
}
START = "start"  # no road at all: random weights teach, too, some of them well
MANY = 10**6  # meta-steps, of which time allows fewer; the step size is constant, so that their number does not matter


def settings_of(kind: str, road: str, seed: int) -> dict[str, Any]:
    """One cell as `rulax discover` would be asked for it."""
    chosen = {"suite": "grids", "rule": kind, "seed": seed, "steps": MANY, "meta_schedule": "constant"} | KINDS[kind]
    chosen |= {"estimator": road} | ROADS[road] if road != START else {"estimator": "evolution"}
    if (kind, road) == ("lpo", "backprop"):
        chosen["rule_options"] = {"first_std": 0.1}  # exactly at PPO every meta-gradient is zero
    if kind == "epg":
        chosen["rule_options"] = {"first_std": 0.25}  # as epg began when the table was made; it begins with 0 now
    return chosen


def run(kind: str, road: str, seed: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Discover for so many CPU seconds, then judge; with the road `START` the rule is judged as it begins."""
    prepared = prepare_discovery(build_discover(settings_of(kind, road, seed)))
    discoverer = prepared.discoverer
    state, spent, best = discoverer.init(jax.random.key(seed)), 0.0, 0
    if road != START:
        discoverer.compile()
        state, _ = discoverer.advance(state)  # the first one compiles the optimiser as well
    while road != START and spent < seconds:
        began = time.process_time()
        state, _ = discoverer.advance(state)
        spent += time.process_time() - began
        best += 1
    evaluator = Evaluator(prepared, folder)
    evaluator.measure(print, lambda *_: None)
    scores = evaluator.evaluate(state.meta_params, best, lambda: False, lambda *_: None)
    assert scores is not None
    cost = Spent.of(prepared, best, 0.0, spent, 0)
    found = {
        "kind": kind,
        "road": road,
        "seed": seed,
        "seconds": seconds,
        "validation": scores.validation_score,
        "training": scores.training_score,
    }
    return found | {name: getattr(cost, name) for name in ("meta_steps", "agent_updates", "environment_steps", "cpu_seconds")}


def wanted(path: Path, seconds: float) -> bool:
    """Whether a cell is still to be run; one of other seconds stops everything, for a table of both would compare nothing."""
    if not path.exists():
        return True
    found = json.loads(path.read_text()).get("seconds")
    if found != seconds:
        raise SystemExit(f"{path} is a cell of {found} seconds, not {seconds:g}: give --seconds {found}, or another folder")
    return False


def read_cells(folder: Path) -> list[dict[str, Any]]:
    """All that there are."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*-*-*.json"))]


def table(folder: Path) -> str:
    """Means over seeds with 95 % intervals by Student's t, as Markdown."""
    cells = read_cells(folder)
    lines = ["| rule | road | validation score | each seed | environment steps | agent updates |", "|---|---|---|---|---|---|"]
    for kind in KINDS:
        for road in (START, *ROADS):
            rows = [cell for cell in cells if (cell["kind"], cell["road"]) == (kind, road)]
            if not rows:
                continue
            values = np.array([row["validation"] for row in rows])
            half = student_factor(len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
            steps, updates = (np.mean([row[name] for row in rows]) for name in ("environment_steps", "agent_updates"))
            each = ", ".join(f"{value:.2f}" for value in values)
            lines.append(f"| {kind} | {road} | {values.mean():.2f} ± {half:.2f} | {each} | {steps / 1e6:.1f} M | {updates:,.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU seconds of meta-steps per cell")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--table", action="store_true", help="only print what there is")
    parser.add_argument("--record", type=Path, help="a file for all cells together")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        for kind in chosen.kinds if not chosen.table else ():
            # Baselines depend on the agents, so each kind has its own, shared by its roads and seeds.
            baselines = chosen.folder / f"baselines_{kind}"
            baselines.mkdir(exist_ok=True)
            for road in (START, *ROADS):
                path = chosen.folder / f"{kind}-{road}-{seed}.json"
                if wanted(path, chosen.seconds):
                    write_json(path, run(kind, road, seed, chosen.seconds, baselines))
                    print(path.name, path.read_text().replace("\n", " "), flush=True)
                    jax.clear_caches()
    if chosen.record:
        write_json(chosen.record, read_cells(chosen.folder))
    print(table(chosen.folder))


if __name__ == "__main__":
    main()
