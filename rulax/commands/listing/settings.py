"""What a user may choose for the commands that list things: rules, environments, runs."""

from __future__ import annotations

import dataclasses
from typing import Any

from rulax.settings import setting

WHAT = "what to list"


@dataclasses.dataclass(frozen=True)
class ListConfig:
    """List what there is, one line each."""

    filter: str = setting("", WHAT, positional=True, metavar="FILTER")
    """Show only names or summaries that contain this text."""


@dataclasses.dataclass(frozen=True)
class EnvsConfig(ListConfig):
    """List the environments."""


@dataclasses.dataclass(frozen=True)
class RulesConfig(ListConfig):
    """List the update rules."""


@dataclasses.dataclass(frozen=True)
class GetRuleConfig:
    """Install a rule that does not come with the package."""

    name: str = setting("", "what to install", positional=True, metavar="NAME")
    """Rule to install: disco103."""
    from_: str = setting("", "what to install", metavar="FILE")
    """Copy of its file on this machine, for example disco_103.npz; without it the file is downloaded."""


@dataclasses.dataclass(frozen=True)
class RunsConfig:
    """List the runs in a folder, with their key numbers."""

    folder: str = setting("runs", WHAT, positional=True, metavar="DIR")
    """Folder that holds run folders, at any depth."""
    filter: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Show only runs with these values, for example rule=ppo kind=train finished=no; text matches where it is contained."""
    sort: str = setting("folder", WHAT, metavar="KEY")
    """Column to sort by."""
    reverse: bool = setting(False, WHAT)
    """Sort in descending order."""
    csv: str = setting("", WHAT, metavar="FILE")
    """Write all columns to this file instead of showing some."""


@dataclasses.dataclass(frozen=True)
class BoardConfig:
    """Open TensorBoard on the runs in a folder."""

    folder: str = setting("runs", "what to show", positional=True, metavar="DIR")
    """Folder that holds run folders, at any depth."""
    port: int = setting(6006, "what to show", at_least=1, at_most=65535)
    """Port to serve on."""
