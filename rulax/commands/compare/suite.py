"""What `--suite` and `--budget` stand for: environments, steps, seeds, sizes of agents, episodes of evaluation. No JAX here."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from typing import Any

from rulax.commands.names import read_rule_spec, read_spec
from rulax.commands.preset_files import EXAMPLE, read_preset
from rulax.commands.settings import settings_keys
from rulax.commands.train.settings import TrainConfig
from rulax.envs.suites import SUITES, Budget, Suite
from rulax.errors import UserError, suggestion
from rulax.rules.registry import split_ablations
from rulax.settings import Network
from rulax.text import convert

PAPER, MINI = "paper", "mini"
ENOUGH_SEEDS = 5  # where a suite does not say
UNTRAINED = ""  # in `agents`: what holds for all rules, agents that never learn among them


def with_suite(given: dict[str, Any]) -> dict[str, Any]:
    """Settings in which a suite and a budget have become what they stand for; `given` is converted.

    Nothing is done where `agents` are given, as in the folder of a comparison: what a suite holds may change between versions.
    """
    name, words = given.get("suite", ""), given.get("budget", "")
    if "agents" in given:
        return given
    if not name:
        return {**given, **_steps(given, words)} if words else given
    suite = find_suite(name)
    check_installed(name, suite)
    words = words or (MINI if "steps" not in given else str(given["steps"]))
    budget = find_budget(name, suite, words)
    presets = read_presets(budget)
    return {
        **given,
        "envs": select(name, environments(name, words), given.get("envs", ())),
        "budget": words,
        "seeds": given.get("seeds", budget.seeds),
        "eval_episodes": given.get("eval_episodes", suite.episodes),
        "agents": agents(presets, given.get("rules", ())),
        **_steps(given, str(budget.steps)),
    }


def find_suite(name: str) -> Suite:
    """A suite by name."""
    if name not in SUITES:
        raise UserError(f"unknown suite '{name}'{suggestion(name, SUITES, 'there are ' + ', '.join(SUITES))}")
    return SUITES[name]


def check_installed(name: str, suite: Suite) -> None:
    """Refuse a suite whose package nothing here installs; what an extra installs, its adapter says best."""
    package, remedy = suite.needs
    if package and importlib.util.find_spec(package) is None:
        raise UserError(f"the suite {name} needs {remedy}")


def find_budget(name: str, suite: Suite, words: str) -> Budget:
    """What each agent may spend: a suite's budget by name, or so many steps with the agents of the small one."""
    if words in suite.budgets:
        return suite.budgets[words]
    if words == PAPER:
        raise UserError(f"nobody has published scores in the suite {name} with a budget to repeat; give --budget mini or steps")
    if words == MINI:
        raise UserError(f"the suite {name} has no budget of its own; give --budget N, such as 200k")
    steps = _number(words, f"{' or '.join(suite.budgets) or 'none'} in the suite {name}")
    return suite.budgets.get(MINI, Budget(steps, ENOUGH_SEEDS))._replace(steps=steps)


def read_presets(budget: Budget) -> list[dict[str, Any]]:
    """The presets that say how large its agents are."""
    return [read_preset(TrainConfig, preset, frozenset({EXAMPLE})) for preset in budget.presets]


def _steps(given: Mapping[str, Any], words: str) -> dict[str, int]:
    steps = _number(words, "a suite's: give --suite too, or steps")
    if given.get("steps", steps) != steps:
        raise UserError(f"the budget is {steps:,} steps, and --steps says {given['steps']:,}; give one of them")
    return {"steps": steps}


def _number(words: str, otherwise: str) -> int:
    try:
        return convert("budget", int, words)
    except UserError:
        raise UserError(f"budget expects a number of steps, such as 200k, not '{words}'; budgets by name are {otherwise}") from None


# -- environments ----------------------------------------------------------------------------------------------------------------


def environments(name: str, words: str) -> tuple[str, ...]:
    """All of a suite's, with the options that its presets ask for."""
    presets = read_presets(find_budget(name, SUITES[name], words))
    options = presets[0].get("env_options", {}) if presets else {}
    return tuple(with_options(env, options) for env in SUITES[name].environments)


def with_options(env: str, options: Mapping[str, Any]) -> str:
    """An environment with more options; those that it has already stay."""
    spec = read_spec(env)
    more = {name: value for name, value in options.items() if name not in spec.options}
    return f"{env}{',' if spec.options else ':'}{','.join(f'{name}={value}' for name, value in more.items())}" if more else env


def select(name: str, envs: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The environments of a suite, or those of them that are named, in the suite's order; options that are given with them stay."""
    chosen: dict[str, str] = {}
    bare = {env: read_spec(env).env for env in envs}
    for each in wanted:
        spec = read_spec(each)
        # By all options of the suite first: the levels of DMLab-30 differ in nothing else.
        same = [env for env in envs if each == env] or [env for env in envs if bare[env] == spec.env]
        same = [env for env in same if "level" not in spec.options or read_spec(env).options.get("level") == spec.options["level"]]
        if len(same) != 1:
            hint = suggestion(each, envs, f"it has {', '.join(envs[:8])}{', ...' if len(envs) > 8 else ''}")
            raise UserError(f"'{each}' is not in the suite {name}{hint}")
        chosen[same[0]] = with_options(each, read_spec(same[0]).options)
    return tuple(chosen[env] for env in envs if env in chosen) if wanted else envs


# -- agents --------------------------------------------------------------------------------------------------------------------


def agents(presets: list[dict[str, Any]], rules: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Settings of agents by rule: all of the preset that is for it, or else the first preset's network, which any rule can have."""
    if not presets:
        return {}
    network = {field.name for field in dataclasses.fields(Network)}
    shared = {name: value for name, value in presets[0].items() if name in network}
    found = {UNTRAINED: shared}
    for rule in rules:
        base, _ = split_ablations(read_rule_spec(rule).rule)
        own = next((preset for preset in presets if preset["rule"] == base), shared)
        found[rule] = {name: value for name, value in own.items() if name in settings_keys(TrainConfig) or name == "rule_options"}
    return found
