"""Which cells a comparison has: untrained agents, trials, and every rule in every environment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rulax.commands import build
from rulax.commands.cells import SCORE, TUNE, UNTRAINED, Cell
from rulax.commands.compare.settings import CompareConfig, on_host, part_of, references, trials
from rulax.commands.compare.suite import UNTRAINED as ALL_AGENTS
from rulax.commands.names import read_rule_spec, read_spec
from rulax.commands.search_space import seed_of_trials
from rulax.commands.settings import HostLoop, read_values
from rulax.commands.train.settings import TrainConfig
from rulax.discovery.evaluate import frozen
from rulax.evaluation.normalised import ends
from rulax.records import folder as folders
from rulax.rules.base import Recipe
from rulax.settings import Network

UNTRAINED_SEEDS, UNTRAINED_STREAMS = 4, 8
UNTRAINED_STEPS = (20_000, 100_000)  # at least and at most: a tenth of the budget, but enough for long episodes to end
WITHIN_BUDGET = {"schedule_steps": 0}


def plan(config: CompareConfig, folder: Path, chosen: dict[str, dict[str, Any]] | None = None) -> list[Cell]:
    """All cells of this part, in the order in which they are trained. Scores follow trials: `chosen` holds what each rule found
    in them."""
    # Untrained agents first: trials are judged, and scores scaled, by what those earn.
    axes = published_axes(config)
    names = list(zip(config.envs, config.env_names, strict=True))
    cells = [make_cell(config, folder, UNTRAINED, env, n) for n, (env, name) in enumerate(names) if name not in axes]
    # Trial by trial and not rule by rule, so that a comparison that is stopped early has tried as much for every rule.
    for trial, settings in enumerate(trials(config)):
        pairs = [(rule, env) for rule in config.rules for env in config.envs]
        cells += [make_cell(config, folder, TUNE, env, n, rule, settings, trial) for n, (rule, env) in enumerate(pairs)]
    # Environment by environment: statistics need all rules in one, so an interrupted comparison has some that are complete.
    pairs = [(rule, env) for env in config.envs for rule in config.rules]
    found = chosen or {}
    cells += [make_cell(config, folder, SCORE, env, n, rule, found.get(rule)) for n, (rule, env) in enumerate(pairs)]
    return [cell for cell in cells if is_ours(config, cell)]


def is_ours(config: CompareConfig, cell: Cell) -> bool:
    """Whether a cell belongs to the part that is trained here."""
    part, number = part_of(config)
    # Diagonally: with a part for each rule, one machine would have all cells of the slowest.
    place = config.env_names.index(cell.env) + (config.rule_names.index(cell.rule) if cell.rule else 0)
    return place % number == part


def published_axes(config: CompareConfig) -> dict[str, tuple[str, float, float]]:
    """The published axis of each environment that has one, unless the user states another end of it."""
    stated = references(config)
    axes = {name: ends(*read_spec(env)[1:]) for env, name in zip(config.envs, config.env_names, strict=True)}
    return {name: axis for name, axis in axes.items() if axis is not None and name not in stated}


def make_cell(
    config: CompareConfig,
    folder: Path,
    purpose: str,
    env: str,
    number: int,
    rule: str = "",
    settings: dict[str, Any] | None = None,
    trial: int = -1,
) -> Cell:
    """One cell, with the configuration that `rulax train` would have."""
    family, spec = read_spec(env), read_rule_spec(rule or "untrained")
    # From here on by what tables call them; the configuration below keeps how they were written.
    env = config.env_names[config.envs.index(env)]
    rule = config.rule_names[config.rules.index(rule)] if rule else ""
    # The number keeps folders apart whose short names are the same, such as two sets of options.
    name = "-".join([f"{number + 1:02d}", *([f"trial{trial + 1}"] if purpose == TUNE else []), folders.short_name(env)])
    name += f"-{folders.short_name(rule)}" if rule else ""
    budget = {
        SCORE: (config.steps, config.seeds, config.seed),
        TUNE: (config.tune_steps, config.tune_seeds, seed_of_trials(config.seed)),
        UNTRAINED: (min(max(config.steps // 10, UNTRAINED_STEPS[0]), UNTRAINED_STEPS[1]), UNTRAINED_SEEDS, config.seed),
    }[purpose]
    # Where environments run on the device some of these would be refused, as they do nothing there.
    host = {field.name: getattr(config, field.name) for field in dataclasses.fields(HostLoop)} if on_host(family.name) else {}
    suited = agents_of(config, config.rules[config.rule_names.index(rule)]) if rule else {}
    made = TrainConfig(
        **host,
        env=family.env,
        env_options=family.options,
        rule=spec.rule,
        rule_options=suited.pop("rule_options", {}) | spec.options,
        steps=budget[0],
        seeds=budget[1],
        seed=budget[2],
        task=config.task,
        out=str(folder / purpose / name),
        checkpoint_minutes=config.checkpoint_minutes,
        checkpoints=config.checkpoints,
        platform=config.platform,
        precision=config.precision,
        quiet=True,
        animation=False,
        # Untrained agents keep the recommended learning: of the overrides only the network can matter to them, see
        # untrained_recipe.
        # A rule's own options are more particular than settings for all rules. Schedules end with the budget, whatever a rule
        # recommends: every rule is compared by what it has reached at its end.
        overrides=WITHIN_BUDGET | suited | config.overrides | spec.overrides | (settings or {}) if purpose != UNTRAINED else {},
    )
    return Cell(purpose, env, rule, made, trial)


def untrained_recipe(config: CompareConfig) -> Recipe:
    """Agents of the default rule that never learn, in few streams, so that also long episodes end."""
    # The same network as the rules have, because already its random policy decides what an untrained agent earns.
    network = {field.name for field in dataclasses.fields(Network)}
    overrides = agents_of(config, ALL_AGENTS)
    overrides |= {name: value for name, value in config.overrides.items() if name in network}
    return frozen(build.make_recipe("actor_critic", {}, overrides | {"streams": UNTRAINED_STREAMS}))


def agents_of(config: CompareConfig, rule: str) -> dict[str, Any]:
    """What the presets of a suite say of a rule's agents."""
    return read_values(TrainConfig, config.agents.get(rule, {}), "a suite's agents")  # a folder's config.json has lists for tuples


def recipe_of(cell: Cell, config: CompareConfig) -> Recipe | None:
    """What replaces the recipe of a cell's rule: untrained agents have no rule."""
    return untrained_recipe(config) if cell.purpose == UNTRAINED else None
