"""What the figures of an explanation say, in sentences that are made from their numbers and claim no more."""

from __future__ import annotations

from typing import Any

from rulax.report.explain_figures import SOURCES

Found = dict[str, Any]


def sentences(found: Found) -> list[str]:
    """One for each analysis that has something to say."""
    return [*angle(found), *known_ahead(found), *relied_on(found), *listened_to(found)]


def angle(found: Found) -> list[str]:
    """The policy gradient."""
    rows = found.get("over_life")
    if not rows:
        return []
    first, last, again = (rows[i]["cosines"][name]["value"] for i, name in ((0, "policy"), (-1, "policy"), (-1, "again")))
    if None in (first, last, again):
        return []
    return [
        f"Through the policy head the rule's step has a cosine of {first:.2f} with the policy gradient at birth and of "
        f"{last:.2f} at the "
        f"end of the agent's life; two halves of the same data give policy gradients with a cosine of {again:.2f} there."
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
    told = ", ".join(f"{SOURCES[name]} {scores[name]['value']:.2f}" for name in ("y", "z", "value", "policy") if name in scores)
    return [f"Of the reward two steps ahead, the half trained agent's predictions know (R²): {told}."]


def relied_on(found: Found) -> list[str]:
    """Whether y and z matter to the policy."""
    row = found.get("moments", {}).get("learning")
    measured = found["over_life"][row["index"]].get("reliance") if row else None
    if not measured or "both" not in measured["blanked"]:
        return []
    change, move = measured["blanked"]["both"]["policy"]["value"], measured["move"]["policy"]["value"]
    share = "much of" if change > 0.5 * move else "part of" if change > 0.1 * move else "next to nothing of"
    return [
        f"Without y and z the policy's target of the half trained agent changes by {change:.3g} nats, where the target is "
        f"{move:.3g} nats "
        f"from the policy that it teaches: they carry {share} the policy's update."
    ]


def listened_to(found: Found) -> list[str]:
    """The inputs that count most."""
    measured = found.get("close", {}).get("learning", {}).get("saliency")
    if not measured:
        return []
    ranked = sorted(measured["policy"].items(), key=lambda item: -item[1]["value"])
    names = [name for name, _ in ranked[:3]]
    return [f"What moves the policy's target most are these inputs: {names[0]}, {names[1]}, {names[2]}."]
