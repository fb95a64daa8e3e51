"""What a user may choose for `rulax discover`, and how a suite becomes families of environments. No JAX here: `--help` reads this
file.

Precedence: suite < preset file < flags. Environments instead of a suite take the settings of the suite `grids`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rulax.commands.discover.scale import complete, shrink, what_changed
from rulax.commands.names import split_specs
from rulax.commands.preset_files import SUITES as FOLDER
from rulax.commands.preset_files import load_preset, preset_names, read_preset
from rulax.commands.settings import HOST, Running, Spread, assemble, check_suite, read_values
from rulax.discovery.settings import Discovery
from rulax.envs.suites import SUITES
from rulax.errors import UserError
from rulax.rules.kinds import KINDS, check_kind, kind_in
from rulax.settings import STEP_LIMIT, Learning, Network, check_bounds, setting

DEFAULT = "disco"
BASE = "grids"  # whose settings serve environments that no suite names
PARTS: tuple[type, ...] = (Discovery, Learning, Network)
WHAT = "what to discover"


@dataclasses.dataclass(frozen=True)
class DiscoverConfig(Spread, Running):
    """Discover an update rule; leaves a run folder with the rule, its card, a page and checkpoint."""

    suite: str = setting("", WHAT, positional=True, metavar="SUITE")
    """One of the suites named below, or environments separated by commas, for example catch:rows=5,columns=5,grid/delayed."""
    scale: float = setting(1.0, WHAT, above=0, at_most=1, metavar="X")
    """Makes the suite's experiment smaller, its proportions kept: budgets, lifetimes and agents X times as many, networks X times
    the weights; what other flags say stays as it is [default: 1]."""
    steps: int = setting(1000, WHAT, at_least=1, on_resume=True)
    """Meta-steps [default: what the suite says]."""
    envs: tuple[str, ...] = setting((), WHAT, metavar="ENV")
    """Families to discover in: environments, each with options if need be, as in catch:rows=5,columns=5, or groups of them that
    rulax compare knows as suites, such as minatar."""
    validation: tuple[str, ...] = setting((), WHAT, metavar="ENV")
    """Families that no agent of discovery lives in; the best rule is the one that does best there."""
    rule: str = setting("", WHAT, metavar="KIND")
    """Kind of rule to discover: disco, targets from a meta-network, epg, a learned loss, lpg, a learned policy gradient, or lpo,
    a drift function that starts as PPO's [default: what --init or the suite says, else disco]."""
    init: str = setting("", WHAT, metavar="NAME|FILE")
    """Rule to start from, for example disco103 or a rule file, which then sets the sizes [default: a random one]."""
    rule_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Sizes, switches and constants of the rule, for example prediction_size=32 hidden=64."""
    evaluate_every: int = setting(0, "evaluation", at_least=0)
    """Meta-steps between evaluations on fresh agents; 0 means a tenth of the run; there is one at the start and one at the end."""
    evaluation_seeds: int = setting(4, "evaluation", at_least=1)
    """Fresh agents per family."""
    evaluation_updates: int = setting(200, "evaluation", at_least=1)
    """Updates of each of them."""
    memory_limit: float = setting(0.0, "run", at_least=0, on_resume=True)
    """Gigabytes that discovery may take; 0 means 80 % of what is free. With --resume it counts only for a run that was stopped
    before it had planned its memory: a plan is kept, because another one would differ in the last bits."""
    replay_limit: str = setting("", HOST, metavar="BYTES", on_resume=True)
    """Largest replay of one family of agents, for example 4GiB [default: 80 % of the memory that is free]."""
    most_restarts: int = setting(10, HOST, at_least=0, on_resume=True)
    """How often the environment of one stream may raise an error and be restarted before the run gives up."""
    step_limit: float = setting(STEP_LIMIT, HOST, at_least=0, on_resume=True, metavar="SECONDS")
    """How long one step or reset of one stream may take; 0 means for ever."""
    most_bad: int = setting(100, "run", at_least=0, on_resume=True)
    """Meta-gradients that may be other than finite before the run stops; each is left out and counted."""
    preset: str = setting("", "run", metavar="FILE")
    """Settings from a YAML or JSON file, on top of the suite's; flags win over it."""
    checkpoint_minutes: float = setting(3.0, "run", above=0, on_resume=True)
    """Minutes between checkpoints; there is always one at the start, after every evaluation and at the end."""
    scaled: dict[str, Any] = setting(dict, hidden=True)
    """What the scale made of the suite's settings, as [was, is] by name."""
    overrides: dict[str, Any] = setting(dict, settings=PARTS, source="the suite says")
    """Fields of Discovery, Learning and Network that differ from what the suite says."""


# -- from what was given to a configuration ------------------------------------------------------------------------------------


