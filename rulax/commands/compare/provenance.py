"""The commands that repeat a comparison and its cells, and where its rules come from."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from pathlib import Path
from typing import Any

from rulax import own
from rulax.commands.cells import SCORE, Cell
from rulax.commands.compare.settings import NOT_FIXED, CompareConfig, is_file
from rulax.commands.compare.suite import environments
from rulax.commands.fields import flag_name
from rulax.commands.names import read_rule_spec
from rulax.commands.settings import NOT_RECORDED
from rulax.commands.train.settings import TrainConfig
from rulax.discovery.settings import estimator_words
from rulax.files.reading import read_bytes
from rulax.rules.registry import RULES, STORED, is_own, split_ablations
from rulax.rules.rule_files import about_of, stated


def compare_command(config: CompareConfig) -> str:
    """The command that makes this comparison again."""
    words = ["rulax", "compare", *config.envs, "--rules", *config.rules, "--seeds", str(config.seeds), "--steps", str(config.steps)]
    done: tuple[str, ...] = (*NOT_RECORDED, *NOT_FIXED, "envs", "rules", "seeds", "steps", "agents")
    if config.suite:
        words = ["rulax", "compare", *named_environments(config), "--suite", config.suite, "--budget", config.budget]
        words += ["--rules", *config.rules, "--seeds", str(config.seeds), "--eval-episodes", str(config.eval_episodes)]
        done += ("suite", "budget", "eval_episodes")
    # Without tuning these do nothing, and the command should not suggest that they did.
    done += () if config.tune else ("tune_seeds", "tune_steps")
    return shlex.join(words + flags(config, CompareConfig, done))


def named_environments(config: CompareConfig) -> tuple[str, ...]:
    """The environments of a suite, as far as the suite's name does not say them already."""
    return () if environments(config.suite, config.budget) == config.envs else config.envs


def cell_command(cell: Cell) -> str:
    """The command that trains one cell alone."""
    config = cell.config
    words = ["rulax", "train", config.env, "--rule", config.rule, "--seeds", str(config.seeds), "--steps", str(config.steps)]
    done = ("env", "rule", "seeds", "steps", "out", "quiet", "animation", "resume", "checkpoint_minutes", "checkpoints", "platform")
    return shlex.join(words + flags(config, TrainConfig, done))


def flags(config: Any, cls: type, done: tuple[str, ...]) -> list[str]:
    """What differs from the defaults, as flags; `done` are named already."""
    # The only fields without a default are those with a factory, and all of these make empty dictionaries.
    defaults = {field.name: {} if field.default is dataclasses.MISSING else field.default for field in dataclasses.fields(cls)}
    values = {name: value for name, value in vars(config).items() if name not in (*done, "overrides") and value != defaults[name]}
    words: list[str] = []
    for name, value in {**values, **config.overrides}.items():
        if isinstance(value, bool):
            words.append(flag_name(name) if value else "--no-" + flag_name(name)[2:])
        elif isinstance(value, dict):
            words += [flag_name(name), *(f"{key}={option}" for key, option in value.items())]
        elif isinstance(value, tuple):
            words += [flag_name(name), *map(str, value)]
        else:
            words += [flag_name(name), str(value)]
    return words


def rule_facts(rule: str, name: str, cells: list[Cell]) -> dict[str, Any]:
    """A rule, as it was written and as tables call it: whether it was discovered, in which environments, what was tuned for it."""
    base, ablations = split_ablations(read_rule_spec(rule).rule)
    about = about_file(rule)
    tuned = next((cell.config.overrides for cell in cells if cell.purpose == SCORE and cell.rule == name), {})
    return {
        "name": name,
        "summary": RULES[base].summary if base in RULES else f"Your own: {base}" if is_own(base) else "A rule in a file",
        "discovered": is_file(rule) is not None or base in ("disco", *STORED),
        "ablations": list(ablations),
        "trained_on": stated(about, "trained_on", list[str], []),
        "validated_on": stated(about, "validated_on", list[str], []),
        "found": about.get("found"),
        "discovery": discovery_facts(about),
        "settings": {name: list(value) if isinstance(value, tuple) else value for name, value in tuned.items()},
    }


def discovery_facts(about: dict[str, str]) -> dict[str, Any] | None:
    """How a rule was found and what that cost, up to the meta-step that it is of; None for what its file does not say."""
    if "spent" not in about:
        return None
    settings = stated(about, "settings", dict[str, dict[str, Any]], {}).get("discovery", {})
    # Files from before the cost named the estimator name it among their settings.
    return {"estimator": estimator_words(settings)} | stated(about, "spent", dict[str, Any], {})


def about_file(rule: str) -> dict[str, str]:
    """The metadata of a rule's file; empty if there is none, or it is gone."""
    path = is_file(rule)
    if path is None or path.suffix != ".safetensors" or not path.exists():
        return {}
    # The rule was trained with, so it could be read once; a damaged card must not cost the results.
    return about_of(path)


def hashes(rules: tuple[str, ...]) -> dict[str, str]:
    """Hashes of the rule files and of a user's own Python files: a comparison is not resumed after one of them has changed."""
    files: dict[str, Path | None] = {rule: is_file(rule) for rule in rules}
    found = {rule: hashlib.sha256(read_bytes(path)).hexdigest()[:16] for rule, path in files.items() if path and path.exists()}
    return found | own.hashes(*rules)
