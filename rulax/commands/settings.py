"""What every command's settings have in common: fields that several of them share, and how given values become a configuration.

One dataclass per command, in the `settings.py` of its folder; flags, presets and Python keywords are all made from its fields.
Precedence: what the rule recommends < preset < flags. No JAX here: `--help` reads this file.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from rulax.commands.fields import field_types
from rulax.errors import UserError, did_you_mean, matches, suggestion
from rulax.own import is_own
from rulax.settings import STEP_LIMIT, Learning, Network, check_bounds, earlier_names, setting
from rulax.text import convert

Config = TypeVar("Config")
HOST = "environments that step on the CPU, such as Gymnasium's"
SPREAD = "several devices and hosts"
AGENTS: tuple[type, ...] = (Learning, Network)  # overridable field by field; None means what the rule recommends
LARGEST_SEED = 2**32 - 1
# Where a run goes, not what it is; overrides are resolved, and so are ranges, into options of the environment.
WHERE = ("mesh", "hosts", "coordinator", "process_id", "num_processes")
NOT_RECORDED = ("out", "resume", "preset", "quiet", "overrides", "randomise", *WHERE)


# -- fields that several commands share ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Computing:
    """Commands that compute something."""

    platform: Literal["auto", "cpu", "gpu", "tpu"] = setting("auto", "run", on_resume=True)
    """Where to compute; auto takes an accelerator if there is one."""


@dataclasses.dataclass(frozen=True)
class Writing(Computing):
    """Commands that leave a folder."""

    out: str = setting("", "run", metavar="DIR")
    """Folder to write to [default: a new one in runs/]."""
    quiet: bool = setting(False, "run", on_resume=True)
    """Show no progress and no table; print only the folder."""


@dataclasses.dataclass(frozen=True)
class Resumable(Writing):
    """Commands that can go on where they stopped."""

    resume: str = setting("", "run", metavar="DIR")
    """Go on with the run in this folder, with its settings; of these only {changeable} may change."""


@dataclasses.dataclass(frozen=True)
class Running(Resumable):
    """Commands that train for long and keep checkpoints."""

    seed: int = setting(0, "run", at_least=0, at_most=LARGEST_SEED)
    """Seed of all random numbers."""
    checkpoint_minutes: float = setting(5.0, "run", above=0, on_resume=True)
    """Minutes between checkpoints; there is always one at the start and one at the end."""
    checkpoints: int = setting(2, "run", at_least=1, on_resume=True)
    """How many of the last checkpoints to keep: should one turn out to be damaged, a run goes on from the one before."""
    precision: Literal["default", "float32", "bfloat16"] = setting("default", "run")
    """Precision of matrix products."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """One computation on many devices and hosts, for commands that train members side by side (docs/scaling.md)."""

    mesh: tuple[str, ...] = setting((), SPREAD, on_resume=True, metavar="AXIS=N")
    """Devices along the axis of the members (discover: agents, train: seeds) and along streams, for example agents=4,streams=2
    [default: as many as divide the members]."""
    hosts: Literal["none", "auto"] = setting("none", SPREAD, on_resume=True)
    """With auto this process is one of several that compute together, as SLURM, Open MPI or a TPU pod started them."""
    coordinator: str = setting("", SPREAD, on_resume=True, metavar="HOST:PORT")
    """Where nothing detects it: the address of the first of several processes, which is given to all of them."""
    process_id: int = setting(0, SPREAD, at_least=0, on_resume=True, metavar="I")
    """Which of them this process is, counted from 0."""
    num_processes: int = setting(1, SPREAD, at_least=1, on_resume=True, metavar="N")
    """How many there are."""


@dataclasses.dataclass(frozen=True)
class HostLoop:
    """The loop around environments that step on the CPU, for commands that train agents in them."""

    overlap: Literal["auto", "on", "off"] = setting("auto", HOST)
    """Act while learning, with parameters that are one update old; auto does so where experience is replayed."""
    replay_limit: str = setting("", HOST, metavar="BYTES", on_resume=True)
    """Largest replay buffer of all seeds together, for example 4GiB [default: 80 % of the memory that is free]."""
    most_restarts: int = setting(10, HOST, at_least=0, on_resume=True)
    """How often the environment of one stream may raise an error and be restarted before the run gives up."""
    step_limit: float = setting(STEP_LIMIT, HOST, at_least=0, on_resume=True, metavar="SECONDS")
    """How long one step or reset of one stream may take; 0 means for ever."""

    def host_only(self) -> list[str]:
        """Those that were given and would do nothing in an environment that runs on the device."""
        return [name for name, given in (("overlap", self.overlap != "auto"), ("replay_limit", self.replay_limit)) if given]


# -- from given values to a configuration --------------------------------------------------------------------------------------


def parts_of(cls: type) -> tuple[type, ...]:
    """The dataclasses whose fields this command may override, such as Learning and Network."""
    return tuple(part for field in dataclasses.fields(cls) for part in field.metadata.get("settings", ()))


def settings_keys(cls: type) -> set[str]:
    """The names of those fields."""
    return {field.name for part in parts_of(cls) for field in dataclasses.fields(part)}


def known_keys(cls: type) -> dict[str, Any]:
    """Every name that a preset, a flag or a keyword may set for this command, with its type."""
    # The field `overrides` itself is no setting: users name what is inside of it, never the dictionary.
    own = {field.name: field_types(cls)[field.name] for field in dataclasses.fields(cls) if not field.metadata.get("settings")}
    return own | {name: hint for part in parts_of(cls) for name, hint in field_types(part).items()}


def read_values(cls: type, values: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Values by name, checked and converted; an unknown name is an error that names the nearest known one.

    `source` is the file that they come from; without one they come from a user, who gets a note where a name has changed.
    """
    known, earlier = known_keys(cls), earlier_names(cls, *parts_of(cls))
    where = f"{source}: " if source else ""
    result = {}
    for name, value in values.items():
        if name in earlier:
            # A file from an earlier version is not the user's mistake, and they could not fix a run folder anyway.
            if not source:
                print(f"note: the setting {name} is called {earlier[name]} now", file=sys.stderr)
            name = earlier[name]
        if name not in known:
            raise UserError(f"{where}unknown setting '{name}'{suggestion(name, known, 'see docs/command_line.md for all of them')}")
        # None is how Python callers leave a keyword out; it must not displace a preset or a default.
        if value is not None:
            result[name] = convert(f"{where}{name}", known[name], value)
    return result


