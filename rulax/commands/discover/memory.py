"""`--memory auto`: which strategy each family's meta-gradient uses, and why. Written to the run folder and reused on resuming,
because strategies differ in the last bits.

Compiling all strategies of all families would take longer than many runs. So first comes a bound (rulax/discovery/bound.py) that
can prove that the fastest strategy fits; only if it cannot, the compiler is asked, for the family with the largest bound, and the
others are scaled from it by their bounds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rulax.discovery.discover import Discoverer, Plan
from rulax.discovery.memory import ONE_PASS, STRATEGIES
from rulax.errors import UserError
from rulax.records import folder as folders

MEMORY = "memory.json"
SHARE = 0.8  # of what is free
MB, GB = 10**6, 10**9
Say = Callable[[str], None]


def free_bytes() -> int:
    """Memory that could be taken now."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # elsewhere: what there is


def plan_memory(discoverer: Discoverer, limit_gb: float, folder: Path, say: Say, phase: Say) -> None:
    """Set the plan of every family."""
    path = folder / MEMORY
    if path.exists():
        plans = json.loads(path.read_text())["plans"]
        discoverer.plans = {name: Plan(*plan) for name, plan in plans.items()}
        return
    limit = int(limit_gb * GB) or int(SHARE * free_bytes())
    known: dict[str, Any] = {"limit": limit}
    known |= decide(discoverer, limit, say, phase)
    folders.write_json(path, known | {"plans": discoverer.plans})


def decide(discoverer: Discoverer, limit: int, say: Say, phase: Say) -> dict[str, Any]:
    """Choose or check, and say on what grounds."""
    settings = discoverer.settings
    fixed = settings.memory != "auto"
    strategy = settings.memory if fixed else STRATEGIES[0]
    wanted = Plan(strategy, settings.agents_at_once)
    bounds = {}
    for family in discoverer.families:
        phase(f"tracing {family.name}")
        bounds[family.name] = discoverer.bound(family, wanted)
    largest = max(discoverer.families, key=lambda family: bounds[family.name])
    if bounds[largest.name] <= limit:
        discoverer.plans = {family.name: wanted for family in discoverer.families}
        say(
            f"memory: {strategy}; it needs at most {megabytes(bounds[largest.name])} (a bound, for {largest.name}), "
            f"the limit is {megabytes(limit)}"
        )
        return {"bounds": bounds}
    of_largest = predict(discoverer, largest, phase)
    ratios = {name: bound / bounds[largest.name] for name, bound in bounds.items()}
    predicted = {name: {each: int(size * ratio) for each, size in of_largest.items()} for name, ratio in ratios.items()}
    listed = ", ".join(f"{each} {megabytes(size)}" for each, size in of_largest.items())
    say(f"memory predicted by the compiler for {largest.name}: {listed}; the limit is {megabytes(limit)}")
    if fixed:
        refuse_if_too_large(strategy, of_largest, limit, settings.window)
        discoverer.plans = {family.name: wanted for family in discoverer.families}
    else:
        phase("choosing how to keep memory small")
        everything = {name: dict.fromkeys(STRATEGIES, 2**62) | sizes for name, sizes in predicted.items()}
        discoverer.choose(limit, everything)
        say("memory: " + ", ".join(f"{name} {told(plan)}" for name, plan in discoverer.plans.items()))
    return {"bounds": bounds, "predicted": predicted, "predicted_for": largest.name}


def predict(discoverer: Discoverer, family: Any, phase: Say) -> dict[str, int]:
    """The compiler's bytes for one family under every strategy that its learner allows."""
    learning = family.recipe.learning
    one_pass = learning.epochs * learning.minibatches == 1
    possible = [each for each in STRATEGIES if one_pass or each not in ONE_PASS]
    found = {}
    for each in possible:
        phase(f"predicting the memory of {family.name} with {each}")
        found[each] = discoverer.predict(family, Plan(each, discoverer.settings.agents_at_once))
    return found


def refuse_if_too_large(strategy: str, sizes: dict[str, int], limit: int, window: int) -> None:
    """A strategy that the user insists on must fit; else say which would."""
    if sizes[strategy] <= limit:
        return
    fitting = [each for each in sizes if sizes[each] <= limit]
    advice = f"--memory {fitting[0]} would fit ({megabytes(sizes[fitting[0]])})" if fitting else "no strategy fits"
    raise UserError(
        f"memory {strategy} needs {megabytes(sizes[strategy])} for a window of {window}, over the limit of {megabytes(limit)}: "
        f"{advice}; a smaller --window, --agents or --agents-at-once needs less, --memory-limit allows more"
    )


def told(plan: Plan) -> str:
    """A plan in words."""
    return plan.strategy + (f", {plan.at_once} agents at once" if plan.at_once else "")


def megabytes(number: float) -> str:
    """Bytes for a person."""
    return f"{number / GB:.1f} GB" if number >= GB else f"{number / MB:.0f} MB"
