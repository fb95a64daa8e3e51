"""The page of a comparison, made from its `compare.json`: curves, aggregates with intervals, who beats whom, cost and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rulax.evaluation import statistics as st
from rulax.files import jsonable
from rulax.records import folder as folders
from rulax.records.rows import Row, is_whole, read_lines
from rulax.report import parts
from rulax.report.blocks import (
    Block,
    Curves,
    Estimate,
    Fact,
    Facts,
    Heatmap,
    IntervalRow,
    Intervals,
    KeyValues,
    Line,
    Notice,
    Panels,
    Table,
    Text,
)
from rulax.report.html import number
from rulax.report.page import Page, from_folder, write_page
from rulax.report.plot import carry_forward
from rulax.text import count, duration, plural, shown_return

AGGREGATES = {
    "iqm": "interquartile mean",
    "median": "median",
    "mean": "mean",
    "optimality_gap": "optimality gap (less is better)",
}
COSTS = ("environment_steps", "updates", "seconds", "cpu_seconds")
SPENT = {
    "estimator": "estimator",
    "meta_steps": "meta-steps",
    "environment_steps": "environment steps",
    "agent_updates": "updates",
    "cpu_seconds": "CPU seconds",
}
CURVE_RESAMPLES = 500
Found = dict[str, Any]


@from_folder
def write_compare_page(folder: str | Path) -> Path:
    """Write `report.html` into the folder of a comparison."""
    return write_page(Path(folder) / folders.REPORT, *compare_page(Path(folder)))


@from_folder
def compare_page(folder: Path) -> Page:
    """The page of a comparison as it is now."""
    found = with_latest_curves(parts.read_results(folder / folders.COMPARISON, "compare", "the results of a comparison"), folder)
    rules = [rule["name"] for rule in found["rules"]]
    envs = [env["name"] for env in found["environments"]]
    title = " · ".join(rules) if len(rules) <= 4 else f"{len(rules)} rules compared"
    where = ", ".join(envs) if len(envs) <= 4 else f"{len(envs)} environments"
    subtitle = (
        f"Compared in {where}: {plural(found['seeds'], 'seed')} and {found['steps']:,} environment steps per rule and environment"
    )
    if found.get("suite"):
        subtitle = f"Suite {found['suite']['name']}, budget {found['budget']}. {subtitle}"
    overall, held_out = found["statistics"]["overall"], found["statistics"]["held_out"]
    # Above the numbers: whoever reads only the first screen must see what they rest on.
    blocks: list[Block] = [Notice("Read with care", found["warnings"])] if found["warnings"] else []
    blocks += [Facts(facts(found, rules)), *verdict(overall, rules, found["seeds"]), curves(found)]
    if overall:
        blocks += aggregates(overall, scores_title(len(overall_envs(found))), found["normalisation"], found.get("published", []))
        blocks += [Intervals(title, "score", beside(found, values)) for title, values in more_scores(found)]
        blocks += success(found.get("achievements"))
        blocks += aggregates(held_out, "Scores over the environments held out", HELD_OUT) if held_out else []
        blocks += [profile(overall, rules), *improvement(overall, rules)]
    blocks += [returns_table(found, rules), *published_table(found), *tuning(found["tuning"])]
    blocks += [cost_table(found), *discovery_table(found), *commands(folder, found), *configuration(found)]
    left = sum(not cell["finished"] for cell in found["cells"])
    unfinished = (
        ""
        if found["finished"]
        else f"{left} of {len(found['cells'])} cells are not trained to their end; scores are of the environments that are done."
    )
    return Page(title, subtitle, blocks, unfinished)


HELD_OUT = (
    "Only environments in which no suite of discovery trains or validates: what a discovered rule does where it has never been."
)


def with_latest_curves(found: Found, folder: Path) -> Found:
    """The results, with the curves of cells that are being trained as their own folders have them."""
    cells = []
    for cell in found["cells"]:
        rows: list[Row] = []
        place = (folder / cell["folder"]).resolve()
        # A file may be anybody's: no name in it leads out of its own folder.
        if not cell["finished"] and place.is_relative_to(folder.resolve()):
            rows, _ = read_lines(place, lambda row: is_whole(row, found["seeds"]))
        if rows:
            returns = np.array([row["return_per_seed"] for row in rows], dtype=object).astype(np.float64)
            curve = seed_curve(np.array([row["step"] for row in rows]), returns)
            # Steps are in the rows; how many updates they are stands in the results alone, once the cell is finished.
            cell = {**cell, "curve": curve, "environment_steps": rows[-1]["step"] * found["seeds"], "updates": None}
        cells.append(cell)
    return {**found, "cells": cells}


def seed_curve(steps: np.ndarray, returns: np.ndarray) -> Found:
    """The mean over seeds with its interval, [P] and [P, K] -> `steps`, `mean`, `low` and `high`, each [P], as JSON."""
    band = st.interval(lambda curves: curves.mean(-2), carry_forward(returns).T, resamples=CURVE_RESAMPLES)
    return jsonable({"steps": steps, "mean": band.value, "low": band.low, "high": band.high})


def overall_envs(found: Found) -> list[str]:
    """The environments that count: every rule is finished there."""
    return [env["name"] for env in found["environments"] if env["complete"]]


def estimate(value: Found, best: bool = False) -> Estimate:
    """A value with its interval, as a table shows it."""
    return Estimate(value["value"], value["low"], value["high"], best)


def titled(entry: Found) -> str:
    """A published agent with the budget it had."""
    return entry["agent"] if entry["steps"] is None else f"{entry['agent']} ({count(entry['steps'])})"


def more_scores(found: Found) -> list[tuple[str, dict[str, Found]]]:
    """Scores that only one suite has, by rule and published agent."""
    shown = []
    if found.get("achievements"):
        others = {titled(each): {"value": each["achievements"], "low": None, "high": None} for each in found["published"]}
        known = {name: value for name, value in others.items() if value["value"] is not None}
        shown.append(("Crafter's score: geometric mean of success in per cent", found["achievements"]["scores"] | known))
    if found.get("atari5"):
        shown.append(("Atari-5: the median over 57 games that these five predict", found["atari5"]))
    return shown


def words(value: Found) -> str:
    """A value with its interval, in a sentence."""
    return parts.in_words(value, number)


# -- results --------------------------------------------------------------------------------------------------------------------


def ranked(overall: Found, rules: list[str]) -> list[str]:
    """Rules by their interquartile mean, the best first."""
    return sorted(rules, key=lambda rule: -overall["rules"][rule]["iqm"]["value"])


def facts(found: Found, rules: list[str]) -> list[Fact]:
    """The strip of numbers."""
    overall, cost = found["statistics"]["overall"], found["cost"]
    shown = []
    if overall:
        best = ranked(overall, rules)[0]
        iqm = overall["rules"][best]["iqm"]
        interval = (
            f", interquartile mean of scores; 95 %: {number(iqm['low'])} to {number(iqm['high'])}" if iqm["low"] is not None else ""
        )
        shown.append(Fact("highest score", number(iqm["value"]), f"{best}{interval}"))
    apart = sum(env["held_out"] for env in found["environments"])
    steps = sum(cell["environment_steps"] for cell in found["cells"])
    done, agents = (n * found["seeds"] for n in (sum(cell["finished"] for cell in found["cells"]), len(found["cells"])))
    return [
        *shown,
        Fact("environments", str(len(found["environments"])), f"{apart} held out" if apart else ""),
        Fact("agents trained", f"{done:,}" + (f" of {agents:,}" if done < agents else ""), f"{count(steps)} environment steps"),
        Fact("core-hours", parts.core_hours(cost["cpu_seconds"]), f"{duration(cost['seconds'])} in all, trials included"),
    ]


def verdict(overall: Found | None, rules: list[str], seeds: int) -> list[Block]:
    """What can be said in two sentences, and what cannot."""
    # With one rule there is nobody to be better than.
    if not overall or len(rules) < 2:
        return []
    best, second, *_ = ranked(overall, rules)
    first, next_best = (words(overall["rules"][rule]["iqm"]) for rule in (best, second))
    said = [f"{best} scores highest, with an interquartile mean of {first}. {second} comes next, with {next_best}."]
    if overall["rules"][best]["iqm"]["value"] == overall["rules"][second]["iqm"]["value"]:
        said = [f"{best} and {second} score the same, with an interquartile mean of {first}."]
    chance = next(pair for pair in overall["improvement"] if (pair["rule"], pair["over"]) == (best, second))["probability"]
    if seeds < 2:
        said.append("With one seed there are no intervals: another seed might say the opposite.")
    elif chance["low"] is None:
        # All resamples agree, as where every run beats every other: that is no proof that the next one would.
        said.append(
            f"A run of {best} beats one of {second} with probability {words(chance)}, and these runs cannot say how surely."
        )
    else:
        said.append(f"A run of {best} beats one of {second} with probability {words(chance)}.")
        # Said in words, because a ranking is read as a result even where the intervals overlap.
        if chance["low"] <= 0.5 <= chance["high"]:
            said.append("That interval includes one half, so nobody can say from these runs which of the two is better.")
    return [Text("In short", said)]


def curves(found: Found) -> Panels:
    """One panel for each environment, one colour for each rule."""
    panels = []
    for env in found["environments"]:
        lines = []
        for cell in found["cells"]:
            if cell["env"] == env["name"]:
                curve = cell["curve"]
                lines.append(Line(cell["rule"], curve["steps"], curve["mean"], curve["low"], curve["high"]))
        if env["random"] is not None:
            lines.append(Line("untrained", [0], [env["random"]], style="reference"))
        lines += [published_line(entry, env["name"]) for entry in found.get("published", []) if env["name"] in entry["returns"]]
        mark = "" if not env["held_out"] else " · held out"
        panels.append(Curves(env["name"] + mark, "steps per seed", "episode return", lines))
    band = "Mean over seeds with its 95 % bootstrap interval." if found["seeds"] > 1 else "One seed, so there are no intervals."
    note = f"Return of training episodes. {band} Dashed: agents that never learned."
    if found.get("published"):
        note += " Diamonds: published, at the steps that they had; beyond these axes with an arrow."
    if any(env["held_out"] for env in found["environments"]):
        note += " Held out: no suite of discovery trains or validates there."
    return Panels("Learning curves", panels, note)


def published_line(entry: Found, env: str) -> Line:
    """A published return: a point at its budget, or a level where nobody was trained."""
    value = entry["returns"][env]
    if entry["steps"] is None:
        return Line(entry["agent"], [0], [value], style="reference")
    return Line(f"{titled(entry)}: {shown_return(value)}", [entry["steps"]], [value], style="published")


def scores_title(environments: int) -> str:
    """What the aggregates are over."""
    return f"Scores over {environments} environments" if environments > 1 else "Scores in one environment"


def aggregates(group: Found, title: str, note: str, published: list[Found] | None = None) -> list[Block]:
    """The four numbers that sum up a comparison, each with its interval for every rule, and published ones without."""
    panels = []
    for name, label in AGGREGATES.items():
        rows = [IntervalRow(rule, of[name]["value"], of[name]["low"], of[name]["high"]) for rule, of in group["rules"].items()]
        others = [entry for entry in published or [] if name in entry["statistics"]]
        rows += [IntervalRow(titled(each), each["statistics"][name], note=each["source"], published=True) for each in others]
        panels.append(Intervals(label, "score", rows))
    note = f"{note[:1].upper()}{note[1:].rstrip('.')}. Intervals: 95 %, stratified bootstrap over seeds."
    note += " Diamonds: published, over games." if published else ""
    return [Panels(title, panels, note)]


def beside(found: Found, values: dict[str, Found]) -> list[IntervalRow]:
    """Values by rule and by published agent."""
    rules = [rule["name"] for rule in found["rules"]]
    return [IntervalRow(name, of["value"], of["low"], of["high"], published=name not in rules) for name, of in values.items()]


def success(found: Found | None) -> list[Block]:
    """How often each of Crafter's achievements was unlocked."""
    if not found:
        return []
    rates = found["rates"]
    rows = [[name.replace("_", " "), *(estimate(of[name]) for of in rates.values())] for name in next(iter(rates.values()))]
    note = f"Share of {found['episodes']} episodes of each agent in which it was unlocked, after training; mean over seeds."
    return [Table("Achievements", ["achievement", *rates], rows, note)]


