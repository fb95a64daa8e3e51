"""What the figures of an explanation say, in sentences that are made from their numbers and claim no more."""

from __future__ import annotations

from typing import Any

from rulax.report.explain_figures import SOURCES

Found = dict[str, Any]


def sentences(found: Found) -> list[str]:
    """One for each analysis that has something to say."""
    return [*angle(found), *known_ahead(found), *relied_on(found), *listened_to(found)]


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
    known = "close to the policy gradient" if cosine["low"] > 0.8 else known
    return [
        f"On the half trained agent ({row['step']:,} environment steps) the policy's part of the rule's gradient is {known}: their "
        f"cosine is {cosine['value']:.2f} [{cosine['low']:.2f}, {cosine['high']:.2f}], where two halves of the same data give "
        "policy "
        f"gradients with a cosine of {again['value']:.2f}."
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
