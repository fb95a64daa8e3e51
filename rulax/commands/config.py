"""What a user may choose: one dataclass per command. Flags, presets and Python keywords are all made from these fields.

Precedence: what the rule recommends < preset < flags. No JAX here: `--help` reads this file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rulax.commands.fields import convert, field_types
from rulax.errors import UserError, suggestion
from rulax.records import folder as folders
from rulax.settings import Learning, Network

DEFAULT_RULE = "rulax5"
PRESETS = Path(__file__).parent / "presets"
EXAMPLE = "example"  # in a preset that leaves the environment to the user: one that it is for, named where none was given
SUITES = "discover"  # the folder of presets that only `rulax discover` understands
HOST = "environments that step on the CPU, such as Gymnasium's"
HOST_MAY_CHANGE = ("replay_limit", "most_restarts")  # by whoever resumes; overlap decides which parameters act, so the result
SETTINGS: tuple[type, ...] = (Learning, Network)  # overridable field by field; None means what the rule recommends


def setting(default: Any, group: str, **metadata: Any) -> Any:
    """A field with the heading that its flag stands under in `--help`."""
    return dataclasses.field(default=default, metadata={"group": group, **metadata})


@dataclasses.dataclass(frozen=True)
class HostLoop:
    """The loop around environments that step on the CPU: the same flags in every command that trains agents."""

    overlap: Literal["auto", "on", "off"] = setting("auto", HOST)
    """Act while learning, with parameters that are one update old; auto does so where experience is replayed."""
    replay_limit: str = setting("", HOST, metavar="BYTES")
    """Largest replay buffer of all seeds together, for example 4GiB [default: 80 % of the memory that is free]."""
    most_restarts: int = setting(10, HOST)
    """How often the environment of one stream may raise an error and be started anew before the run gives up."""

    def host_only(self) -> list[str]:
        """Those that were given and would do nothing in an environment that runs on the device."""
        return [name for name, default in (("overlap", "auto"), ("replay_limit", "")) if getattr(self, name) != default]


@dataclasses.dataclass(frozen=True)
class TrainConfig(HostLoop):
    """Train agents on one environment with one rule."""

    env: str = setting("", "what to train", positional=True, metavar="ENV")
    """Environment, for example catch; `rulax envs` lists them all."""
    rule: str = setting(DEFAULT_RULE, "what to train", metavar="NAME|FILE")
    """Update rule, by name (`rulax rules` lists them all) or from a rule file."""
    steps: int = setting(500_000, "what to train")
    """Environment steps per seed; 200k, 1e6 and 1_000_000 are understood [default: what the rule recommends]."""
    seeds: int = setting(1, "what to train")
    """Agents trained side by side, each with its own randomness."""
    seed: int = setting(0, "what to train")
    """Where all randomness starts."""
    task: Literal["default", "random"] = setting("default", "what to train")
    """Whether every seed gets the environment's own task or one drawn at random."""
    env_options: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"group": "what to train", "metavar": "KEY=VALUE"}
    )
    """Options of the environment, for example rows=8 columns=8."""
    rule_options: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"group": "what to train", "metavar": "KEY=VALUE"}
    )
    """Options of the rule, for example discount=0.95."""
    preset: str = setting("", "run", metavar="NAME|FILE")
    """Settings from a YAML or JSON file, or one of the presets named below; flags win over it."""
    out: str = setting("", "run", metavar="DIR")
    """Run folder [default: runs/ENV-RULE-NUMBER]."""
    resume: str = setting("", "run", metavar="DIR")
    """Go on with the run in this folder; only --steps, --checkpoint-minutes, --platform, --replay-limit, --most-restarts and
    --quiet may be given too."""
    wandb: str = setting("", "run", metavar="PROJECT")
    """Log to this project of Weights & Biases too; needs `pip install 'rulax[wandb]'`."""
    log_every: int = setting(0, "run")
    """Environment steps per point of the curve; 0 means a hundredth of the run."""
    checkpoint_minutes: float = setting(5.0, "run")
    """Minutes between checkpoints; there is always one at the start and one at the end."""
    platform: Literal["auto", "cpu", "gpu", "tpu"] = setting("auto", "run")
    """Where to compute; auto takes an accelerator if there is one."""
    precision: Literal["default", "float32", "bfloat16"] = setting("default", "run")
    """Precision of matrix products."""
    quiet: bool = setting(False, "run")
    """Show no progress and no table; print only the run folder."""
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict, metadata={"settings": SETTINGS})
    """Fields of Learning and Network that differ from what the rule recommends."""


