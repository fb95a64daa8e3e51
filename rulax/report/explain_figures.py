"""The figures of an explanation, each with a note that says what was done, on what data and with what interval."""

from __future__ import annotations

from typing import Any

from rulax.report.blocks import Block, Curves, Heatmap, IntervalRow, Intervals, Line, Panels

Found = dict[str, Any]
FLOOR = 1e-5  # of the largest change; less is nothing
HEADS = {"policy": "π̂", "state_prediction": "ŷ", "action_prediction": "ẑ"}
NAMES = {"policy": "policy", "state_prediction": "y", "action_prediction": "z"}  # as other figures call them: one colour each
BLANKED = {
    "state_prediction": "y",
    "action_prediction": "z",
    "both": "y and z",
    "value": "value",
    "reward": "reward",
    "lifetime": "lifetime memory",
}
SOURCES = {"y": "y", "z": "z", "policy": "policy", "value": "value", "observation": "observation"}
MOMENTS = {"untrained": "untrained", "learning": "half trained", "trained": "trained"}


def all_of(found: Found, name: str) -> list[Block]:
    """Every figure that there are numbers for."""
    figures = [life(found, name), *probes(found), confidence(found), horizon(found), *reliance(found), saliency(found)]
    blocks = [*figures, cosines(found, name)]
    return [block for block in blocks if block is not None]


def line(name: str, x: list[Any], rows: list[Any], style: Any = "line") -> Line:
    """A curve from numbers with intervals; None is a gap."""
    take = [[None if row is None else row[key] for row in rows] for key in ("value", "low", "high")]
    banded = any(low is not None for low in take[1])
    return Line(name, x, take[0], take[1] if banded else (), take[2] if banded else (), style)


def orders(title: str, x_label: str, y_label: str, lines: list[Line]) -> Curves:
    """Curves on a logarithmic axis; what is below `FLOOR` times the largest value is drawn there, or it would take all the room."""
    floor = FLOOR * max((value for one in lines for value in one.mean if value is not None), default=0.0)

    def raised(values: Any) -> list[Any]:
        return [None if value is None else max(value, floor) for value in values]

    lines = [Line(one.name, one.x, raised(one.mean), raised(one.low), raised(one.high), one.style) for one in lines]
    return Curves(title, x_label, y_label, lines, log="y", points=True, starts_log=True)


def life(found: Found, name: str) -> Block | None:
    """The learning curve, and those of the ablated rules."""
    if not found.get("life") or not found["life"]["steps"]:
        return None
    lines = [Line(name, found["life"]["steps"], found["life"]["returns"])]
    for ablated in found.get("ablations", {}).values():
        lines.append(Line(ablated["label"], ablated["steps"], ablated["returns"]))
    note = "Mean return of the episodes that ended since the point before, while learning: one agent each, so there is no interval."
    if len(lines) > 1:
        note += " Blanked: the rule is shown uniform y and z, when it makes their targets only, or when it makes all of them."
    return Curves("The life that was looked at", "environment steps", "episode return", lines, note)


def cosines(found: Found, name: str) -> Block | None:
    """The angle to the policy gradient over the life."""
    rows = found.get("over_life")
    if not rows:
        return None
    x = [row["step"] for row in rows]
    labels = {"policy": name, "whole": "whole loss", "again": "policy gradient, other half of the data"}
    lines = [line(label, x, [row["cosines"][key] for row in rows]) for key, label in labels.items()]
    note = (
        f"Cosine between gradients in the agent's parameters, on the same {rows[0]['cosines']['batch']} steps: that of the "
        "rule's loss, through the policy head only (first line) or whole, and that of −A log π(a), with advantages from the "
        "agent's own value (discount 0.99, lambda 0.95). The last line is the policy gradient of one half of these steps with "
        "that of the other half: what noise leaves of a cosine of 1. Mean over batches, 95 % bootstrap interval over batches. "
        "Gradients, before Adam."
    )
    return Curves(
        "The rule's step and the policy gradient", "environment steps", "cosine", lines, note, points=True, y_range=(-0.2, 1)
    )