def published_table(found: Found) -> list[Block]:
    """Where published figures come from, and in what they differ."""
    if not found.get("published"):
        return []
    rows = [[each["agent"], each["steps"], each["source"], each["note"]] for each in found["published"]]
    note = "Steps are decisions of the agent: 200 million frames of Atari are 50 million. What has no source is left out."
    return [Table("Published figures", ["agent", "steps", "source", "what differs from here"], rows, note)]


def profile(overall: Found, rules: list[str]) -> Curves:
    """The share of runs above every score."""
    lines = []
    for rule in rules:
        found = overall["rules"][rule]["profile"]
        lines.append(Line(rule, found["thresholds"], found["value"], found["low"], found["high"]))
    note = "How many of all runs score more than what stands below: the higher the line, the better. Bands: 95 % bootstrap."
    return Curves("Performance profile", "score", "share of runs above it", lines, note, y_range=(0, 1))


def improvement(overall: Found, rules: list[str]) -> list[Block]:
    """Who beats whom, as a matrix and, with tests, as a table."""
    if len(rules) < 2:
        return []
    found = {(pair["rule"], pair["over"]): pair for pair in overall["improvement"]}
    values = [[None if rule == other else found[rule, other]["probability"]["value"] for other in rules] for rule in rules]
    note = "The probability that a run of the row's rule beats one of the column's, in an environment drawn at random."
    rows = []
    for place, rule in enumerate(rules):
        # Each pair once: the tests are two-sided, and the other direction is in the matrix.
        for other in rules[place + 1 :]:
            pair, test = found[rule, other], found[rule, other]["paired"]
            rows.append(
                [rule, other, estimate(pair["probability"]), test.get("difference"), test.get("p_rank"), test.get("p_mean")]
            )
    columns = ["rule", "over", "probability of improvement", "mean difference of scores", "p, signed rank", "p, sign flips"]
    told = "Runs are paired by seed and environment; p is for no difference, two-sided, and not corrected for several pairs."
    return [
        Heatmap("Probability of improvement", rules, rules, values, note, centre=0.5, limits=(0, 1)),
        Table("Pairs of rules", columns, rows, told),
    ]


