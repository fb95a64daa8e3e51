"""What a user may choose for `rulax compare`, and how names become cells to train. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import Any, Literal

from rulax import own
from rulax.commands.compare.suite import with_suite
from rulax.commands.names import read_rule_spec, read_spec, split_specs
from rulax.commands.preset_files import load_preset, preset_names
from rulax.commands.search_space import join_tuning, tuned_setting
from rulax.commands.settings import AGENTS, HostLoop, Running, assemble, check_suite, known_keys, read_values, recorded
from rulax.envs.ranges import read_ranges, write_ranges
from rulax.envs.registry import steps_on_host
from rulax.envs.suites import SUITES, Suite
from rulax.errors import UserError, suggestion
from rulax.rules.registry import EMBEDDED, FILE_ENDINGS, recommended_steps, split_ablations
from rulax.settings import setting
from rulax.text import convert, plural, to_float

TRAINING, VALIDATION, HELD_OUT = "training", "validation", "held out"
MOST_TRIALS = 64
WHAT, SHARING = "what to compare", "sharing it out"
NOT_FIXED = ("checkpoint_minutes", "checkpoints", "platform", "merge")  # of a comparison: its cells record the first two
PART = re.compile(r"(\d+)/(\d+)")


@dataclasses.dataclass(frozen=True)
class CompareConfig(HostLoop, Running):
    """Compare rules with the same budget: scores with intervals, and who beats whom."""

    envs: tuple[str, ...] = setting((), WHAT, positional=True, metavar="ENV...")
    """Environments, each with options if need be (catch:rows=5,columns=5), or suites by name (docs/suites.md); with --suite, those
    of its environments that are wanted."""
    suite: str = setting("", WHAT, metavar="NAME")
    """A suite with its environments, budget, sizes of agents and published scores: atari57, atari5, procgen16, crafter, nethack,
    sokoban, dmlab30, minatar, classic, bsuite or grids."""
    budget: str = setting("", WHAT, metavar="paper|mini|N")
    """What each agent of a suite may spend: as published, about an hour on two cores for two rules, or so many steps with the
    agents of mini [default: mini]."""
    rules: tuple[str, ...] = setting((), WHAT, metavar="NAME|FILE")
    """Rules by name or file, or your own as file.py:name; each with options if need be (ppo:clip=0.1,learning_rate=1e-3), a
    discovered one also without a part, as in disco103:no_yz (no_yz, no_bootstrap, no_lifetime, no_value, no_next_policy)."""
    seeds: int = setting(5, WHAT, at_least=1)
    """Agents per rule and environment, trained side by side; with fewer than 5 little can be said."""
    steps: int = setting(0, WHAT, at_least=1)
    """Environment steps per agent, the same for every rule [default: the least that any of the rules recommends, 250k with a
    discovered rule among them and 500k without]."""
    task: Literal["default", "random"] = setting("default", WHAT)
    """Whether every seed gets the environment's own task or one drawn at random (the same for every rule)."""
    randomise: dict[str, Any] = setting(dict, WHAT, metavar="ENV.NAME=LOW:HIGH")
    """Constants to draw anew for every episode, for example cartpole.force=5:15,length=.25:.75,pendulum.length=.75:1.25; without an
    environment in front, of all of them."""
    reference: tuple[str, ...] = setting((), "scores", metavar="ENV=RETURN")
    """Returns that count as a score of 1 [default: the best rule's mean in each environment]; 0 is an untrained agent."""
    eval_episodes: int = setting(0, "scores", at_least=0)
    """Episodes that each trained agent plays for its score, with actions drawn as in training, on levels that it was not trained on
    where the environment tells them apart; 0 takes the returns of training [default: 0, or what the suite says]."""
    tune: tuple[str, ...] = setting((), "tuning", metavar="KEY=A,B,C")
    """Try these values for every rule, on seeds of their own, and compare each rule with the best it found: lr=1e-4,3e-4,1e-3;
    of several keys all combinations."""
    tune_seeds: int = setting(3, "tuning", at_least=1)
    """Agents per trial and environment."""
    tune_steps: int = setting(0, "tuning", at_least=1)
    """Environment steps per agent in a trial [default: --steps]."""
    part: str = setting("", SHARING, metavar="I/N")
    """Train only the I-th of N parts of the cells here; --merge puts the folders of all parts together."""
    merge: tuple[str, ...] = setting((), SHARING, metavar="DIR")
    """Put comparisons with the same settings together in a new folder (--out): other parts, environments or rules."""
    agents: dict[str, Any] = setting(dict, WHAT, hidden=True)
    """What a suite's presets say of each rule's agents."""
    overrides: dict[str, Any] = setting(dict, settings=AGENTS)
    """Fields of Learning and Network that are the same for all rules, instead of what each recommends."""

    @property
    def env_names(self) -> tuple[str, ...]:
        """What tables and pages call the environments, in their order."""
        return short_names(self.envs)

    @property
    def rule_names(self) -> tuple[str, ...]:
        """What tables and pages call the rules, in their order."""
        return short_names(self.rules)


