"""What a user may choose for `rulax discover`, and how a suite becomes families of environments. No JAX here: `--help` reads this
file.

Precedence: suite < preset file < flags. Environments instead of a suite take the settings of the suite `grids`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

from rulax.commands.config import SUITES, assemble, load_preset, preset_names, read_values, setting
from rulax.commands.fields import to_options
from rulax.discovery.settings import Discovery
from rulax.errors import UserError, nearest
from rulax.metanet.sizes import Sizes
from rulax.settings import Learning, Network

BASE = "grids"  # whose settings serve environments that no suite names
PARTS: tuple[type, ...] = (Discovery, Learning, Network)


@dataclasses.dataclass(frozen=True)
class DiscoverConfig:
    """Discover an update rule in one or several families of environments."""

    suite: str = setting("", "what to discover", positional=True, metavar="SUITE")
    """One of the suites named below, or environments separated by commas, for example catch:rows=5,columns=5,grid/delayed."""
    steps: int = setting(1000, "what to discover")
    """Meta-steps [default: what the suite says]."""
    seed: int = setting(0, "what to discover")
    """Where all randomness starts."""
    envs: tuple[str, ...] = setting((), "what to discover", metavar="ENV")
    """Families to discover in: environments, each with options if need be, as in catch:rows=5,columns=5."""
    validation: tuple[str, ...] = setting((), "what to discover", metavar="ENV")
    """Families that no agent of discovery lives in; the best rule is the one that does best there."""
    init: str = setting("", "what to discover", metavar="NAME|FILE")
    """Rule to start from, for example disco103 or a rule file, which then sets the sizes [default: a random one]."""
    rule_options: dict[str, Any] = dataclasses.field(
        default_factory=dict, metadata={"group": "what to discover", "metavar": "KEY=VALUE"}
    )
    """Sizes, switches and constants of the rule, for example prediction_size=32 hidden=64."""
    evaluate_every: int = setting(0, "evaluation")
    """Meta-steps between evaluations on fresh agents; 0 means a tenth of the run; there is one at the start and one at the end."""
    evaluation_seeds: int = setting(4, "evaluation")
    """Fresh agents per family."""
    evaluation_updates: int = setting(200, "evaluation")
    """Updates that they live."""
    memory_limit: float = setting(0.0, "run")
    """Gigabytes that discovery may take; 0 means 80 % of what is free."""
    most_bad: int = setting(100, "run")
    """Meta-gradients that may fail to be numbers before the run stops; each is left out and counted."""
    preset: str = setting("", "run", metavar="FILE")
    """Settings from a YAML or JSON file, on top of the suite's; flags win over it."""
    out: str = setting("", "run", metavar="DIR")
    """Run folder [default: runs/discover-SUITE-NUMBER]."""
    resume: str = setting("", "run", metavar="DIR")
    """Go on with the run in this folder; of other flags only --steps, --most-bad, --checkpoint-minutes, --platform, --quiet."""
    checkpoint_minutes: float = setting(3.0, "run")
    """Minutes between checkpoints; there is always one at the start, after every evaluation and at the end."""
    platform: Literal["auto", "cpu", "gpu", "tpu"] = setting("auto", "run")
    """Where to compute; auto takes an accelerator if there is one."""
    precision: Literal["default", "float32", "bfloat16"] = setting("default", "run")
    """Precision of matrix products."""
    quiet: bool = setting(False, "run")
    """Show no progress and no table; print only the run folder."""
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict, metadata={"settings": PARTS, "source": "the suite says"})
    """Fields of Discovery, Learning and Network that differ from what the suite says."""


class Spec(NamedTuple):
    """One family as a user wrote it."""

    name: str  # as in `catch:rows=5,columns=5`
    env: str
    options: dict[str, Any]


# -- from what was given to a configuration ------------------------------------------------------------------------------------