def returns_table(found: Found, rules: list[str]) -> Table:
    """One row for each environment; the best rule in bold."""
    rows: list[list[Any]] = []
    others = [entry for entry in found.get("published", []) if entry["returns"]]
    for env in found["environments"]:
        theirs = [entry["returns"].get(env["name"]) for entry in others]
        measured = found["statistics"]["environments"].get(env["name"])
        role = env["role"] if not env["suite"] else f"{env['role']} ({env['suite']})"
        # Shown with dashes and not left out, or the table would hide that an environment was asked for.
        if not measured:
            rows.append([env["name"], role, *[None] * len(rules), env["random"], *theirs])
            continue
        best = max(measured[rule]["value"] for rule in rules)
        cells = [estimate(measured[rule], len(rules) > 1 and measured[rule]["value"] == best) for rule in rules]
        rows.append([env["name"], role, *cells, env["random"], *theirs])
    what = "return of training episodes in the last tenth of the steps"
    if found.get("eval_episodes"):
        what = f"mean return of {found['eval_episodes']} episodes that each agent played after training"
    note = f"Interquartile mean over seeds of the {what}, with its 95 % interval."
    note += " Behind untrained: published, with the steps that they had." if others else ""
    return Table("Final returns", ["environment", "role in discovery", *rules, "untrained", *map(titled, others)], rows, note)


