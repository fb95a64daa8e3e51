"""The kinds of rules that can be discovered: what the files of each state of its shapes and its constants. No JAX here.

Each is made by the function of the same name in the table of rules (rules/registry.py), from its sizes and its constants; what
its `init` draws is what discovery learns. A file says of which kind it is as `rulax.NAME` (rules/rule_files.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rulax.errors import suggestion
from rulax.metanet.sizes import Constants, Sizes
from rulax.rules.epg_sizes import EpgConstants, EpgSizes
from rulax.rules.lpg_sizes import LpgConstants, LpgSizes
from rulax.rules.lpo_sizes import DriftConstants, DriftSizes

PREFIX = "rulax."  # of the kind that the metadata of a file names


class Kind(NamedTuple):
    """What makes one rule of a kind differ from another: two dataclasses, whose fields are options of the rule."""

    sizes: type  # fixes the shapes of the parameters
    constants: type  # hand-chosen numbers, which may be changed later


KINDS = {
    "disco": Kind(Sizes, Constants),
    "epg": Kind(EpgSizes, EpgConstants),
    "lpg": Kind(LpgSizes, LpgConstants),
    "lpo": Kind(DriftSizes, DriftConstants),
}


def kind_of(sizes: Any) -> str:
    """The kind that has sizes of this class."""
    return next(name for name, kind in KINDS.items() if kind.sizes is type(sizes))


def kind_in(metadata: Mapping[str, str]) -> str:
    """The kind of rule that the metadata of a file names; empty if it is no rule."""
    prefix, _, name = metadata.get("kind", "").partition(".")
    return name if f"{prefix}." == PREFIX and name in KINDS else ""


def check_kind(name: str) -> None:
    """Refuse the name of what cannot be discovered."""
    if name not in KINDS:
        raise ValueError(f"'{name}' is no kind of rule to discover{suggestion(name, KINDS)}; known: {', '.join(KINDS)}")
