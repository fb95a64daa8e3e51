"""The page of a discovery, made from what its folder holds: whether it is finished or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rulax.discovery.settings import estimator_words
from rulax.files import read_json
from rulax.files.reading import parse_json
from rulax.own import shown, without_options
from rulax.records import folder as folders
from rulax.records.rows import Row, read_lines
from rulax.report import parts
from rulax.report.blocks import Bars, Block, Commands, Curves, Fact, Facts, KeyValues, Line, Notice, Panels, Table
from rulax.report.html import number
from rulax.report.page import Page, from_folder, write_page
from rulax.rules.rule_files import about_of
from rulax.text import count, duration

HAND_DESIGNED = "actor_critic"
FRESH, POPULATION = "fresh agents", "the population meanwhile"
ROLES = ("validation", "training")  # in the order of what matters
TIMES = {  # of agents on the host, by the names of the rows
    "seconds_acting": "acting and learning",
    "seconds_waiting": "waiting for meta-gradients",
    "seconds_compiling": "compiling the meta-gradient",
}
BESIDE = "seconds_differentiating"
NO_PANEL = ("kind", "step", "seconds", "bad_agents", *TIMES, BESIDE)
OUTER_NOTE = "Means over the population, over its families, and over the meta-steps since the point before."
FIRST = ("meta_gradient_norm_of_mean", "meta_gradient_mean_of_norms", "outer_loss")  # then by name
CARD = (
    "found",
    "licence",
    "trained_on",
    "validated_on",
    "picked_by",
    "started_from",
    "spent",
    "evaluation",
    "sha256",
    "seed",
    "commit",
    "command",
)


@from_folder
def write_discover_page(folder: str | Path) -> Path:
    """Write `report.html` into a run folder."""
    return write_page(Path(folder) / folders.REPORT, *discover_page(Path(folder)))


@from_folder
def discover_page(folder: Path) -> Page:
    """The page of a run folder as it is now."""
    record = folders.read_config(folder)
    settings = record["settings"]
    families = {"training": list(settings["envs"]), "validation": list(settings["validation"])}
    rows, broken = read_lines(folder, lambda row: is_whole(row, families))
    evaluations = [row for row in rows if row["kind"] == "evaluation"]
    meta = [row for row in rows if row["kind"] == "meta"]
    baselines = read_json(folder / folders.BASELINES)
    # A run that goes on, or was killed, has no summary; then its rows tell how far it came and what it found.
    made = rows[-1]["step"] if rows else 0
    summary = evaluated(evaluations, families) | parts.current_summary(folder, made, settings["steps"])
    made = max(made, summary.get("meta_steps") or 0)
    blocks: list[Block] = [*parts.broken_lines(broken, folders.METRICS), *left_out(summary)]
    blocks += [Facts(facts(summary, made)), scores(evaluations, families, settings["evaluation_seeds"], made)]
    blocks += [
        returns(evaluations, meta, families, baselines, made),
        *parts.metric_panels("The outer loop", meta, FIRST, no_panel(meta), "meta-steps", POPULATION, OUTER_NOTE),
        family_table(families, baselines, summary),
        *times(meta),
    ]
    blocks += [*rule_card(folder), commands(folder, record, families, bool(summary.get("finished")))]
    estimator = estimator_words(record["discovery"])
    more = [("estimator", estimator), ("meta-steps", made), ("agent updates", summary.get("agent_updates"))]
    blocks.append(parts.cost(summary.get("environment_steps"), summary.get("seconds"), summary.get("cpu_seconds"), more))
    blocks += parts.configuration(record, ("settings", "discovery", "learning", "network", "sizes"))
    subtitle = f"{made:,} meta-steps by {estimator} in {', '.join(map(shown, families['training']))}, seed {settings['seed']}"
    title = f"Discovery · {shown(settings['suite'])}" if settings.get("suite") else "Discovery"
    return Page(title, subtitle, blocks, parts.unfinished(summary, "meta-step", made, settings["steps"]))


def is_whole(row: Row, families: dict[str, list[str]]) -> bool:
    """Whether a line of the metrics has all that the page needs."""
    if row.get("kind") == "evaluation":
        return "training_score" in row and all(f"score/{name}" in row for names in families.values() for name in names)
    return row.get("kind") == "meta"


def evaluated(evaluations: list[Row], families: dict[str, list[str]]) -> dict[str, Any]:
    """What rows of evaluations say of the first, the best and the last rule, as a summary would."""
    every = [name for names in families.values() for name in names]
    found = [
        {
            "step": row["step"],
            **{f"{role}_score": row.get(f"{role}_score") for role in ROLES},
            "returns": {name: row.get(f"evaluation_return/{name}") for name in every},
            "scores": {name: row[f"score/{name}"] for name in every},
        }
        for row in evaluations
    ]
    if not found:
        return {}
    # By the families that pick the best rule; of equal ones the earlier, as discovery itself does.
    role = "validation" if families["validation"] else "training"
    return {"first": found[0], "best": max(found, key=lambda each: each[f"{role}_score"] or 0.0), "last": found[-1]}


def left_out(summary: dict[str, Any]) -> list[Block]:
    """Meta-gradients that were no numbers."""
    bad = summary.get("bad_agents")
    return [Notice("Meta-gradients were left out", [f"{bad:,} of them were not finite numbers."])] if bad else []


def facts(summary: dict[str, Any], made: int) -> list[Fact]:
    """The strip of numbers."""
    best, found = summary.get("best") or {}, []
    for role in ROLES:
        score = best.get(f"{role}_score")
        if score is not None:
            found.append(Fact(f"{role} score", number(score), f"0 is untrained, 1 is {HAND_DESIGNED}"))
    steps = summary.get("environment_steps")
    return [
        *found,
        Fact(
            "best rule", f"meta-step {best['step']:,}" if best else "–", f"of {made:,}; {duration(summary.get('seconds'))} in all"
        ),
        Fact("environment steps", count(steps) if steps else "–", f"{count(summary.get('agent_updates') or 0)} agent updates"),
        parts.core_hours_fact(summary.get("cpu_seconds")),
    ]


def level(name: str, value: float, made: int) -> Line:
    """A baseline, over the whole width."""
    return Line(name, [0, max(1, made)], [value, value], style="reference")


def scores(evaluations: list[Row], families: dict[str, list[str]], seeds: int, made: int) -> Curves:
    """Mean scores of both kinds of families; each family faintly."""
    steps = [row["step"] for row in evaluations]
    lines = [level("untrained", 0.0, made), level(HAND_DESIGNED, 1.0, made)] if evaluations else []
    for role in ROLES:
        if not families[role]:
            continue
        name = f"{role}, mean of {len(families[role])}" if len(families[role]) > 1 else role
        lines.append(Line(name, steps, [row[f"{role}_score"] for row in evaluations]))
        if len(families[role]) > 1:
            lines += [
                Line(name, steps, [row[f"score/{family}"] for row in evaluations], style="faint") for family in families[role]
            ]
    note = (
        f"Score of the rule at that meta-step, on {seeds} fresh agents in each family: 0 is what untrained agents earn, 1 what "
        f"{HAND_DESIGNED} earns in the same number of steps. Thin lines are single families. No agent of discovery lives in a "
        "validation family; where there are some, they pick the best rule."
    )
    return Curves("Score of the rule", "meta-steps", "score of fresh agents", lines, note, points=True)


def returns(
    evaluations: list[Row], meta: list[Row], families: dict[str, list[str]], baselines: dict[str, Any], made: int
) -> Panels:
    """One panel for each family: what fresh agents earn, what the population earns, and the baselines."""
    panels = []
    for role in ("training", "validation"):
        for family in families[role]:
            key = f"evaluation_return/{family}"
            lines = [Line(FRESH, [row["step"] for row in evaluations], [row.get(key) for row in evaluations])]
            lived = [(row["step"], row[f"return/{family}"]) for row in meta if row.get(f"return/{family}") is not None]
            if lived:
                lines.append(Line(POPULATION, [step for step, _ in lived], [value for _, value in lived]))
            lines += [level(name, value, made) for name, value in (baselines.get(family) or {}).items()]
            name = shown(family)
            panels.append(Curves(f"{name} ({role})" if role == "validation" else name, "meta-steps", "return", lines))
    return Panels(
        "Return in each family", panels, "Dashed: untrained agents and actor-critic, measured once, before the first evaluation."
    )


def no_panel(meta: list[Row]) -> list[str]:
    """Numbers that the charts of the outer loop leave out: what is no metric, and those of single families."""
    return [*NO_PANEL, *(name for row in meta for name in row if "/" in name)]


def times(meta: list[Row]) -> list[Block]:
    """Where the time of meta-steps went, if agents acted on the host."""
    if not any(BESIDE in row for row in meta):
        return []
    # A row holds means over the meta-steps since the one before.
    steps = np.diff([0, *(row["step"] for row in meta)])
    total = {
        name: float(sum(row.get(name, 0) * count for row, count in zip(meta, steps, strict=True))) for name in (*TIMES, BESIDE)
    }
    whole = sum(total[name] for name in TIMES) or 1.0
    note = (
        f"Of {duration(whole)} in meta-steps; evaluations come on top. Differentiating took {duration(total[BESIDE])}, beside "
        "acting where there are several families; waiting is what was left of it then. The first meta-step also compiles how "
        "agents act and learn, which counts as acting."
    )
    return [Bars("Where the time goes", "share", list(TIMES.values()), [total[name] / whole for name in TIMES], note)]


def family_table(families: dict[str, list[str]], baselines: dict[str, Any], summary: dict[str, Any]) -> Table:
    """Every family: the baselines, and the rule at the start, at its best and at the end."""
    results = [summary.get(name) or {} for name in ("first", "best", "last")]
    rows: list[list[Any]] = []
    for role in ("training", "validation"):
        for family in families[role]:
            earned = [result.get("returns", {}).get(family) for result in results]
            known = baselines.get(family) or {}
            score = results[1].get("scores", {}).get(family)
            rows.append([shown(family), role, known.get("untrained"), known.get(HAND_DESIGNED), *earned, score])
    columns = ["family", "role", "untrained", "actor-critic", "at the start", "the best rule", "at the end", "score"]
    return Table(
        "Families", columns, rows, "Returns of fresh agents at the end of an evaluation; the score is that of the best rule."
    )


def rule_card(folder: Path) -> list[Block]:
    """The card that the rule file itself carries."""
    # No rule yet, or one that cannot be read: the page is of the run, not of the file.
    about = about_of(folder / folders.RULE)
    pairs = [(name.replace("_", " "), parts.shown(value_of(about[name]))) for name in CARD if name in about]
    return [KeyValues("Rule card", pairs, open=True)] if pairs else []


def value_of(text: str) -> Any:
    """A card holds text, or JSON as text."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def commands(folder: Path, record: dict[str, Any], families: dict[str, list[str]], finished: bool) -> Commands:
    """How to use the rule, do it again, and go on."""
    settings, where = record["settings"], parts.quoted(folder)
    # Preferably one that the rule has not seen, as that is what it was made for.
    env = without_options(next(iter(families["validation"] or families["training"]), "catch"))
    lines = []
    if (folder / folders.RULE).exists():  # not before the first evaluation
        lines.append((f"rulax train {env} --rule {where}/{folders.RULE}", "Train agents with the best rule"))
    if record.get("command"):
        lines.append((record["command"], "As it was started"))
    lines.append((f"rulax discover --preset {where}/config.json", "The same discovery again, with exactly these settings"))
    more = f" --steps {2 * settings['steps']}" if finished else ""
    lines.append((f"rulax discover --resume {where}{more}", "Go on" if finished else "Go on where it stopped"))
    return parts.commands("Commands", lines)
