"""What earlier versions wrote, read as today's: one table each for settings, tensors and facts that have other names now.

Names of settings and what runs did before a setting existed are metadata of the field itself (`formerly` and `before` in
rulax/settings.py). A folder that cannot be read as today's is refused with a sentence that says why.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rulax.discovery.settings import Discovery
from rulax.own import without_options
from rulax.settings import Learning, Network, earlier_names, with_current_names

if TYPE_CHECKING:  # `--help` reads this file and must not wait
    import numpy as np

FORMAT = 2  # of a checkpoint; those before it carry no number
PARTS: dict[str, type] = {"discovery": Discovery, "learning": Learning, "network": Network}  # of config.json

# Paths of tensors in checkpoints of format 1, as regular expressions, and what may stand there today. The critic was one network,
# the last layer of which is its head today.
TENSORS = (
    (r"\.learner(?=[.\[])", ".learner_state"),
    (r"\.world(?=[.\[]|$)", ".env_state"),
    (r"\.births$", ".resets"),
    (r"(\.critic\.(?:params|optimiser_state\[\d+\]\.\w+))\.layers\[(\d+)\]", r"\1.torso.mlp.layers[\2]", r"\1.head"),
)

# Tensors that checkpoints of format 1 lack and that nothing can replace, and why.
IRREPLACEABLE = (
    (
        r"\.hyperparameters\['horizon'\]$",
        "in that version a schedule (linear, cosine) ended at an agent's first update, so agents hardly learned; discover anew",
    ),
)


# -- settings ------------------------------------------------------------------------------------------------------------------


def complete(record: dict[str, Any]) -> dict[str, Any]:
    """A `config.json` with today's names, its kind, and the values of settings that are younger than it.

    Such a setting gets what runs did before it existed: a rule may recommend something else today.
    """
    # On the left of the union: a kind that the record has wins.
    record = {"kind": "discover" if "discovery" in record else "train"} | record
    settings = record.get("settings", {})
    if without_options(settings.get("rule", "")) != settings.get("rule", ""):
        # Such options were ignored once, so what was trained is the rule without them.
        record["settings"] = settings | {"rule": without_options(settings["rule"])}
    for part, cls in PARTS.items():
        if part in record:
            # Likewise: only what the record lacks is filled in.
            record[part] = before(cls) | with_current_names(record[part], cls)
    return record


def original(settings: Mapping[str, Any], *classes: type) -> dict[str, Any]:
    """Settings by their first names, without those that are as before they existed: fingerprints are made of this.

    So a fingerprint of an earlier version stays valid when a setting is renamed or added.
    """
    first = {new: old for old, new in earlier_names(*classes).items()}
    new = {name: value for cls in classes for name, value in before(cls).items()}
    # A setting that differs from before does count, since such a run computes something else.
    kept = {name: value for name, value in settings.items() if name not in new or new[name] != value}
    return {first.get(name, name): value for name, value in kept.items()}


def before(cls: type) -> dict[str, Any]:
    """The settings of a dataclass that are younger than some folders and files, with what was done before they existed."""
    return {field.name: field.metadata["before"] for field in dataclasses.fields(cls) if "before" in field.metadata}


# -- checkpoints ---------------------------------------------------------------------------------------------------------------


def current_tensors(tensors: Mapping[str, np.ndarray], known: Collection[str]) -> dict[str, np.ndarray]:
    """The tensors of a checkpoint of format 1 under today's names; `known` are those that the state of today has."""
    # Names that still exist are left alone, as the expressions might match them too.
    return {name if name in known else _current_path(name, known): value for name, value in tensors.items()}


def _current_path(name: str, known: Collection[str]) -> str:
    candidates = [name]
    for old, *new in TENSORS:
        candidates = [re.sub(old, each, candidate) for candidate in candidates for each in new]
    # Where none fits, any: unpacking refuses it with a sentence that names the tensor.
    return next((each for each in candidates if each in known), candidates[0])


def why_missing(name: str) -> str:
    """Why a tensor of today cannot be in a checkpoint of format 1, as the end of a sentence; empty if it should be there."""
    return next((reason for path, reason in IRREPLACEABLE if re.search(path, name)), "")


def current_array(array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """Starts of episodes were booleans once; today they are whole numbers, of which 1 is an episode."""
    return array.astype(wanted) if array.dtype.kind == "b" and wanted.kind in "iu" else array


def current_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a checkpoint: discovery kept most of its own under `books`, and called the length of a row `rows_of`."""
    books = facts.get("books")
    if books is None:
        return facts
    others = {name: value for name, value in facts.items() if name != "books"}
    flat = {name: value for name, value in books.items() if name != "rows_of"}
    return others | flat | {"window": books["rows_of"]}
