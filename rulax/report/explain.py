"""The page of an explanation, made from its `explain.json`: a trajectory to play with, then what was measured on a living agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rulax.own import shown
from rulax.records import folder as folders
from rulax.report import explain_figures as figures
from rulax.report import parts
from rulax.report.blocks import Block, Fact, Facts, Interactive, KeyValues, Notice, Text
from rulax.report.explain_words import decimal, sentences
from rulax.report.html import number
from rulax.report.page import asset, from_folder, write_page
from rulax.rules.registry import FILE_ENDINGS, split_ablations
from rulax.text import duration

Found = dict[str, Any]
MOST_ACTIONS = 8  # that the interactive part has room for


@from_folder
def write_explain_page(folder: str | Path) -> Path:
    """Write `report.html` into the folder of an explanation."""
    folder = Path(folder)
    found = parts.read_results(folder / folders.EXPLANATION, "explain", "an explanation")
    name = short(found["rule"])
    title = f"What {name} does"
    subtitle = f"An update rule, looked at while one agent learns {shown(found['env'])} by it"
    blocks: list[Block] = [
        *did_not_learn(found),
        *facts(found),
        *in_short(found),
        *playground(found, name),
        *figures.all_of(found, name),
    ]
    blocks += [not_applicable(found)] if not found["discovered"] else []
    blocks += [how(found), *commands(found), *details(found)]
    unfinished = "" if found["finished"] else "It was stopped before all analyses were made; what follows is of those that were."
    return write_page(folder / folders.REPORT, title, subtitle, blocks, unfinished)


def short(rule: str) -> str:
    """A rule's name; a file goes by its stem, and a rule of the user's own by its own name."""
    name, ablations = split_ablations(rule)
    return ":".join([Path(name).stem if name.endswith(FILE_ENDINGS) else shown(name), *ablations])


# -- results --------------------------------------------------------------------------------------------------------------------


def did_not_learn(found: Found) -> list[Block]:
    """A warning if the agent that everything was measured on learned nothing."""
    returns = [row["return"] for row in found.get("over_life", []) if row["return"] is not None]
    # The best and not the last return: an agent that forgot again has learned, and was looked at while it did.
    if len(returns) < 2 or max(returns[1:]) > returns[0] + 0.05 * max(1.0, abs(returns[0])):
        return []
    said = (
        f"Its return was {number(returns[0])} at the start and {number(returns[-1])} at the end, so what follows shows the rule "
        "at work on an agent that stays ignorant. More --steps or another --env may help."
    )
    return [Notice("The agent did not learn", [said])]


def facts(found: Found) -> list[Block]:
    """The strip of numbers."""
    rows, shown = found.get("over_life", []), []
    returns = [row["return"] for row in rows if row["return"] is not None]
    if returns:
        shown.append(Fact("return", f"{decimal(returns[0])} → {decimal(returns[-1])}", "of the agent, at the start and at the end"))
    moment = found.get("moments", {}).get("learning")
    if moment and rows[moment["index"]]["cosines"]["policy"]["value"] is not None:
        cosine = rows[moment["index"]]["cosines"]["policy"]["value"]
        shown.append(Fact("cosine with the policy gradient", decimal(cosine), "of its policy's part, half trained"))
    horizon = figures.horizon_number(found)
    if horizon is not None:
        shown.append(Fact("bootstrapping horizon", f"{horizon} steps", "until a change of z is felt a tenth as much"))
    shown.append(Fact("environment steps", f"{found['steps']:,}", f"{duration(found['cost']['seconds'])} in all"))
    return [Facts(shown)]


def in_short(found: Found) -> list[Block]:
    """What the figures say, in sentences made from their numbers."""
    said = sentences(found)
    return [Text("In short", said)] if said else []


# -- the interactive part ------------------------------------------------------------------------------------------------------


HTML = """<div class="play">
<div class="choice"><b>agent</b><div data-part="scenes" role="group" aria-label="Agent"></div></div>
<div class="choice"><b>trajectory</b><div data-part="presets" role="group" aria-label="Trajectory"></div></div>
<div class="scroll"><table><thead><tr data-part="head"></tr></thead><tbody data-part="controls"></tbody>
<tbody><tr data-part="policies"></tr><tr data-part="push"></tr><tr data-part="y"></tr><tr data-part="z"></tr></tbody></table></div>
<div class="key-row" data-part="key"></div><p data-part="time"></p></div>"""
NOTE = (
    "Bars: the probability of each action (letters; bold: the one taken), first in grey as the agent has it now, then as each "
    "rule would have it. Push: how far each rule moves the action that was taken. The actor-critic's is one policy-gradient "
    "step of size 1 in the logits, with advantages (discount 0.99, lambda 0.95) as they are; PPO as targets standardises them "
    "by their mean and deviation over the whole recording. "
)
OWN_NOTE = (
    "The rule's own targets are computed here, by its own weights; y, z and q are those that the agent really predicted on "
    "this recorded "
    "trajectory, and stay as they are but for the value that the slider sets. The acting policy and the slow copy's are taken "
    "to be the "
    "agent's. Strips: the {size} numbers of each target in 60 groups, darker for more; the edge above is the prediction as it is."
)


def playground(found: Found, name: str) -> list[Block]:
    """A trajectory that can be edited, if one was recorded."""
    scenes = found.get("scenes")
    if not scenes:
        return []
    # Only a discovered rule is asked in the page.
    title = f"Edit a trajectory and see what {f'{name} wants' if found['discovered'] else 'actor-critic and PPO want'}"
    # Said, since a part that is missing without a word looks like a fault.
    if found["actions"] > MOST_ACTIONS:
        return [Text(title, [f"This environment has {found['actions']} actions; this part has room for {MOST_ACTIONS}."])]
    note = NOTE
    if found["discovered"] and not found.get("weights"):
        note += "The rule's own targets are missing: its network is too large to be part of a page."
    elif found["discovered"]:
        note += OWN_NOTE.format(size=found["sizes"]["prediction_size"])
    data = {"rule": name, "weights": found.get("weights"), "scenes": scenes}
    return [
        Interactive(title, f"<style>{asset('explain.css')}</style>{HTML}", asset("forward.js") + asset("explain.js"), data, note)
    ]


# -- how it was made -----------------------------------------------------------------------------------------------------------


def not_applicable(found: Found) -> Notice:
    """Analyses that a hand-designed rule cannot have."""
    said = (
        f"{short(found['rule'])} is hand-designed: it has no predictions y and z and no network that could be asked. "
        "Bootstrapping horizon, reliance on y "
        "and z, and input saliency do not apply to it; its equation is in the documentation (docs/rules.md)."
    )
    return Notice("What does not apply", [said], kind="note")


def how(found: Found) -> Text:
    """What was done, on what data."""
    streams, watch = found["streams"], found["watch"]
    count = len(found.get("over_life", []))
    said = [
        f"One agent (seed {found['seed']}) learned {found['env']} by the rule for {found['steps']:,} environment steps, with the "
        f"settings below. At {count} moments of its life a copy was taken and watched for {watch} steps in each of {streams} "
        f"streams ({watch * streams:,} steps), without learning. All figures are of these recordings; where the rule is asked, "
        "it is shown them in trajectories of 32 steps, with its memory of that moment.",
        "The five analyses follow Oh et al. (Nature 648, 2025), who made them on Atari; the names are theirs. It is one agent "
        "in one environment: intervals say how far the recordings can be trusted, not how another agent would differ.",
    ]
    return Text("How this was made", said)


def commands(found: Found) -> list[Block]:
    """How to make it again."""
    again = found["record"].get("command") or f"rulax explain {found['rule']} --env {found['env']}"
    lines = [(again, "this page"), (f"rulax train {found['env']} --rule {found['rule']}", "train agents by this rule")]
    if found["discovered"] and found["sizes"]["predictions"] and not found.get("ablations"):
        lines.insert(1, (f"{again} --ablations", "this page, with two more agents that learn by the rule without y and z"))
    return [parts.commands("Make it again", lines)]


def details(found: Found) -> list[Block]:
    """Cost, settings, versions."""
    cost = found["cost"]
    phases = [(name, duration(seconds)) for name, seconds in cost["phases"].items()]
    about = [KeyValues("The rule", [(name, str(value)) for name, value in found["about"].items()])] if found["about"] else []
    # Each ablation is an agent of its own with the same budget.
    lives = 1 + len(found.get("ablations", {}))
    return [
        parts.cost(found["steps"] * lives, cost["seconds"], cost["cpu_seconds"], phases),
        *about,
        *parts.configuration({**found["record"], "sizes": found["sizes"]}, ("settings", "learning", "network", "sizes")),
    ]
