"""`rulax envs`, `rules`, `runs` and `board`: what there is. No JAX, so that the answer is immediate."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from rulax.commands.listing.settings import BoardConfig, EnvsConfig, GetRuleConfig, RulesConfig, RunsConfig
from rulax.commands.listing.setup import INSTALLABLE, check_columns, has_values, list_runs, notes, ordered
from rulax.commands.listing.show import described, mark, show_families, show_ids, show_names, show_runs, write_csv
from rulax.commands.settings import configured
from rulax.errors import UserError


def envs_command(values: dict[str, str]) -> int:
    """Entry point of `rulax envs`."""
    from rulax.envs.catalogue import adapter_families
    from rulax.envs.registry import list_environments

    wanted = configured(EnvsConfig, values).filter
    # Searched by name and description: whether it is installed, and the extra, are not what a filter is about.
    families = [each for each in adapter_families().values() if wanted.lower() in " ".join(described(each)[::3]).lower()]
    entries = [(entry.name, entry.summary) for entry in list_environments()]
    if show_names("envs", "environment", entries, wanted, bool(families)) and families:
        print()
    show_families(families)
    if wanted in adapter_families():
        show_ids(adapter_families()[wanted])
    print("\nuse one with: rulax train NAME   (its options: --env-options KEY=VALUE)")
    if families:
        print("install an extra with: pip install 'rulax[EXTRA]'")
    return 0


def rules_command(values: dict[str, str]) -> int:
    """Entry point of `rulax rules`."""
    from rulax.rules.registry import list_rules

    entries = [(name, summary + mark(name)) for name, summary in list_rules().items()]
    show_names("rules", "rule", entries, configured(RulesConfig, values).filter)
    print("\nuse one with: rulax train catch --rule NAME   (its options: --rule-options KEY=VALUE)")
    return 0


def get_rule_command(values: dict[str, str]) -> int:
    """Entry point of `rulax rules get`."""
    # The name is checked first, without JAX.
    from rulax.rules.registry import RULES, UnknownRule

    config = configured(GetRuleConfig, values)
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


def runs_command(values: dict[str, Any]) -> int:
    """Entry point of `rulax runs`."""
    config = configured(RunsConfig, values)
    entries = list_runs(Path(config.folder))
    check_columns([*config.filter, config.sort])
    entries = ordered([entry for entry in entries if has_values(entry, config.filter)], config.sort, config.reverse)
    if config.csv:
        write_csv(Path(config.csv), entries)
        print(f"{len(entries)} runs in {config.csv}")
        return 0
    show_runs(entries)
    for note in notes(entries, config.sort):
        print(f"note: {note}")
    return 0


def board_command(values: dict[str, Any]) -> int:
    """Entry point of `rulax board`: TensorBoard until Ctrl-C."""
    config = configured(BoardConfig, values)
    if not Path(config.folder).is_dir():
        raise UserError(f"{config.folder} is no folder; `rulax board DIR` shows the runs in DIR")
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError("rulax board needs TensorBoard, which is not installed: pip install 'rulax[board]'")
    # As a module of this interpreter: its script may not be on the path, or belong to another environment.
    line = [sys.executable, "-m", "tensorboard.main", "--logdir", config.folder, "--port", str(config.port)]
    return subprocess.run(line, check=False).returncode
