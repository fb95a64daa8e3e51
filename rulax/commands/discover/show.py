"""What a discovery shows at its end: the rule card (a page, and metadata of the rule file), a table, and where things are."""

from __future__ import annotations

import json
from typing import Any

from rulax.commands.discover.evaluations import HAND_DESIGNED, Scores
from rulax.commands.discover.result import DiscoveryRun, Spent
from rulax.commands.discover.settings import DEFAULT
from rulax.commands.discover.setup import PreparedDiscovery
from rulax.commands.tables import make_table, print_places
from rulax.own import shown, without_options
from rulax.records import folder as folders
from rulax.text import count, duration, plural

LICENCE = "Apache-2.0"
# Of each kind of rule.
STARTS = {"disco": "random weights", "epg": "random weights", "lpg": "random weights", "lpo": "PPO, whose drift it starts with"}


# -- the card ------------------------------------------------------------------------------------------------------------------


def card_facts(
    prepared: PreparedDiscovery, result: dict[str, Any] | None, spent: Spent, baselines: dict[str, Any]
) -> dict[str, Any]:
    """All that a rule's user may want to know, by name."""
    config, record = prepared.config, prepared.record
    assert result is not None
    kind = config.rule or DEFAULT
    named = f" --rule {kind}" if kind != DEFAULT else ""
    licence = (
        LICENCE
        if not config.init or config.init == kind
        else f"{LICENCE}; it started from {config.init}, whose licence applies too"
    )
    return {
        "found": f"rulax discover {config.suite}{named}, seed {config.seed}, meta-step {result['step']} of {config.steps}",
        "licence": licence,
        "trained_on": list(prepared.training),
        "validated_on": list(prepared.validation),
        "picked_by": "mean score in the validation families" if prepared.validation else "mean score in the training families",
        "started_from": config.init or STARTS[kind],
        "scores": result,
        "baselines": {name: each._asdict() for name, each in baselines.items()},
        "evaluation": {"agents": config.evaluation_seeds, "updates": config.evaluation_updates},
        "spent": spent._asdict(),
        "seed": config.seed,
        "settings": {name: record[name] for name in ("discovery", "learning", "network", "sizes", "constants")},
        "versions": record["versions"],
        "commit": record["commit"] or "unknown",
        "command": record["command"] or "rulax.discover(...) in Python",
    }


def as_metadata(facts: dict[str, Any]) -> dict[str, str]:
    """The card as a rule file carries it: text, or JSON as text."""
    # safetensors allows only text in its metadata.
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}


def as_markdown(facts: dict[str, Any]) -> str:
    """The card as a page."""
    spent, scores = facts["spent"], facts["scores"]
    lines = ["# Rule card", "", f"{facts['found']}. Licence: {facts['licence']}.", "", "| | |", "|---|---|"]
    rows = {
        "trained on": ", ".join(facts["trained_on"]),
        "validated on": ", ".join(facts["validated_on"]) or "nothing: no family was held out, so its scores are those of training",
        "picked by": facts["picked_by"],
        "started from": facts["started_from"],
        "estimator": spent["estimator"],
        "meta-steps": f"{spent['meta_steps']:,}",
        "agent updates": f"{spent['agent_updates']:,}",
        "environment steps": f"{spent['environment_steps']:,} (evaluations not counted)",
        "time": f"{duration(spent['seconds'])}, {spent['cpu_seconds']:,.0f} CPU seconds (all included)",
        "meta-gradients left out": f"{spent['bad_agents']:,}",
        "seed": facts["seed"],
        "commit": facts["commit"],
        "command": f"`{facts['command']}`",
        "versions": ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
    }
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    lines += [
        "",
        "## Scores",
        "",
        f"(return - untrained) / ({HAND_DESIGNED} - untrained), each between -1 and 2, over the last fifth of",
    ]
    lines += [f"{facts['evaluation']['updates']} updates of {facts['evaluation']['agents']} fresh agents per family.", ""]
    lines += [f"| family | role | untrained | {HAND_DESIGNED} | this rule | score |", "|---|---|---|---|---|---|"]
    for name, value in scores["returns"].items():
        role, known = "training" if name in facts["trained_on"] else "validation", facts["baselines"][name]
        numbers = (known["untrained"], known["actor_critic"], value, scores["scores"][name])
        lines.append(f"| {name} | {role} | " + " | ".join(f"{number:.3f}" for number in numbers) + " |")
    means = [f"training {scores['training_score']:.3f}"]
    means += [f"validation {scores['validation_score']:.3f}"] if scores["validation_score"] is not None else []
    lines += ["", f"Means: {', '.join(means)}. Test environments had no part in this.", "", "## Settings", ""]
    for part, values in facts["settings"].items():
        lines += [f"**{part}**: " + ", ".join(f"{name} {value}" for name, value in values.items()), ""]
    return "\n".join(lines)


# -- the terminal --------------------------------------------------------------------------------------------------------------


def evaluation_line(result: Scores, better: bool) -> str:
    """One line per evaluation."""
    scores = [f"validation score {result.validation_score:.3f}"] if result.validation_score is not None else []
    scores.append(f"training score {result.training_score:.3f}")
    scores += [plural(result.restarts, "restart") + " of failed environments"] if result.restarts else []
    return f"meta-step {result.step}: {', '.join(scores)}{' (the best so far)' if better else ''}"


def show(run: DiscoveryRun) -> None:
    """Print the result of a finished run on stdout; quiet runs print only their folder, for scripts."""
    if run.config.quiet:
        print(run.folder)
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"\n[bold]discover {shown(run.config.suite)}[/]  final return of fresh agents\n")
    console.print(table(run))
    spent, best = run.spent, run.results["best"]
    console.print(
        f"[dim]the best rule is that of meta-step {best['step']}; {spent.meta_steps:,} meta-steps by {spent.estimator}, "
        f"{count(spent.agent_updates)} agent updates, {count(spent.environment_steps)} environment steps; "
        f"{duration(spent.seconds)} in all, "
        f"{spent.cpu_seconds:,.0f} CPU seconds[/]\n"
    )
    if spent.bad_agents:
        console.print(f"{spent.bad_agents} meta-gradients were not finite numbers and were left out\n")
    folder, env = run.folder, without_options(next(iter(run.config.validation or run.config.envs)))
    print_places(
        ("run folder", folder),
        ("the rule", run.rule_path),
        ("its card", folder / folders.CARD),
        ("the last", folder / folders.LAST),
        ("the curve", folder / folders.CURVE),
        ("use it", f"rulax train {env} --rule {run.rule_path}"),
        ("go on", f"rulax discover --resume {folder} --steps {2 * run.config.steps}"),
        ("the page", folder / folders.REPORT),
    )


def table(run: DiscoveryRun) -> Any:
    """Every family: the baselines, and the rule at the start, at its best and at the end."""
    result = make_table("family", ("untrained", "actor-critic", "start", "best", "last", "score"))
    results = [run.results[name] for name in ("first", "best", "last")]
    for role, names in (("training", run.config.envs), ("validation", run.config.validation)):
        for name in names:
            returns = (*run.baselines[name].values(), *(each["returns"][name] for each in results))
            result.add_row(shown(name), *(f"{value:.3f}" for value in returns), f"{results[1]['scores'][name]:.3f}")
        if names:
            first, best, last = (f"{each[f'{role}_score']:.3f}" for each in results)
            result.add_row(f"[bold]{role}, mean score[/]", "0", "1", first, best, last, f"[bold]{best}[/]", end_section=True)
    return result
