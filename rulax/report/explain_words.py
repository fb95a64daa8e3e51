"""What the figures of an explanation say, in sentences that are made from their numbers and claim no more."""

from __future__ import annotations

from typing import Any

from rulax.report.explain_figures import SOURCES, horizon_number
from rulax.report.parts import in_words
from rulax.text import plural

Found = dict[str, Any]


def sentences(found: Found) -> list[str]:
    """One for each analysis that has something to say."""
    parts = (angle, surer, known_ahead, reaches, relied_on, went_without, listened_to)
    return [sentence for part in parts for sentence in part(found)]


def between(numbers: Found) -> str:
    """A value with its interval."""
    return in_words(numbers, decimal)


def decimal(value: float) -> str:
    """Two decimals, with a true minus sign."""
    return f"{value:.2f}".replace("-", "−")


def small(numbers: Found) -> str:
    """The same for what may be tiny: two digits, wherever they are."""
    return in_words(numbers, "{:.2g}".format)


def listed(parts: list[str]) -> str:
    """Parts of a sentence: a, b and c."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def surer(found: Found, steps: int = 1) -> list[str]:
    """How sure y is just before rewards."""
    measured = found.get("close", {}).get("learning", {}).get("confidence", {}).get("y")
    if not measured:
        return []
    usual, kinds = measured["confidence"]["usual_reward"], measured["confidence"]["kinds"]
    words = {"more": f"above {usual:g}", "less": f"below {usual:g}"}
    told = []
    for kind, of in kinds.items():
        if len(of["rows"]) > steps and of["rows"][steps]["value"] is not None:
            row = of["rows"][steps]
            sure = "surer" if row["value"] > 0 else "less sure"
            told.append(f"{between({**row, **absolute(row)})} standard deviations {sure} than usual before a reward {words[kind]}")
    return [f"One step ahead, the half trained agent's y is {listed(told)}."] if told else []


def absolute(row: Found) -> Found:
    """A negative value with its interval, as a size."""
    if row["value"] >= 0:
        return {}
    low, high = row["low"], row["high"]
    return {"value": -row["value"], "low": None if high is None else -high, "high": None if low is None else -low}


def reaches(found: Found) -> list[str]:
    """The bootstrapping horizon."""
    rows = found.get("close", {}).get("learning", {}).get("horizon", {}).get("z hidden", {}).get("action_prediction")
    steps = horizon_number(found)
    if not rows or steps is None:
        return []
    top = max(rows, key=lambda row: row["value"] or 0.0)
    where = f"{plural(top['distance'], 'step')} later" if top["distance"] else "at the same step"
    return [
        f"The target of z bootstraps over about {plural(steps, 'step')}: another z {where} changes it most, by {small(top)} nats, "
        f"and one {plural(steps, 'step')} later by less than a tenth of that."
    ]


def went_without(found: Found) -> list[str]:
    """What agents achieve that are taught without y and z."""
    lives = {name: lived for name, lived in found.get("ablations", {}).items() if lived["finished"]}
    if not found.get("life") or not lives:
        return []
    told = [f"with {lived['label']} it is {late(lived)}" for lived in lives.values()]
    return [f"In the last tenth of its life the agent's return is {late(found['life'])}; {listed(told)} (one agent each)."]


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
    known = (
        "not to be told from noise" if cosine["low"] <= 0 <= cosine["high"] else "related to the policy gradient, but another step"
    )
    known = "nearly at a right angle to the policy gradient" if cosine["low"] > -0.3 and cosine["high"] < 0.3 else known
    known = "close to the policy gradient" if cosine["low"] > 0.8 else known
    return [
        f"For the half trained agent ({row['step']:,} environment steps) the policy's part of the rule's gradient is {known}: "
        f"their cosine is {between(cosine)}; the policy gradients of two halves of the data have one of {between(again)}."
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
    others = listed([f"{SOURCES[name]} {decimal(scores[name]['value'])}" for name in ("z", "value", "policy") if name in scores])
    return [
        f"The half trained agent's y explains a share of {between(scores['y'])} of the variance of the reward two steps ahead "
        f"(R²), beside {others}."
    ]


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
        f"y and z carry {share} the policy's update: without them the half trained agent's target changes by {small(changed)} "
        f"nats, and it is {small(moved)} nats from the policy that it teaches."
    ]


def listened_to(found: Found) -> list[str]:
    """The inputs that count most."""
    measured = found.get("close", {}).get("learning", {}).get("saliency")
    if not measured:
        return []
    ranked = sorted(measured["policy"].items(), key=lambda item: -item[1]["value"])
    told = listed([f"{name} by {between(of)}" for name, of in ranked[:3]])
    return [f"Jittered by their own deviation, these inputs move the log-odds of the policy's target most: {told}."]
