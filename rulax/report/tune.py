"""The page of a sweep, made from its `tune.json`: the result on fresh seeds, the trials, what mattered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rulax.records import folder as folders
from rulax.report import parts
from rulax.report.blocks import Bars, Block, Chart, Curves, Estimate, Fact, Facts, Line, Panels, Table, Text
from rulax.report.html import number
from rulax.report.page import from_folder, write_page
from rulax.text import duration, plural, with_interval

Found = dict[str, Any]


@from_folder
def write_tune_page(folder: str | Path) -> Path:
    """Write `report.html` into the folder of a sweep."""
    folder = Path(folder)
    found = parts.read_results(folder / folders.SWEEP, "tune", "the results of a search for settings")
    title = f"{found['env']} · {found['rule']}: settings"
    subtitle = f"Searched: {', '.join(found['space'])}; {plural(len(found['trials']), 'trial')}"
    blocks: list[Block] = [Facts(facts(found)), Text("In short", in_short(found)), *importance(found), *pictures(found)]
    blocks += [trial_table(found), *result_table(found), commands(folder, found)]
    blocks += parts.configuration(found, ("settings",))
    made = sum(trial["finished"] for trial in found["trials"])
    stopped = f"{made} of {found['wanted']} trials are made" + (
        "." if made < found["wanted"] else ", the result is not trained yet."
    )
    return write_page(folder / folders.REPORT, title, subtitle, blocks, "" if found["finished"] else stopped)


def facts(found: Found) -> list[Fact]:
    """The strip of numbers."""
    best, result, settings = found["best"], found["result"], found["settings"]
    strip = []
    if result and result["final_return"] is not None:
        note = f"the best settings on {plural(result['seeds'], 'fresh seed')}"
        strip.append(Fact("final return", number(result["final_return"]), note))
    if best:
        note = f"trial {best['trial']}, on {plural(settings['tune_seeds'], 'seed')}; chosen for it, so it is too high"
        strip.append(Fact("in its trial", number(best["final_return"]), note))
    strip.append(Fact("trials", str(len(found["trials"])), f"{found['settings']['tune_steps']:,} environment steps each"))
    strip.append(Fact("core-hours", parts.core_hours(found["cost"]["cpu_seconds"]), f"{duration(found['cost']['seconds'])} in all"))
    return strip


def in_short(found: Found) -> list[str]:
    """The result in sentences, and what it rests on."""
    best, result = found["best"], found["result"]
    if best is None:
        return ["No trial is finished yet."]
    said = [f"The best trial had {words(best['settings'])}, and a final return of {number(best['final_return'])}."]
    if result and result["final_return"] is not None:
        value = with_interval({"value": result["final_return"], "low": result["low"], "high": result["high"]}, number)
        interval = ", with a 95 % bootstrap interval" if result["low"] is not None else ""
        said.append(
            f"Trained anew with these settings, {plural(result['seeds'], 'agent')} with seeds that no trial had came to {value}"
            f"{interval}. This is the number to report: the highest of many trials is partly luck."
        )
    recommended = next((trial for trial in found["trials"] if trial["note"] == "recommended settings"), None)
    if recommended and recommended["final_return"] is not None:
        said.append(f"The recommended settings had {number(recommended['final_return'])} in their trial, with the same seeds.")
    return said


def words(settings: Found) -> str:
    """Settings in a sentence."""
    return ", ".join(f"{name.replace('_', ' ')} {parts.shown(value)}" for name, value in settings.items())


def importance(found: Found) -> list[Block]:
    """What mattered: a bar for each setting, and which way."""
    rows = found["mattered"]
    if not rows:
        few = "What mattered cannot be told yet: too few trials are finished, or all came to the same."
        return [Text("What mattered", [few])]
    note = (
        "How much each setting has to do with being among the best quarter of the trials (PED-ANOVA); all together are 1. With few "
        "trials this is rough, and a setting can matter outside of the range that was searched."
    )
    bars = Bars("What mattered", "importance", [row["name"] for row in rows], [row["importance"] for row in rows], note)
    table = [[row["name"], found["space"][row["name"]], row["importance"], row["correlation"]] for row in rows]
    told = "Rank correlation: 1 where a larger value always came with a higher return, −1 where with a lower one."
    return [bars, Table("Settings", ["setting", "searched", "importance", "rank correlation with return"], table, told)]


def pictures(found: Found) -> list[Block]:
    """The return of every trial over each setting: lines for ranges, bars of means for lists."""
    scored = [trial for trial in found["trials"] if trial["final_return"] is not None]
    if len(scored) < 2:
        return []
    panels: list[Chart] = []
    for name in found["space"]:
        pairs = [(trial["settings"][name], trial["final_return"]) for trial in scored]
        if name in found["ranges"]:
            pairs.sort()
            line = Line("trials", [value for value, _ in pairs], [score for _, score in pairs])
            log = name in found["logarithmic"]
            panels.append(Curves(name, name, "final return", [line], log="x" if log else "", points=True, starts_log=log))
        else:
            groups: dict[str, list[float]] = {}
            for value, score in pairs:
                groups.setdefault(parts.shown(value), []).append(score)
            means = [sum(scores) / len(scores) for scores in groups.values()]
            panels.append(Bars(name, "mean final return", list(groups), means))
    return [
        Panels(
            "Returns by setting",
            panels,
            "Lines have one point for each trial, bars are means over trials; the other settings differ between them.",
        )
    ]


def trial_table(found: Found) -> Table:
    """One row for each trial."""
    names = list(found["space"])
    best = (found["best"] or {}).get("trial")
    rows, strong = [], []
    for number_, trial in enumerate(found["trials"]):
        if trial["trial"] == best:
            strong.append(number_)
        values = [_cell(trial["settings"].get(name)) for name in names]
        note = trial["note"] or ("" if trial["finished"] else "not finished")
        rows.append([trial["trial"], *values, trial["final_return"], round(trial["seconds"], 1), note])
    note = (
        f"Final return: mean over {plural(found['settings']['tune_seeds'], 'seed')}, the same in every trial, and over the last "
        "tenth of the steps. Each trial is a run folder in trials/."
    )
    return Table("Trials", ["trial", *names, "final return", "seconds", "note"], rows, note, strong)


def _cell(value: Any) -> Any:
    # Numbers stay numbers, so that the column sorts.
    return value if isinstance(value, int | float) and not isinstance(value, bool) else parts.shown(value)


def result_table(found: Found) -> list[Block]:
    """The best settings on fresh seeds, seed by seed."""
    result = found["result"]
    if not result:
        return []
    rows: list[list[Any]] = [[f"seed {seed}", value] for seed, value in enumerate(result["final_return_per_seed"])]
    rows.append(["mean", Estimate(result["final_return"], result["low"], result["high"])])
    trained = f"Trained with the settings of trial {found['best']['trial']} for {result['steps']:,} steps"
    note = f"{trained}; the page of this run is in {result['folder']}/."
    return [Table("The best settings on fresh seeds", ["seed", "final return"], rows, note, [len(rows) - 1])]


def commands(folder: Path, found: Found) -> Block:
    """How to go on, and how to use what was found."""
    where = parts.quoted(folder)
    lines = [(found["command"], "As it was started")] if found.get("command") else []
    more = f" --trials {2 * len(found['trials'])}" if found["finished"] else ""
    lines.append((f"rulax tune --resume {where}{more}", "More trials" if more else "Go on where it stopped"))
    if found["result"]:
        last = folder / found["result"]["folder"]
        lines.append((f"rulax train --preset {parts.quoted(last)}/config.json --seed 1", "Train with the best settings again"))
        lines.append((f"run = rulax.load({str(last)!r})", "In Python: run.returns, run.agent.act(observation)"))
    return parts.commands("Commands", lines)
