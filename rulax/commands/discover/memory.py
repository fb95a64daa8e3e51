"""`--memory auto`: which strategy each family's meta-gradient uses, and why. Written to the run folder and reused on resuming,
because strategies differ in the last bits.

Compiling all strategies of all families would take longer than many runs. So first comes a bound (rulax/discovery/bound.py) that
can prove that the fastest strategy fits; only if it cannot, the compiler is asked, for the family with the largest bound, and the
others are scaled from it by their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from rulax.discovery.discover import Discoverer, Plan
from rulax.discovery.memory import ONE_PASS, STRATEGIES
from rulax.discovery.population import Family
from rulax.errors import UserError
from rulax.files import read_json, write_json
from rulax.parallel.machine import free_memory
from rulax.parallel.processes import from_first
from rulax.text import bytes_text, to_bytes

MEMORY = "memory.json"
SHARE = 0.8  # of what is free
NO_LIMIT = 2**62  # where nobody knows what is free
GB = 10**9
Say = Callable[[str], None]


class Plans(TypedDict):
    """The form of the file, as far as it is read."""

    limit: int
    plans: dict[str, Plan]


def plan_memory(discoverer: Discoverer, limit_gb: float, folder: Path, say: Say, phase: Say) -> None:
    """Set the plan of every family."""
    path = folder / MEMORY
    # Also where the limit or the machine is another one now: see above, another strategy would differ in the last bits.
    saved = read_json(path, Plans)
    if saved:
        discoverer.plans = {name: Plan(*plan) for name, plan in saved["plans"].items()}
        if limit_gb and int(limit_gb * GB) != saved["limit"]:
            say("memory: the plan of this run was made when it began and stays as it is, whatever --memory-limit says")
        return
    # Not all of what is free: the bound and the prediction are of one meta-gradient's temporary arrays, and there is more than
    # that.
    # Of the first process, if there are several: all must make the same plan.
    limit = from_first(int(limit_gb * GB) or int(SHARE * free_memory()) or NO_LIMIT)
    known: dict[str, Any] = {"limit": limit}
    known |= decide(discoverer, limit, say, phase)
    # Only once it is decided: a run that is refused or stopped in the middle plans anew.
    write_json(path, known | {"plans": discoverer.plans})


def reserves(discoverer: Discoverer, replay_limit: str) -> list[str]:
    """What the records and the replay of agents on the host will take, a sentence each; refused if that is too much."""
    limit, said = to_bytes("replay_limit", replay_limit) if replay_limit else 0, []
    for family in discoverer.families:
        if family.on_host:
            try:
                said.append(discoverer.lives(family).reserve(limit))
            except ValueError as error:
                raise UserError(f"{family.name}: {error}") from error
    return said


def decide(discoverer: Discoverer, limit: int, say: Say, phase: Say) -> dict[str, Any]:
    """Choose or check, and say on what grounds."""
    settings = discoverer.settings
    fixed = settings.memory != "auto"
    strategy = settings.memory if fixed else STRATEGIES[0]
    wanted = Plan(strategy, settings.agents_at_once, settings.pairs_at_once)
    bounds = {}
    for family in discoverer.families:
        # Each call is also where Ctrl-C is heard, between two families.
        phase(f"tracing {family.name}")
        bounds[family.name] = discoverer.bound(family, wanted)
    largest = max(discoverer.families, key=lambda family: bounds[family.name])
    # The limit is held against one family at a time, so if the largest fits, all do.
    if bounds[largest.name] <= limit:
        discoverer.plans = {family.name: wanted for family in discoverer.families}
        say(
            f"memory: {strategy}; it needs at most {bytes_text(bounds[largest.name])} (a bound, for {largest.name}), "
            f"the limit is {bytes_text(limit)}"
        )
        return {"bounds": bounds}
    # One family only, since every strategy is one more compilation.
    of_largest = predict(discoverer, largest, phase)
    ratios = {name: bound / bounds[largest.name] for name, bound in bounds.items()}
    predicted = {name: {each: int(size * ratio) for each, size in of_largest.items()} for name, ratio in ratios.items()}
    listed = ", ".join(f"{each} {bytes_text(size)}" for each, size in of_largest.items())
    say(f"memory predicted by the compiler for {largest.name}: {listed}; the limit is {bytes_text(limit)}")
    if fixed:
        # Refused instead of replaced: who names a strategy wants to measure or compare that one.
        refuse_if_too_large(strategy, of_largest, limit, settings.window)
        discoverer.plans = {family.name: wanted for family in discoverer.families}
    else:
        phase("choosing how to keep memory small")
        # What its learner does not allow counts as infinitely large, so that it is never chosen.
        everything = {name: dict.fromkeys(STRATEGIES, NO_LIMIT) | sizes for name, sizes in predicted.items()}
        discoverer.choose(limit, everything)
        say("memory: " + ", ".join(f"{name} {plan_text(plan)}" for name, plan in discoverer.plans.items()))
    return {"bounds": bounds, "predicted": predicted, "predicted_for": largest.name}


def predict(discoverer: Discoverer, family: Family, phase: Say) -> dict[str, int]:
    """The compiler's bytes for one family under every strategy that its learner allows."""
    learning = family.recipe.learning
    # Two strategies know only one gradient per update; compiling them here would raise.
    one_pass = learning.epochs * learning.minibatches == 1
    possible = [each for each in STRATEGIES if one_pass or each not in ONE_PASS]
    found = {}
    for each in possible:
        phase(f"predicting the memory of {family.name} with {each}")
        settings = discoverer.settings
        found[each] = discoverer.predict(family, Plan(each, settings.agents_at_once, settings.pairs_at_once))
    return found


def refuse_if_too_large(strategy: str, sizes: dict[str, int], limit: int, window: int) -> None:
    """A strategy that the user insists on must fit; else say which would."""
    if sizes[strategy] <= limit:
        return
    fitting = [each for each in sizes if sizes[each] <= limit]
    advice = f"--memory {fitting[0]} would fit ({bytes_text(sizes[fitting[0]])})" if fitting else "no strategy fits"
    raise UserError(
        f"memory {strategy} needs {bytes_text(sizes[strategy])} for a window of {window}, over the limit of {bytes_text(limit)}: "
        f"{advice}; a smaller --window, --agents or --agents-at-once needs less, --memory-limit allows more"
    )


def plan_text(plan: Plan) -> str:
    """A plan in words."""
    agents = f", {plan.at_once} agents at once" if plan.at_once else ""
    return plan.strategy + agents + (f", {plan.pairs_at_once} pairs of each" if plan.pairs_at_once else "")
