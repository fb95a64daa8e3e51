"""Preset files: settings by name, in YAML or JSON. Those of the package stand in the folder `presets`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rulax.commands.settings import read_values
from rulax.errors import UserError, suggestion
from rulax.files.reading import MOST_BYTES, MOST_YAML, blamed, misfit, parse_json, parse_yaml, read_bytes
from rulax.own import consent
from rulax.records import folder as folders
from rulax.records import provenance
from rulax.records.earlier import PARTS, complete

PRESETS = Path(__file__).parent / "presets"
SUITES, STUDIES = "discover", "study"  # the folders of files that only `rulax discover` and `rulax study` understand
EXAMPLE = "example"  # in a preset that leaves the environment to the user: one that it is for, named where none was given


def preset_names(suites: bool = False) -> dict[str, str]:
    """The presets that come with the package, each with the first line of its file; a folder's go by `folder/name`.

    Those of `rulax discover` are called suites and are no other command's business.
    """
    if suites:
        return names_in(SUITES)
    return {name: about for name, about in names_in("").items() if not name.startswith((f"{SUITES}/", f"{STUDIES}/"))}


def names_in(folder: str) -> dict[str, str]:
    """The files of one folder of the package, each with its first line."""
    root = PRESETS / folder
    # Shallow ones first, so that those of a folder stand together below the ones with plain names.
    paths = sorted(root.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
    names = {path: path.relative_to(root).with_suffix("").as_posix() for path in paths}
    return {name: path.read_text().partition("\n")[0].lstrip("# ").strip() for path, name in names.items()}


def load_preset(name: str, what: str = "preset") -> dict[str, Any]:
    """The settings in a preset, by name or by file. The `config.json` of an earlier run is a preset too."""
    path = Path(name)
    # A path is recognised by its ending alone, so a missing file is reported as unreadable and not as an unknown preset.
    if path.suffix not in (".yaml", ".yml", ".json"):
        path = PRESETS / f"{name}.yaml"
        if not path.exists():
            known = preset_names()
            # A likely slip, since both lie in the same folder, and no spelling match would lead to the right command.
            if name in preset_names(suites=True):
                raise UserError(f"'{name}' is a suite, not a preset: rulax discover {name}")
            raise UserError(f"unknown preset '{name}'{suggestion(name, known, 'known: ' + ', '.join(known))}")
    values = read_settings(path, f"{what} {name}")
    if not path.is_relative_to(PRESETS) and not (isinstance(values, dict) and provenance.is_ours(values)):
        consent.doubt(values, f"{what} {name}")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{what} {name} must hold settings by name, such as `learning_rate: 1e-3`")
    # Only a config.json records versions; from such a file the settings are collected out of its parts, under today's names.
    if "versions" not in values:
        return values
    if problem := misfit(values, folders.Config):
        raise UserError(f"{what} {name} cannot be read: {problem}")
    with blamed(f"{what} {name}"):
        record = complete(values)
    return {name: value for part in ("settings", *PARTS) for name, value in record.get(part, {}).items()}


def read_settings(path: Path, what: str) -> Any:
    """The content of a file in YAML or JSON."""
    try:
        data = read_bytes(path, MOST_BYTES if path.suffix == ".json" else MOST_YAML)
    except UserError as error:
        raise UserError(f"{what} cannot be read: {str(error).removeprefix(f'{path} cannot be read: ')}") from None
    try:
        return parse_json(data) if path.suffix == ".json" else parse_yaml(data)
    except ValueError as error:
        raise UserError(f"{what} is not valid YAML or JSON: {error}") from None


def read_preset(cls: type, name: str, ignored: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A preset's settings for one command, converted; `ignored` are those that only another command understands."""
    # Dropped before reading, which would call them unknown; all that is not listed still has to be known.
    values = {key: value for key, value in load_preset(name).items() if key not in ignored}
    preset = read_values(cls, values, f"preset {name}")
    # Chains of presets would need an order of precedence of their own, and could be circular.
    if "preset" in preset or "resume" in preset:
        raise UserError(f"preset {name}: a preset cannot name another preset or a run to resume")
    return preset


def merge(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given wins. Options of an environment or a rule belong to it: naming another one drops the preset's.

    Where a preset names none (ProcGen has 16 games), its options are for whichever is named.
    """
    merged = {**preset, **given}
    for owner in ("env", "rule"):
        options = f"{owner}_options"
        # Options such as rows=8 are wrong for another environment, and would be refused there with an error about something that
        # the user never wrote.
        meant = owner not in preset or given.get(owner, preset[owner]) == preset[owner]
        kept = preset.get(options, {}) if meant else {}
        merged[options] = {**kept, **given.get(options, {})}
    return merged