# -- how it was made -----------------------------------------------------------------------------------------------------------


def tuning(found: Found | None) -> list[Block]:
    """What each rule found in its trials."""
    if not found:
        return []
    rows = []
    for rule, tuned in found["rules"].items():
        for settings, score in zip(found["trials"], tuned["scores"], strict=True):
            rows.append([rule, parts.shown(settings), score, "chosen" if settings == tuned["chosen"] else ""])
    return [
        Table(
            "Tuning",
            ["rule", "settings", "score", "choice"],
            rows,
            f"{found['words']}; {found['seeds']} seeds, {found['steps']:,} steps.",
        )
    ]


def costs(found: Found) -> dict[str, Found]:
    """What each rule took in all environments together; None where a cell does not say."""
    totals = {}
    for rule in found["rules"]:
        cells = [cell for cell in found["cells"] if cell["rule"] == rule["name"]]
        values = {name: [cell.get(name) for cell in cells] for name in COSTS}
        totals[rule["name"]] = {name: None if None in each else sum(each) for name, each in values.items()}
    return totals


def discoveries(found: Found) -> dict[str, Found | None]:
    """How each rule was found and what that cost, as its file says; empty if no rule has such a file."""
    known = {rule["name"]: rule.get("discovery") for rule in found["rules"]}
    return known if any(known.values()) else {}