def build_discover(values: dict[str, Any]) -> DiscoverConfig:
    """The suite, then the preset file, then what the user gave."""
    given = read_values(DiscoverConfig, values)
    # From the weakest to the strongest, so that merging is one comprehension; what the user gave stays last.
    layers = [given]
    if given.get("preset"):
        layers.insert(0, read_preset(DiscoverConfig, given["preset"]))
    # Found first, because the suite is the weakest layer and yet named by a stronger one.
    wanted = next((layer["suite"] for layer in reversed(layers) if layer.get("suite")), "")
    named = any(layer.get("envs") for layer in layers)
    layers.insert(0, suite_values(wanted, named))
    kind = kind_wanted(layers)
    if layers[0].get("rule", DEFAULT) != kind:
        layers[0] = of_any_rule(layers[0])
    scale = next((layer["scale"] for layer in reversed(layers) if "scale" in layer), 1.0)
    check_bounds(DiscoverConfig(scale=scale))  # now, because something is computed from it
    whole = complete(layers[0], kind == DEFAULT)
    if scale < 1:
        layers[0] = shrink(whole, scale)
    merged = {name: value for layer in layers for name, value in layer.items()} | {"rule": kind if kind != DEFAULT else ""}
    # Option by option: one --rule-options must not discard all those of the suite.
    merged["rule_options"] = {name: value for layer in layers for name, value in layer.get("rule_options", {}).items()}
    if merged.get("init"):
        # The file brings its own sizes, which replace the suite's; sizes that the user gives are refused when the rule is made.
        sizes = {field.name for field in dataclasses.fields(KINDS[kind].sizes)} - set(given.get("rule_options", {}))
        merged["rule_options"] = {name: value for name, value in merged["rule_options"].items() if name not in sizes}
    merged["scaled"] = what_changed(whole, layers[0], merged) if scale < 1 else {}
    merged |= {"suite": wanted} | whole_specs(merged)
    config = assemble(DiscoverConfig, merged)
    # Resolved now and recorded: a resumed run with a larger budget keeps the interval of its first part.
    return config if config.evaluate_every else dataclasses.replace(config, evaluate_every=max(1, -(-config.steps // 10)))


def kind_wanted(layers: list[dict[str, Any]]) -> str:
    """The kind of rule that some layers of settings ask for, of which later ones win: that of the file to start from, if any."""
    named = [layer["rule"] for layer in layers if layer.get("rule")]
    init = next((layer["init"] for layer in reversed(layers) if layer.get("init")), "")
    # The rule that discovery goes on with is what it is, whatever a suite was made for; who names another kind is told.
    kind = kind_in_file(init) if init else named[-1] if named else DEFAULT
    if init and (layers[-1].get("rule") or kind) != kind:
        raise UserError(f"rule {layers[-1]['rule']} cannot start from '{init}', which is of kind {kind}; leave --rule out")
    try:
        check_kind(kind)
    except ValueError as error:
        raise UserError(f"rule: {error}") from error
    return kind


def kind_in_file(init: str) -> str:
    """The kind of the rule to start from; of what is no rule file of ours, the default, and others find out what is wrong."""
    if init in KINDS:
        return init
    if not init.endswith(".safetensors"):
        return DEFAULT
    from rulax.rules.rule_files import about_of  # with numpy

    return kind_in(about_of(Path(init))) or DEFAULT


def of_any_rule(suite: dict[str, Any]) -> dict[str, Any]:
    """A suite without what was chosen for another kind of rule: its agents, which are as the rule recommends, and its sizes."""
    own = {field.name for part in (Learning, Network) for field in dataclasses.fields(part)} | {"rule_options"}
    return {name: value for name, value in suite.items() if name not in own}


def whole_specs(values: dict[str, Any]) -> dict[str, Any]:
    """The families among some values, each whole again: reading a list of words has split their options at the commas.

    A group of environments, such as minatar, stands for all of them.
    """
    found = {name: split_specs(values.get(name, ())) for name in ("envs", "validation")}
    return {name: tuple(env for spec in specs for env in members(spec)) for name, specs in found.items()}


def members(spec: str) -> tuple[str, ...]:
    """The environments of a group that `rulax compare` knows as a suite; any other environment by itself."""
    return SUITES[spec].environments if spec in SUITES else (spec,)


def suite_values(suite: str, envs_named: bool) -> dict[str, Any]:
    """The settings of a suite; of environments, or of none, those of the suite that serves as base."""
    suites = preset_names(suites=True)
    if suite in suites:
        return read_values(DiscoverConfig, load_preset(f"{FOLDER}/{suite}"), f"suite {suite}")
    base = read_values(DiscoverConfig, load_preset(f"{FOLDER}/{BASE}"), f"suite {BASE}")
    base.pop("validation", None)  # it was chosen for the environments of that suite
    if envs_named:
        if suite:
            raise UserError(
                f"'{suite}' is no suite ({', '.join(suites)}), and --envs names environments already; give one of the two"
            )
        return base
    if not suite:
        raise UserError(f"discover in which environments? for example: rulax discover {BASE} (suites: {', '.join(suites)})")
    check_suite(suite, suites)
    return base | {"envs": (suite,)}