def confidence(found: Found) -> Block | None:
    """Analysis 1."""
    panels = []
    for moment, close in found.get("close", {}).items():
        # Before it has learned, an agent's confidence is that of its random weights.
        if moment == "untrained":
            continue
        for letter, measures in close["confidence"].items():
            kinds = measures["confidence"]["kinds"]
            if not kinds:
                continue
            usual = measures["confidence"]["usual_reward"]
            names = {"more": f"before a reward above {usual:g}", "less": f"before a reward below {usual:g}"}
            lines = [
                line(names[kind], [-row["steps_before"] for row in of["rows"]][::-1], of["rows"][::-1])
                for kind, of in kinds.items()
            ]
            panels.append(Curves(f"{letter}, {MOMENTS[moment]}", "steps to the reward", "", lines, points=True))
    if not panels:
        return None
    shown = list(dict.fromkeys(each.name for panel in panels for each in panel.lines))
    only = f" All lines are {shown[0]}: no other came often enough." if len(shown) == 1 else ""
    note = (
        "Confidence is minus the entropy of the prediction (z: of the action taken), in standard deviations from its mean over "
        "the recording. A reward counts if it is not the most frequent one. Where all rewards come at the end of an episode, "
        "time alone makes a slope: the difference between the two lines is what the prediction knows. 95 % bootstrap interval "
        "over episodes."
    )
    return Panels("Confidence before rewards", panels, note + only)


def probes(found: Found) -> list[Block]:
    """Analysis 2: over steps ahead at two moments, and over life at a fixed distance."""
    rows = found.get("over_life")
    if not rows:
        return []
    wanted = {"reward": "reward", "entropy": "policy entropy"}
    chosen = [(MOMENTS[name], rows[of["index"]]) for name, of in found.get("moments", {}).items() if name != "untrained"]
    panels = []
    for target, label in wanted.items():
        for moment, row in chosen:
            lines = []
            for source, scores in row["probes"][target].items():
                known = [(steps, score) for steps, score in enumerate(scores) if score is not None]
                if known:
                    lines.append(line(SOURCES[source], [steps for steps, _ in known], [clip(score) for _, score in known]))
            if lines:
                panels.append(Curves(f"{label}, {moment}", "steps ahead", "R²", lines, points=True, y_range=(-0.2, 1)))
    if not panels:
        return []
    note = (
        "How much of the variance of the reward, and of the policy's entropy, so many steps later in the same episode can be "
        "read off what the agent predicts now: ridge regression on up to 96 principal components and 64 random bends of them, "
        "penalty and score on episodes that were left out (five folds). 0 is nothing, 1 is all; points and bands are cut at "
        "−0.2 and 1. The observation is there as a baseline: all that predictions know comes from it, but so simple a probe "
        "does not get all of it out. z is that of the action taken, so it also knows the action. Bands: 95 % t interval over "
        "folds, which share training data, so somewhat too narrow. No point: too few pairs, or nothing varies."
    )
    return [Panels("What predictions know of the future", panels, note)]


def clip(score: Found) -> Found:
    """A failed probe may be at minus a thousand, and a t interval knows no bounds: neither shall take the room of the others."""
    return {name: value if name == "count" or value is None else min(1.0, max(value, -0.2)) for name, value in score.items()}


# -- discovered rules only -----------------------------------------------------------------------------------------------------