@dataclasses.dataclass(frozen=True)
class BenchTrainConfig:
    """Measure how fast training is: updates and environment steps per second, compile time, memory."""

    rule: str = setting("disco", "what to measure", metavar="NAME")
    """Update rule; actor_critic and ppo are timed with their own settings, any other with the preset reference-catch: the default,
    random weights of the sizes of Disco103, costs what Disco103 costs."""
    env: str = setting("", "what to measure", metavar="ENV")
    """Environment [default: what the preset names, else catch]."""
    seeds: int = setting(1, "what to measure")
    """Agents trained side by side."""
    actions: int = setting(0, "what to measure")
    """Actions to choose from, if more than the environment has: the others do what its last one does [0: its own]."""
    env_options: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"group": "what to measure", "metavar": "KEY=VALUE"}
    )
    """Options of the environment."""
    rule_options: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"group": "what to measure", "metavar": "KEY=VALUE"}
    )
    """Options of the rule."""
    preset: str = setting("", "run", metavar="NAME|FILE")
    """Settings from a YAML or JSON file, or one of the presets named below; flags win over it."""
    seconds: float = setting(10.0, "run")
    """How long to measure, after compiling and warming up."""
    platform: Literal["auto", "cpu", "gpu", "tpu"] = setting("auto", "run")
    """Where to compute; auto takes an accelerator if there is one."""
    json: bool = setting(False, "run")
    """Print one JSON object instead of a table."""
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict, metadata={"settings": SETTINGS})
    """Fields of Learning and Network that differ from what the rule recommends."""


@dataclasses.dataclass(frozen=True)
class GetRuleConfig:
    """Install a rule that does not come with the package."""

    name: str = setting("", "what to install", positional=True, metavar="NAME")
    """Rule to install: disco103."""
    from_: str = setting("", "what to install", metavar="FILE")
    """Copy of its file on this machine, for example disco_103.npz; without it the file is downloaded."""


@dataclasses.dataclass(frozen=True)
class ListConfig:
    """List what there is, one line each."""

    filter: str = setting("", "what to list", positional=True, metavar="FILTER")
    """Show only names or summaries that contain this text."""


@dataclasses.dataclass(frozen=True)
class RunsConfig:
    """List the runs in a folder, with their key numbers."""

    folder: str = setting("runs", "what to list", positional=True, metavar="DIR")
    """Folder that holds run folders, at any depth."""
    filter: dict[str, Any] = dataclasses.field(default_factory=dict, metadata={"group": "what to list", "metavar": "KEY=VALUE"})
    """Show only runs with these values, for example rule=ppo kind=train finished=no; text matches where it is contained."""
    sort: str = setting("folder", "what to list", metavar="KEY")
    """Column to sort by."""
    reverse: bool = setting(False, "what to list")
    """The largest first."""
    csv: str = setting("", "what to list", metavar="FILE")
    """Write all columns to this file instead of showing some."""


@dataclasses.dataclass(frozen=True)
class BoardConfig:
    """Open TensorBoard on the runs in a folder."""

    folder: str = setting("runs", "what to show", positional=True, metavar="DIR")
    """Folder that holds run folders, at any depth."""
    port: int = setting(6006, "what to show")
    """Port to serve on."""


def known_keys(cls: type) -> dict[str, Any]:
    """Every name that a preset, a flag or a keyword may set for this command, with its type."""
    keys: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.metadata.get("settings"):
            for part in field.metadata["settings"]:
                keys.update(field_types(part))
        else:
            keys[field.name] = field_types(cls)[field.name]
    return keys


