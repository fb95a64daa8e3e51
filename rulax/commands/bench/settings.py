"""What a user may choose for `rulax bench train` and `rulax bench discover`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from rulax.commands.names import take_options
from rulax.commands.preset_files import EXAMPLE, merge, read_preset
from rulax.commands.settings import AGENTS, Computing, assemble, known_keys, read_values
from rulax.commands.train.settings import TrainConfig
from rulax.settings import setting

WHAT = "what to measure"
OWN_SETTINGS = ("actor_critic", "ppo")  # timed as they are recommended; other rules in the setting of the reference
REFERENCE = "reference-catch"


@dataclasses.dataclass(frozen=True)
class BenchTrainConfig(Computing):
    """Measure the speed of training on this machine."""

    rule: str = setting("disco", WHAT, metavar="NAME")
    """Update rule; actor_critic and ppo are timed with their own settings, any other with the preset reference-catch: the default,
    random weights of the sizes of Disco103, costs what Disco103 costs."""
    env: str = setting("", WHAT, metavar="ENV")
    """Environment [default: what the preset names, else catch]."""
    seeds: int = setting(1, WHAT, at_least=1)
    """Agents trained side by side."""
    actions: int = setting(0, WHAT, at_least=0)
    """Actions to choose from, if more than the environment has: the others do what its last one does [0: its own]."""
    env_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the environment."""
    rule_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the rule."""
    preset: str = setting("", "run", metavar="NAME|FILE")
    """Settings from a YAML or JSON file, or one of the presets named below; flags win over it."""
    seconds: float = setting(10.0, "run", above=0)
    """How long to measure, after compiling and warming up."""
    json: bool = setting(False, "run")
    """Print one JSON object instead of a table."""
    overrides: dict[str, Any] = setting(dict, settings=AGENTS)
    """Fields of Learning and Network that differ from what the rule recommends."""


@dataclasses.dataclass(frozen=True)
class BenchDiscoverConfig(Computing):
    """Measure the speed and memory of a meta-step on this machine."""

    agents: int = setting(2, WHAT, at_least=1)
    """Agents."""
    inner: int = setting(2, WHAT, at_least=1)
    """Updates through which one meta-gradient reaches."""
    memory: Literal["plain", "mixed", "remat", "both", "segments"] = setting("plain", WHAT)
    """What the meta-gradient stores, see `rulax discover --help`."""
    agents_at_once: int = setting(0, WHAT, at_least=0)
    """Agents that are differentiated at the same time; 0 means all."""
    compile_only: bool = setting(False, WHAT)
    """Compile and report its cost without a meta-step, where memory would not suffice for one."""
    seconds: float = setting(20.0, "run", above=0)
    """How long to measure, after compiling and a first meta-step."""
    json: bool = setting(False, "run")
    """Print one JSON object instead of a table."""


def build_bench(values: Mapping[str, Any]) -> BenchTrainConfig:
    """A configuration from what the user gave; rules without settings of their own take those of the reference."""
    given = take_options(read_values(BenchTrainConfig, values))
    if not given.get("preset") and given.get("rule", BenchTrainConfig.rule) not in OWN_SETTINGS:
        # Time does not depend on the weights, so the default is a rule of Disco103's sizes that needs no file.
        given = {"rule": BenchTrainConfig.rule} | given | {"preset": REFERENCE}
    if given.get("preset"):
        # A preset is made for `train`; steps, for example, mean nothing to a benchmark and are no mistake.
        only_train = known_keys(TrainConfig).keys() - known_keys(BenchTrainConfig).keys()
        preset = read_preset(BenchTrainConfig, given["preset"], frozenset({EXAMPLE, *only_train}))
        given = merge(take_options(preset), given)
    return assemble(BenchTrainConfig, given | {"env": given.get("env") or "catch"})