def horizon(found: Found) -> Block | None:
    """Analysis 3."""
    panels = []
    kinds = {
        "z": "z replaced, inside of an episode",
        "y": "y replaced, inside of an episode",
        "z hidden": "z replaced, ends hidden from the rule",
    }
    moment = next((name for name in ("learning", "trained") if "horizon" in found.get("close", {}).get(name, {})), None)
    if moment is None:
        return None
    for kind, title in kinds.items():
        measured = found["close"][moment]["horizon"].get(kind)
        if not measured:
            continue
        lines = []
        for head, rows in measured.items():
            known = [row for row in rows if row["value"] is not None]
            lines.append(line(NAMES[head], [row["distance"] for row in known], known))
        panels.append(orders(title, "k, steps between", "change at t, nats", lines))
    note = (
        f"The {MOMENTS[moment]} agent. Its prediction at t + k (and its slow copy's) is replaced by that of another stream, and "
        "the targets at t are computed again; shown is the mean of KL(target before ‖ after). Nothing reaches back across the "
        "end of an episode, so inside of short episodes k ends early; in the last panel the rule is told that no episode ends. "
        "Less than 1e-5 of the largest change is drawn there. 95 % bootstrap interval over 32 trajectories."
    )
    return Panels("Bootstrapping horizon", panels, note)


def horizon_number(found: Found) -> int | None:
    """Steps until a change of z is felt a tenth as much as where it is felt most, with ends hidden; None if never or unknown."""
    for moment in ("learning", "trained"):
        rows = found.get("close", {}).get(moment, {}).get("horizon", {}).get("z hidden", {}).get("action_prediction")
        if rows:
            values = [row["value"] or 0.0 for row in rows]
            top = values.index(max(values))
            return next((k for k in range(top, len(values)) if values[k] < 0.1 * values[top]), None)
    return None


def reliance(found: Found) -> list[Block]:
    """Analysis 4: over the life, one panel for each target."""
    rows = [row for row in found.get("over_life", []) if "reliance" in row]
    if not rows:
        return []
    x = [row["step"] for row in rows]
    panels = []
    for head, symbol in HEADS.items():
        if head not in rows[0]["reliance"]["move"]:
            continue
        lines = [
            line(BLANKED[name], x, [row["reliance"]["blanked"][name][head] for row in rows])
            for name in rows[0]["reliance"]["blanked"]
        ]
        move = [row["reliance"]["move"][head]["value"] for row in rows]
        lines.append(Line("nothing: how far it is from the prediction", x, move))
        panels.append(orders(f"change of {symbol} without", "environment steps", "nats", lines))
    note = (
        "KL(target ‖ target without the input): y, z and q are replaced by uniform predictions, rewards by 0, the lifetime's "
        "memory by an untrained agent's. To compare with: "
        "how far the target is from the agent's prediction, KL(target ‖ prediction), which is what the agent learns from. "
        "Less than 1e-5 of the largest is drawn there. 95 % bootstrap interval over 32 trajectories."
    )
    return [Panels("What the targets rely on", panels, note)]


def saliency(found: Found) -> Block | None:
    """Analysis 5."""
    moment = next((name for name in ("learning", "trained") if "saliency" in found.get("close", {}).get(name, {})), None)
    if moment is None:
        return None
    measured = found["close"][moment]["saliency"]
    heads = [head for head in HEADS if head in measured]
    first = measured[heads[0]]
    names = sorted(first, key=lambda name: -first[name]["value"])
    totals = {head: sum(of["value"] ** 2 for of in measured[head].values()) or 1.0 for head in heads}
    shares = [[100 * measured[head][name]["value"] ** 2 / totals[head] for head in heads] for name in names]
    rows = [IntervalRow(name, first[name]["value"], first[name]["low"], first[name]["high"]) for name in names]
    note = (
        f"The {MOMENTS[moment]} agent. How far a logit of the target moves if the input is jittered by its own standard "
        "deviation at every step: gradients of the targets with respect to each input of the meta-network, times the input's "
        "deviation over the recording, root mean square (8 random directions). Left: of the policy's target, with 95 % "
        "bootstrap interval over 32 trajectories. Right: shares of the squares, in per cent of each column. An input that never "
        "varies counts nothing: its effect may still be large where it does."
    )
    return Panels(
        "What the network listens to",
        [
            Intervals("π̂, change of a logit", "log-odds", rows),
            Heatmap("share of the squares, %", [HEADS[head] for head in heads], names, shares),
        ],
        note,
    )