def settings_keys(cls: type) -> set[str]:
    """The names that this command may override in dataclasses of settings, such as Learning and Network."""
    parts = [part for field in dataclasses.fields(cls) for part in field.metadata.get("settings", ())]
    return {field.name for part in parts for field in dataclasses.fields(part)}


def read_values(cls: type, values: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Values by name, checked and converted; an unknown name is an error that names the nearest known one."""
    known = known_keys(cls)
    where = f"{source}: " if source else ""
    result = {}
    for name, value in values.items():
        if name not in known:
            raise UserError(f"{where}unknown setting '{name}'{suggestion(name, known, 'see docs/command_line.md for all of them')}")
        if value is not None:
            result[name] = convert(f"{where}{name}", known[name], value)
    return result


def build(cls: type, values: Mapping[str, Any]) -> Any:
    """A configuration from the values a user gave and the preset they named, if any."""
    given = read_values(cls, values)
    if given.get("preset"):
        # One preset serves every command: what only another command understands is left to it.
        others = (known_keys(TrainConfig).keys() | {EXAMPLE}) - known_keys(cls).keys()
        settings = {name: value for name, value in load_preset(given["preset"]).items() if name not in others}
        preset = read_values(cls, settings, f"preset {given['preset']}")
        if "preset" in preset or "resume" in preset:
            raise UserError(f"preset {given['preset']}: a preset cannot name another preset or a run to resume")
        given = merge(preset, given)
    if cls is TrainConfig and "steps" not in given:
        from rulax.rules.registry import recommended_steps  # here, because most commands do not ask

        given["steps"] = recommended_steps(given.get("rule", DEFAULT_RULE))
    return assemble(cls, given)


def assemble(cls: type, given: dict[str, Any]) -> Any:
    """A configuration from checked values: the command's own fields, and what overrides settings."""
    overrides = {name: value for name, value in given.items() if name in settings_keys(cls)}
    own = {name: value for name, value in given.items() if name not in overrides}
    return cls(**own, overrides=overrides) if "overrides" in field_types(cls) else cls(**own)


def merge(preset: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What was given wins. Options of an environment or a rule belong to it: naming another one drops the preset's.

    Where a preset names none (ProcGen has 16 games), its options are for whichever is named.
    """
    merged = {**preset, **given}
    for owner in ("env", "rule"):
        options = f"{owner}_options"
        meant = owner not in preset or given.get(owner, preset[owner]) == preset[owner]
        kept = preset.get(options, {}) if meant else {}
        merged[options] = {**kept, **given.get(options, {})}
    return merged


def preset_names(suites: bool = False) -> dict[str, str]:
    """The presets that come with the package, each with the first line of its file; a folder's go by `folder/name`.

    Those of `rulax discover` are called suites, and no other command's business.
    """
    root = PRESETS / SUITES if suites else PRESETS
    paths = sorted(root.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
    names = {path: path.relative_to(root).with_suffix("").as_posix() for path in paths}
    names = {path: name for path, name in names.items() if not name.startswith(f"{SUITES}/")}
    return {name: path.read_text().partition("\n")[0].lstrip("# ").strip() for path, name in names.items()}


def load_preset(name: str) -> dict[str, Any]:
    """The settings in a preset, by name or by file. The `config.json` of an earlier run is a preset too."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
        path = PRESETS / f"{name}.yaml"
        if not path.exists():
            known = preset_names()
            if name in preset_names(suites=True):
                raise UserError(f"'{name}' is a suite, not a preset: rulax discover {name}")
            raise UserError(f"unknown preset '{name}'{suggestion(name, known, 'known: ' + ', '.join(known))}")
    import yaml  # here, because most commands never read a preset

    try:
        values = yaml.safe_load(path.read_text())  # JSON is YAML
    except OSError as error:
        raise UserError(f"preset {name} cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        raise UserError(f"preset {name} is not valid YAML or JSON{'' if line is None else f' (line {line + 1})'}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"preset {name} must hold settings by name, such as `learning_rate: 1e-3`")
    if "versions" in values:
        parts = ("settings", "discovery", "learning", "network")
        record = folders.complete(values)
        return {name: value for part in parts for name, value in record.get(part, {}).items()}
    return values