def build_discover(values: dict[str, Any]) -> DiscoverConfig:
    """The suite, then the preset file, then what the user gave."""
    given = read_values(DiscoverConfig, values)
    layers = [given]
    if given.get("preset"):
        layers.insert(0, from_file(given["preset"]))
    wanted = next((layer["suite"] for layer in reversed(layers) if layer.get("suite")), "")
    named = any(layer.get("envs") for layer in layers)
    layers.insert(0, suite_values(wanted, named))
    merged = {name: value for layer in layers for name, value in layer.items()}
    merged["rule_options"] = {name: value for layer in layers for name, value in layer.get("rule_options", {}).items()}
    if merged.get("init"):
        # The sizes are the file's. Those of a suite step aside; those that the user asks for are refused when the rule is made.
        sizes = {field.name for field in dataclasses.fields(Sizes)} - set(given.get("rule_options", {}))
        merged["rule_options"] = {name: value for name, value in merged["rule_options"].items() if name not in sizes}
    merged |= {"suite": wanted, "envs": joined(merged.get("envs", ())), "validation": joined(merged.get("validation", ()))}
    config = assemble(DiscoverConfig, merged)
    return config if config.evaluate_every else dataclasses.replace(config, evaluate_every=max(1, -(-config.steps // 10)))


def from_file(name: str) -> dict[str, Any]:
    """A preset file; the `config.json` of an earlier run is one too."""
    values = read_values(DiscoverConfig, load_preset(name), f"preset {name}")
    if "preset" in values or "resume" in values:
        raise UserError(f"preset {name}: a preset cannot name another preset or a run to resume")
    return values


def suite_values(suite: str, envs_named: bool) -> dict[str, Any]:
    """The settings of a suite; of environments, or of none, those of the suite that serves as base."""
    suites = preset_names(suites=True)
    if suite in suites:
        return read_values(DiscoverConfig, load_preset(f"{SUITES}/{suite}"), f"suite {suite}")
    base = read_values(DiscoverConfig, load_preset(f"{SUITES}/{BASE}"), f"suite {BASE}")
    base.pop("validation", None)  # it was chosen for the environments of that suite
    if envs_named:
        if suite:
            raise UserError(
                f"'{suite}' is no suite ({', '.join(suites)}), and --envs names environments already; give one of the two"
            )
        return base
    if not suite:
        raise UserError(f"discover in which environments? for example: rulax discover {BASE} (suites: {', '.join(suites)})")
    from rulax.envs.registry import list_environments

    word = split_families((suite,))[0].partition(":")[0]
    environments = {entry.name for entry in list_environments()}
    match = nearest(word, suites)
    if word not in environments and match and "," not in suite and "/" not in word:
        raise UserError(f"unknown suite or environment '{word}'; did you mean '{match}'?")
    return base | {"envs": (suite,)}


def joined(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Families, each whole again: what reads a list of words has split their options at the commas."""
    return tuple(split_families(parts))


# -- families ------------------------------------------------------------------------------------------------------------------


def split_families(parts: tuple[str, ...]) -> list[str]:
    """`("catch:rows=5", "columns=5", "grid/delayed")` -> `["catch:rows=5,columns=5", "grid/delayed"]`.

    A piece with `=` and without `:` is an option of the environment before it; commas in brackets separate nothing.
    """
    families: list[str] = []
    for piece in split_commas(",".join(parts)):
        if "=" in piece and ":" not in piece.partition("=")[0] and families:
            families[-1] += f",{piece}" if ":" in families[-1] else f":{piece}"
        elif piece:
            families.append(piece)
    return families


def split_commas(text: str) -> list[str]:
    """Pieces between the commas that stand in no bracket: `kinds=[[1,0],[2,1]],height=5` has two."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces]


def read_family(text: str) -> Spec:
    """`catch:rows=5,columns=5` as an environment with options."""
    env, colon, rest = text.partition(":")
    if colon and "=" not in rest:
        return Spec(text, text, {})  # as Gymnasium writes `package:ID`
    pieces = [piece for piece in split_commas(rest) if piece]
    return Spec(text, env, to_options(f"'{env}'", pieces) if colon else {})