def build_compare(values: dict[str, Any]) -> CompareConfig:
    """A configuration with everything resolved, so that it can be written down and compared with another."""
    given = read_values(CompareConfig, values)
    given["rules"] = split_specs(given.get("rules", ()))
    # First of all: references are matched to environments, and duplicates can come from two suites that share one.
    given = with_suite(given | {"envs": split_specs(given.get("envs", ()))})
    given["envs"] = expand(given["envs"])
    given["reference"] = join_references(given.get("reference", ()), given["envs"])
    given["tune"] = join_tuning(given.get("tune", ()))
    if not given.get("rules"):
        raise UserError("which rules? for example: rulax compare catch --rules ppo actor_critic (`rulax rules` lists them all)")
    given["envs"] = randomised(given["envs"], given.pop("randomise", None))
    for kind in ("envs", "rules"):
        twice = [name for name in given[kind] if given[kind].count(name) > 1]
        if twice:
            raise UserError(f"{'environment' if kind == 'envs' else 'rule'} '{twice[0]}' occurs twice; name each once")
    if "steps" not in given:
        given["steps"] = min(recommended_steps(read_rule_spec(rule).rule) for rule in given["rules"])
    if not given.get("tune_steps"):
        given["tune_steps"] = given["steps"]
    config = assemble(CompareConfig, given)
    # For their errors only: a misspelt environment or setting should not show after hours of training.
    references(config)
    check_part(config, trials(config))
    given_for_host = config.host_only()
    if given_for_host and not any(map(on_host, config.envs)):
        raise UserError(
            f"{given_for_host[0]} is for environments that step on the CPU, and all of these run on the device; leave it out"
        )
    return config


def part_of(config: CompareConfig) -> tuple[int, int]:
    """Which part of how many, the first being 0."""
    if not config.part:
        return 0, 1
    found = PART.fullmatch(config.part)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise UserError(f"part expects I/N, such as 2/4 for the second of four, not '{config.part}'")
    return int(found[1]) - 1, int(found[2])


def check_part(config: CompareConfig, tried: list[dict[str, Any]]) -> None:
    """A part must hold something, and be able to go on without the others."""
    _, number = part_of(config)
    if config.part and tried:
        raise UserError("tuned settings are chosen by trials in all environments, so --tune cannot be shared out by --part")
    most = len(config.envs) + len(config.rules) - 1
    if number > most:
        raise UserError(f"part {config.part} may be empty: this comparison can be shared out over at most {plural(most, 'part')}")


def short_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """References to a user's own parts by their last part, unless two of them share it."""
    short = tuple(map(own.shown, names))
    return tuple(name if short.count(each) > 1 else each for name, each in zip(names, short, strict=True))


def expand(names: tuple[str, ...]) -> tuple[str, ...]:
    """Suites as their environments."""
    if not names:
        raise UserError(f"compare in which environments? for example: rulax compare catch (suites: {', '.join(SUITES)})")
    for name in names:
        check_suite(name, SUITES)
    return tuple(env for name in names for env in (SUITES[name].environments if name in SUITES else (name,)))


def randomised(envs: tuple[str, ...], ranges: Any) -> tuple[str, ...]:
    """Environments with `--randomise` as an option of each, in brackets, because ranges have commas of their own."""
    found = read_ranges("--randomise", ranges)
    bare = [read_spec(env).env for env in envs]
    for env in found:
        if env and env not in bare:
            raise UserError(f"--randomise names '{env}', which is not compared{suggestion(env, bare)}")
    written = [write_ranges(found.get("", {}) | found.get(env, {})) for env in bare]
    joints = ["," if read_spec(env).options else ":" for env in envs]
    return tuple(f"{env}{joint}randomise=({text})" if text else env for env, joint, text in zip(envs, joints, written, strict=True))