def cost_table(found: Found) -> Table:
    """What each rule took in all environments."""
    rows = []
    for rule, took in costs(found).items():
        steps, cpu = took["environment_steps"], took["cpu_seconds"]
        core_hours, speed = float(f"{cpu / 3600:.3g}"), round(steps / cpu) if cpu else None
        rows.append([rule, steps, took["updates"], round(took["seconds"]), round(cpu), core_hours, speed])
    columns = ["rule", "environment steps", "updates", "seconds", "CPU seconds", "core-hours", "steps per CPU second"]
    total = (
        f"The whole comparison, trials and untrained agents included: {parts.core_hours(found['cost']['cpu_seconds'])} core-hours."
    )
    note = f"{total} Compiling is included. An update is all that an agent learns from one rollout of its streams."
    return Table("Cost", columns, rows, note)


def discovery_table(found: Found) -> list[Block]:
    """What finding the rules took, which is no part of the cost of training with them."""
    rows: list[list[Any]] = []
    for rule, spent in discoveries(found).items():
        known = [(spent or {}).get(name) for name in SPENT]
        rows.append([rule, *(round(value) if isinstance(value, float) else value for value in known)])
    note = (
        "Until the meta-step that each rule is of, as its file says; all agents of discovery together, evaluations in CPU seconds "
        "only. A rule that began as another counts its own part. Without numbers: designed by hand, or the file does not say."
    )
    return [Table("Cost of discovery", ["rule", *SPENT.values()], rows, note)] if rows else []


def commands(folder: Path, found: Found) -> list[Block]:
    """The command of the comparison; those of its cells are there when one looks for them."""
    lines = [(found["commands"][0], "The same comparison again")]
    if not found["finished"]:
        lines.append((f"rulax compare --resume {parts.quoted(folder)}", "Go on where it stopped"))
    cells = [(f"{cell['env']} · {cell['rule']}", cell["command"]) for cell in found["cells"]]
    return [parts.commands("Commands", lines), KeyValues("Commands of single cells", cells)]


def configuration(found: Found) -> list[Block]:
    """Rules, settings and versions."""
    about = []
    for rule in found["rules"]:
        said = [rule["summary"], *(f"without {part}" for part in rule["ablations"])]
        said += [f"trained on {', '.join(rule['trained_on'])}"] if rule["trained_on"] else []
        said += [f"with {parts.shown(rule['settings'])}"] if rule["settings"] else []
        about.append((rule["name"], "; ".join(filter(None, said))))
    return [KeyValues("Rules", about), *parts.configuration(found, ("settings",))]
