"""What the figures of an explanation say, in sentences that are made from their numbers and claim no more."""

from __future__ import annotations

from typing import Any

from rulax.report.explain_figures import SOURCES, horizon_number

Found = dict[str, Any]


def sentences(found: Found) -> list[str]:
    """One for each analysis that has something to say."""
    parts = (angle, surer, known_ahead, reaches, relied_on, went_without, listened_to)
    return [sentence for part in parts for sentence in part(found)]


def between(numbers: Found) -> str:
    """A value with its interval."""
    low, high = numbers["low"], numbers["high"]
    return decimal(numbers["value"]) + (f" [{decimal(low)}, {decimal(high)}]" if low is not None else "")


def decimal(value: float) -> str:
    """Two decimals, with a true minus sign."""
    return f"{value:.2f}".replace("-", "−")


def small(numbers: Found) -> str:
    """The same for what may be tiny: two digits, wherever they are."""
    low, high = numbers["low"], numbers["high"]
    return f"{numbers['value']:.2g}" + (f" [{low:.2g}, {high:.2g}]" if low is not None else "")


def surer(found: Found, steps: int = 1) -> list[str]:
    """How sure y is just before rewards."""
    measured = found.get("close", {}).get("learning", {}).get("confidence", {}).get("y")
    if not measured:
        return []
    usual, kinds = measured["confidence"]["usual_reward"], measured["confidence"]["kinds"]
    words = {"more": f"above {usual:g}", "less": f"below {usual:g}"}
    told = [f"{between(of['rows'][steps])} if it is {words[kind]}" for kind, of in kinds.items() if len(of["rows"]) > steps]
    if not told:
        return []
    return [f"One step before a reward, the half trained agent's y is this sure, in deviations from its mean: {', '.join(told)}."]


def reaches(found: Found) -> list[str]:
    """The bootstrapping horizon."""
    rows = found.get("close", {}).get("learning", {}).get("horizon", {}).get("z hidden", {}).get("action_prediction")
    steps = horizon_number(found)
    if not rows or steps is None:
        return []
    top = max(rows, key=lambda row: row["value"] or 0.0)
    where = f"{plural(top['distance'])} later" if top["distance"] else "at the same step"
    return [
        f"Another z {where} changes the target of z by {small(top)} nats, most of all distances; "
        f"{plural(steps)} later it is less than a tenth of that."
    ]


def went_without(found: Found) -> list[str]:
    """What agents achieve that are taught without y and z."""
    lives = {name: lived for name, lived in found.get("ablations", {}).items() if lived["finished"]}
    if not found.get("life") or not lives:
        return []
    told = [f"{lived['label']} {late(lived)}" for lived in lives.values()]
    return [f"In the last tenth of its life an agent's return is {late(found['life'])}; {', '.join(told)}. One agent each."]


def plural(steps: int) -> str:
    """1 -> '1 step'."""
    return f"{steps} step{'s' * (steps != 1)}"


def late(lived: Found) -> str:
    """The mean return over the last tenth of a life."""
    returns = [value for step, value in zip(lived["steps"], lived["returns"], strict=True) if step >= 0.9 * lived["steps"][-1]]
    known = [value for value in returns if value is not None]
    return decimal(sum(known) / len(known)) if known else "unknown"


def angle(found: Found) -> list[str]:
    """The policy gradient, at the moment that was chosen for its return and not for what is said here."""
    row = found.get("moments", {}).get("learning")
    if not row:
        return []
    measured = found["over_life"][row["index"]]["cosines"]
    cosine, again = measured["policy"], measured["again"]
    if cosine["low"] is None or again["value"] is None:
        return []
    known = "not told from noise" if cosine["low"] <= 0 <= cosine["high"] else "related to the policy gradient, but another step"
    known = "nearly at a right angle to the policy gradient" if cosine["low"] > -0.3 and cosine["high"] < 0.3 else known
    known = "close to the policy gradient" if cosine["low"] > 0.8 else known
    return [
        f"On the half trained agent ({row['step']:,} environment steps) the policy's part of the rule's gradient is {known}: their "
        f"cosine is {between(cosine)}, where two halves of the same data give "
        "policy "
        f"gradients with a cosine of {between(again)}."
    ]


def known_ahead(found: Found, steps: int = 2) -> list[str]:
    """What y knows of the reward two steps ahead, beside policy and value."""
    row = found.get("moments", {}).get("learning")
    if not row:
        return []
    probes = found["over_life"][row["index"]]["probes"]["reward"]
    scores = {name: values[steps] for name, values in probes.items() if len(values) > steps and values[steps]}
    if not {"y", "value", "policy"} <= set(scores):
        return []
    told = ", ".join(f"{SOURCES[name]} {between(scores[name])}" for name in ("y", "z", "value", "policy") if name in scores)
    return [f"Of the reward two steps ahead, the half trained agent's predictions know (R²): {told}."]


def relied_on(found: Found) -> list[str]:
    """Whether y and z matter to the policy."""
    row = found.get("moments", {}).get("learning")
    measured = found["over_life"][row["index"]].get("reliance") if row else None
    if not measured or "both" not in measured["blanked"]:
        return []
    changed, moved = measured["blanked"]["both"]["policy"], measured["move"]["policy"]
    change, move = changed["value"], moved["value"]
    share = "much of" if change > 0.5 * move else "part of" if change > 0.1 * move else "next to nothing of"
    return [
        f"Without y and z the policy's target of the half trained agent changes by {small(changed)} nats, where the target is "
        f"{small(moved)} nats "
        f"from the policy that it teaches: they carry {share} the policy's update."
    ]


def listened_to(found: Found) -> list[str]:
    """The inputs that count most."""
    measured = found.get("close", {}).get("learning", {}).get("saliency")
    if not measured:
        return []
    ranked = sorted(measured["policy"].items(), key=lambda item: -item[1]["value"])
    told = ", ".join(f"{name} {between(of)}" for name, of in ranked[:3])
    return [f"What moves the policy's target most, in log-odds if they are jittered by their own deviation: {told}."]
