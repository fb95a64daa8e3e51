"""`rulax envs` and `rulax rules`: what there is, one line each. No JAX, so that the answer is immediate."""

from __future__ import annotations

import importlib
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from rulax.commands.listing.settings import GetRuleConfig, ListConfig
from rulax.commands.settings import assemble, read_values
from rulax.commands.train.settings import DEFAULT_RULE
from rulax.errors import UserError, suggestion

if TYPE_CHECKING:
    from rulax.envs.catalogue import AdapterFamily

INSTALLABLE = ("disco103",)


def envs_command(values: dict[str, str]) -> int:
    """Entry point of `rulax envs`."""
    from rulax.envs.catalogue import adapter_families
    from rulax.envs.registry import list_environments

    wanted = assemble(ListConfig, read_values(ListConfig, values)).filter
    # Searched by name and description: whether it is installed, and the extra, are not what a filter is about.
    families = [each for each in adapter_families().values() if wanted.lower() in " ".join(described(each)[::3]).lower()]
    entries = [(entry.name, entry.summary) for entry in list_environments()]
    if show("envs", "environment", entries, wanted, bool(families)) and families:
        print()
    show_families(families)
    if wanted in adapter_families():
        show_ids(adapter_families()[wanted])
    print("\nuse one with: rulax train NAME   (its options: --env-options KEY=VALUE)")
    if families:
        print("install an extra with: pip install 'rulax[EXTRA]'")
    return 0


def show_ids(family: AdapterFamily) -> None:
    """Every ID of one family, where its package is there and keeps a list."""
    if not family.installed:
        return
    # Imported only when one family is asked for, since it imports that family's package.
    ids = importlib.import_module(f"rulax.envs.adapters.{family.prefix}").ids()
    if ids:
        print()
        print(textwrap.fill(" ".join(ids), shutil.get_terminal_size().columns, break_on_hyphens=False, break_long_words=False))


def show_families(families: list[AdapterFamily]) -> None:
    """A table of the environments of other libraries; on a terminal what is too long goes on below, elsewhere each is one line."""
    if not families:
        return
    rows = [("name", "extra", "installed", "what it is"), *map(described, families)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    left = sum(widths) + 3 * len(widths)
    room = max(30, shutil.get_terminal_size().columns - left) if sys.stdout.isatty() else 10_000
    for row in rows:
        first, *others = textwrap.wrap(row[3], room, break_on_hyphens=False, break_long_words=False)
        columns = [f"{text:<{width}}" for text, width in zip(row, widths, strict=False)]
        print("   ".join([bold(columns[0]), *columns[1:], first]))
        for line in others:
            print(" " * left + line)


def described(family: AdapterFamily) -> tuple[str, str, str, str]:
    """A family's row: its name, the extra that it needs, whether its package is there, what it is with an example."""
    example = f"{family.prefix}/{family.examples[0]}"
    return f"{family.prefix}/ID", family.extra, "yes" if family.installed else "no", f"{family.summary}; for example {example}"


def rules_command(values: dict[str, str]) -> int:
    """Entry point of `rulax rules`."""
    from rulax.rules.registry import list_rules

    entries = [(name, summary + mark(name)) for name, summary in list_rules().items()]
    show("rules", "rule", entries, assemble(ListConfig, read_values(ListConfig, values)).filter)
    print("\nuse one with: rulax train catch --rule NAME   (its options: --rule-options KEY=VALUE)")
    return 0


def mark(name: str) -> str:
    """What the list adds to a rule's line."""
    from rulax.rules.registry import is_installed

    if name in INSTALLABLE:
        return " [installed]" if is_installed(name) else f" [not installed: rulax rules get {name}]"
    return " [default]" if name == DEFAULT_RULE else ""


def get_rule_command(values: dict[str, str]) -> int:
    """Entry point of `rulax rules get`."""
    # The name is checked first, without JAX.
    from rulax.rules.registry import RULES, UnknownRule

    config = assemble(GetRuleConfig, read_values(GetRuleConfig, values))
    if config.name not in INSTALLABLE:
        if not config.name:
            raise UserError("which rule? for example: rulax rules get disco103")
        if config.name not in RULES:
            raise UserError(str(UnknownRule(config.name)))
        raise UserError(f"rule '{config.name}' comes with rulax and needs no installing; rules to get: {', '.join(INSTALLABLE)}")
    from rulax.rules.pretrained import get_disco103  # with JAX

    try:
        path = get_disco103(config.from_ or None)
    except ValueError as error:
        raise UserError(str(error)) from error
    print(f"installed    {path}\nuse it       rulax train catch --rule {config.name}")
    return 0


def show(command: str, kind: str, entries: list[tuple[str, str]], wanted: str, others: bool = False) -> bool:
    """Names and summaries in two columns; whether there were any. None is a mistake, unless there are `others` to be shown."""
    chosen = [entry for entry in entries if wanted.lower() in " ".join(entry).lower()]
    if not chosen and others:
        return False
    if not chosen:
        # `rulax rules gte NAME` arrives here as a filter.
        known = [name for name, _ in entries] + (["get"] if command == "rules" else [])
        raise UserError(f"no {kind} contains '{wanted}'{suggestion(wanted, known, f'`rulax {command}` lists all')}")
    width = max(len(name) for name, _ in chosen)
    room = max(30, shutil.get_terminal_size().columns - width - 3)
    for name, summary in chosen:
        cut = summary if len(summary) <= room or not sys.stdout.isatty() else summary[: room - 1] + "…"
        print(f"{bold(f'{name:<{width}}')}   {cut}")
    return True


def bold(text: str) -> str:
    """In bold on a terminal."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text