def on_host(env: str) -> bool:
    """Whether an environment, perhaps with options, steps on the CPU."""
    spec = read_spec(env)
    return steps_on_host(spec.env, spec.options)


def suite_of(env: str) -> str | None:
    """The first suite that an environment belongs to."""
    return next((name for name, suite in SUITES.items() if in_suite(env, suite)), None)


def in_suite(env: str, suite: Suite) -> bool:
    """Whether an environment is one of a suite's, perhaps with other options."""
    spec = read_spec(env)
    members = [read_spec(each) for each in suite.environments]
    # The levels of DMLab-30 are one environment of the user's own.
    return any(each.env == spec.env and each.options.get("level") == spec.options.get("level") for each in members)


def join_references(parts: tuple[str, ...], envs: tuple[str, ...]) -> tuple[str, ...]:
    """`("catch:rows=5", "columns=5=1", "cartpole=500")` -> two of them: an environment's own options have commas too."""
    joined, unfinished = [], ""
    for part in parts:
        unfinished += f",{part}" if unfinished else part
        # A piece is whole once what stands before its last `=` is an environment; without a colon there are no options to wait for.
        if unfinished.rpartition("=")[0] in envs or ":" not in unfinished:
            joined.append(unfinished)
            unfinished = ""
    return (*joined, unfinished) if unfinished else tuple(joined)


def references(config: CompareConfig) -> dict[str, float]:
    """Stated reference returns by environment."""
    found = {}
    for text in config.reference:
        env, equals, number = text.rpartition("=")
        if not equals:
            raise UserError(f"--reference expects ENV=RETURN, not '{text}'")
        if env not in (*config.envs, *config.env_names):
            raise UserError(f"--reference names '{env}', which is not compared{suggestion(env, config.env_names)}")
        name = config.env_names[config.envs.index(env)] if env in config.envs else env
        found[name] = to_float(f"--reference {env}", number)
    return found


# -- tuning --------------------------------------------------------------------------------------------------------------------


def trials(config: CompareConfig) -> list[dict[str, Any]]:
    """Every combination of the values to try; none if nothing is tuned."""
    known = known_keys(CompareConfig)
    choices: dict[str, list[Any]] = {}
    for text in config.tune:
        key, _, values = text.partition("=")
        name = tuned_setting(key, CompareConfig, {*choices, *config.overrides})
        choices[name] = [convert(f"--tune {key}", known[name], value) for value in values.split(",") if value]
        # One value is not a search: as an override it would cost no trials.
        if len(set(choices[name])) < 2:
            raise UserError(f"--tune: {key} needs at least two different values, for example lr=1e-4,3e-4,1e-3")
    found = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())] if choices else []
    if len(found) > MOST_TRIALS:
        raise UserError(f"--tune asks for {len(found)} trials per rule; at most {MOST_TRIALS} are a small search")
    return found


# -- what was seen before ------------------------------------------------------------------------------------------------------


def roles() -> dict[str, str]:
    """Which environments the suites of `rulax discover` train and validate rules in, by name without options."""
    suites = [load_preset(f"discover/{name}") for name in preset_names(suites=True)]
    found = {read_spec(env).env: VALIDATION for suite in suites for env in suite.get("validation", ())}
    # Training wins where suites differ, as it is the stronger way of having seen an environment.
    return found | {read_spec(env).env: TRAINING for suite in suites for env in suite.get("envs", ())}


def role_of(env: str, trained_on: list[str], validated_on: list[str]) -> str:
    """What an environment was to the discovery of a rule; another task of the same environment is not held out."""
    environment = read_spec(env).env
    if environment in (read_spec(each).env for each in trained_on):
        return TRAINING
    return VALIDATION if environment in (read_spec(each).env for each in validated_on) else HELD_OUT


# -- the record ----------------------------------------------------------------------------------------------------------------


def settings_of(config: CompareConfig) -> dict[str, Any]:
    """What config.json says: all that fixes the result, and what a resumed comparison keeps unless it is given anew."""
    return recorded(config, *NOT_FIXED) | config.overrides


def is_file(rule: str) -> Path | None:
    """The file that a rule comes from, if it does."""
    base, _ = split_ablations(read_rule_spec(rule).rule)
    return Path(base) if base.endswith(FILE_ENDINGS) else EMBEDDED.get(base)