def assemble(cls: type[Config], given: Mapping[str, Any]) -> Config:
    """A configuration from converted values: the command's own fields, and what overrides settings of agents."""
    # Kept apart and unresolved, because what they override, the rule's recommendation, is only known once the rule is made.
    overrides = {name: value for name, value in given.items() if name in settings_keys(cls)}
    own: dict[str, Any] = {name: value for name, value in given.items() if name not in overrides}
    return cls(**own, **({"overrides": overrides} if parts_of(cls) else {}))


def configured(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """A configuration from what the user gave, its numbers checked: for commands that take neither presets nor recommendations."""
    config = assemble(cls, read_values(cls, values))
    check_bounds(config)
    return config


def recorded(config: Any, *left_out: str) -> dict[str, Any]:
    """The settings that `config.json` keeps; those of agents are kept beside them."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in (*NOT_RECORDED, *left_out)}


def override(settings: Config, overrides: Mapping[str, Any]) -> Config:
    """A copy of Learning, Network or Discovery with those overrides that belong to it."""
    # One mapping of overrides serves several dataclasses, so names that belong to another one are expected here.
    own = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    return dataclasses.replace(settings, **{name: value for name, value in overrides.items() if name in own})  # type: ignore[type-var]


def check_suite(spec: str, suites: Iterable[str]) -> None:
    """Refuse a misspelt suite; whatever else is unknown is left to the registry of environments, which knows more about those."""
    # Only where a word has to be recognised, because the registry lists what is installed.
    from rulax.envs.registry import list_environments

    suites, word = list(suites), spec.partition(":")[0]
    known = [*suites, *(entry.name for entry in list_environments())]
    # A list, a slash or a capital letter is clearly meant as an environment: gymnax/CartPole-v1. `Grids` is still a suite.
    other = "," in spec or "/" in word or is_own(spec) or not (word.islower() or word.lower() in suites)
    nearest = [] if word in known or other else matches(word, known, 1)
    if nearest and nearest[0] in suites:
        listed = f"suites: {', '.join(suites)}; `rulax envs` lists environments"
        raise UserError(f"unknown suite or environment '{word}'{did_you_mean(repr(nearest[0]))} ({listed})")


# -- settings that must fit together --------------------------------------------------------------------------------------------


def check_settings(learning: Learning, network: Network) -> None:
    """What a trainer is about to be built from: each number, and numbers that must fit together."""
    # Single numbers first: the checks below divide by them and would fail with another error.
    check_bounds(learning)
    check_bounds(network)
    if learning.schedule.endswith(".json"):
        raise UserError(f"only rulax train follows a schedule from a file ({learning.schedule}); choose constant, linear or cosine")
    size, name = (learning.batch, "batch") if learning.batch else (learning.streams, "streams")
    if learning.burn_in >= learning.unroll:
        raise UserError(f"burn_in ({learning.burn_in}) must leave something of a trajectory of {learning.unroll} steps (unroll)")
    if learning.shuffle == "steps":
        if network.core != "none":
            raise UserError(f"shuffle steps takes single steps out of their order, in which the core {network.core} remembers")
        steps = size * (learning.unroll - learning.burn_in)
        if steps % learning.minibatches:
            raise UserError(f"the steps of a batch ({steps}) must be divisible by minibatches ({learning.minibatches})")
    elif size % learning.minibatches:
        finer = f"{name} ({size}) must be divisible by minibatches ({learning.minibatches})"
        raise UserError(finer if network.core != "none" else f"{finer}; --shuffle steps splits them further")
    if learning.normalise_observations and network.core == "episodic_lstm":
        raise UserError("normalise_observations lets contexts drift, by which the core episodic_lstm reads its table; leave it out")
    if learning.burn_in and network.core == "none":
        raise UserError("burn_in refreshes the memory of a recurrent agent, and this one has none: --core lstm, or leave it out")
    # Fresh trajectories come from the current unroll, of which each stream gives one; replay cannot make up for missing ones.
    fresh = size - round(size * learning.replay)
    if fresh > learning.streams:
        raise UserError(
            f"batch ({size}) with replay {learning.replay:g} needs {fresh} fresh trajectories per update, but there are only "
            f"{learning.streams} streams"
        )
    # What the buffer really holds: the capacity is rounded up to whole rounds of streams, so a warm-up up to that is fine.
    held = -(-learning.capacity // learning.streams) * learning.streams
    if learning.replay > 0 and learning.warmup > held:
        raise UserError(f"warmup ({learning.warmup}) must not exceed the capacity of the replay buffer ({held})")
