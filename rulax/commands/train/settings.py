"""What a user may choose for `rulax train`. No JAX here: `--help` reads this file."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from rulax.commands.names import take_options
from rulax.commands.preset_files import EXAMPLE, load_preset, merge, read_preset
from rulax.commands.settings import AGENTS, HostLoop, Running, Spread, assemble, check_bounds, read_values
from rulax.envs.ranges import fold_ranges, ranges_of, write_union
from rulax.errors import UserError
from rulax.records import folder as folders
from rulax.records.population import read_schedule
from rulax.rules.registry import recommended_steps
from rulax.settings import Learning, check_value, setting

DEFAULT_RULE = "ppo"  # until a rule of ours has earned the place on held-out environments
WHAT, EVALUATION, POPULATION = "what to train", "evaluation and stopping", "population based training"
TUNING = ("tune", "trials", "tune_seeds", "tune_steps")  # fields of a sweep, of which a single run knows nothing
STEP_SIZES = typing.get_args(typing.get_type_hints(Learning)["schedule"])  # what else --schedule may be: how the step size falls
Config = TypeVar("Config", bound="TrainConfig")


@dataclasses.dataclass(frozen=True)
class TrainConfig(HostLoop, Spread, Running):
    """Train agents on an environment; leaves a run folder with a page, metrics and checkpoint."""

    env: str = setting("", WHAT, positional=True, metavar="ENV")
    """Environment, for example catch (`rulax envs` lists them all), or your own as file.py:name or module:name; options may follow,
    as in catch:rows=8,columns=8."""
    rule: str = setting(DEFAULT_RULE, WHAT, metavar="NAME|FILE")
    """Update rule: a name (`rulax rules` lists them all), a rule file, or your own as file.py:name or module:name; options may
    follow, as in ppo:clip=0.1,learning_rate=1e-3."""
    steps: int = setting(500_000, WHAT, at_least=1, on_resume=True)
    """Environment steps per seed; 200k, 1e6 and 1_000_000 are understood [default: what the rule recommends]."""
    seeds: int = setting(1, WHAT, at_least=1)
    """Agents trained side by side, each with its own random numbers."""
    task: Literal["default", "random"] = setting("default", WHAT)
    """Whether every seed gets the environment's own task or one drawn at random."""
    env_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the environment, for example rows=8 columns=8."""
    randomise: dict[str, Any] = setting(dict, WHAT, metavar="NAME=LOW:HIGH")
    """Constants of the environment to draw anew for every episode of every stream, for example force=5:15,length=.25:.75, or from
    several intervals (force=1:5|15:20); of Gymnasium's environments, attributes."""
    rule_options: dict[str, Any] = setting(dict, WHAT, metavar="KEY=VALUE")
    """Options of the rule, for example discount=0.95."""
    preset: str = setting("", "run", metavar="NAME|FILE")
    """Settings from a YAML or JSON file, or one of the presets named below; flags win over it."""
    wandb: str = setting("", "run", metavar="PROJECT")
    """Log to this project of Weights & Biases too; needs `pip install 'rulax[wandb]'`."""
    log_every: int = setting(0, "run", at_least=0)
    """Environment steps per point of the curve; 0 means a hundredth of the run."""
    eval_every: int = setting(0, EVALUATION, at_least=0, on_resume=True, metavar="STEPS")
    """Environment steps per seed between evaluations, which play whole episodes and learn nothing; 0 means none."""
    eval_episodes: int = setting(20, EVALUATION, at_least=1, on_resume=True)
    """Episodes of each agent in an evaluation, played once greedily and once with actions drawn as in training."""
    eval_randomise: dict[str, Any] = setting(dict, EVALUATION, on_resume=True, metavar="NAME=LOW:HIGH")
    """Other ranges for evaluations, which training never meets [default: those of --randomise]."""
    stop_at: float = setting(math.inf, EVALUATION, above=-math.inf, on_resume=True, metavar="RETURN")
    """Stop as soon as the return reaches this: the greedy one of evaluations, if there are some, else that of training
    [default: never]."""
    patience: int = setting(0, EVALUATION, at_least=0, on_resume=True, metavar="POINTS")
    """Stop after so many points (or evaluations, if there are some) without a new best return; 0 means never."""
    save_best: str = setting("", EVALUATION, on_resume=True, metavar="FILE")
    """Keep the best agent so far in this file, which ends in .safetensors, judged by the same return."""
    animation: bool = setting(True, "run", on_resume=True)
    """Whether the page shows an episode of the trained agent."""
    tune: tuple[str, ...] = setting((), "tuning", metavar="KEY=LOW:HIGH|KEY=A,B")
    """Search for settings first, in ranges (learning_rate=1e-4:1e-2:log, unroll=8:64) or lists (unroll=8,16,32), of the rule's
    options too (rule.discount=0.9:0.999), then train the best on fresh seeds, 5 unless --seeds says otherwise; needs
    `pip install 'rulax[tune]'`."""
    trials: int = setting(20, "tuning", at_least=1)
    """Settings to try."""
    tune_seeds: int = setting(3, "tuning", at_least=1)
    """Agents per trial; all trials have the same seeds."""
    tune_steps: int = setting(0, "tuning", at_least=0)
    """Environment steps per agent in a trial [default: --steps]."""
    population: int = setting(0, POPULATION, at_least=0, metavar="K")
    """Train K agents as one population, whose hyper-parameters (--tune) change as they learn: bad ones go on as copies of good
    ones, with other values. --tune names them, with a range (learning_rate=1e-4:1e-2:log) or without; 0 means no population."""
    exploit: Literal["truncation", "tournament"] = setting("truncation", POPULATION)
    """Who copies whom: the worst fifth somebody of the best fifth, or everybody whoever it draws and finds better."""
    exploit_every: int = setting(0, POPULATION, at_least=0, metavar="STEPS")
    """Environment steps per agent between two such turns [default: a 25th of the run]."""
    schedule_file: str = setting("", POPULATION, hidden=True)
    """What --schedule FILE names."""
    overrides: dict[str, Any] = setting(dict, settings=AGENTS)
    """Fields of Learning and Network that differ from what the rule recommends."""


def build_train(values: Mapping[str, Any], cls: type[Config] = TrainConfig) -> Config:  # type: ignore[assignment]
    """A configuration from what the user gave and the preset they named, if any."""
    given = take_options(read_values(cls, values))
    if given.get("preset"):
        # The example is for the error message of `check_train`, not a setting.
        given = merge(take_options(read_preset(cls, given["preset"], frozenset({EXAMPLE}))), given)
    given = fold_ranges(given, given.get("env", ""))
    if given.get("eval_randomise"):
        read = ranges_of(given.get("env", ""), "eval_randomise", given["eval_randomise"])
        given["eval_randomise"] = {name: write_union(union) for name, union in read.items()}
    if is_schedule_file(given.get("schedule", "")):
        # A file changes more than the step size, and the recipe's own schedule stays what it is.
        given["schedule_file"] = schedule_path(given.pop("schedule"))
        check_schedule_alone(given)
    if given.get("population"):
        check_value("population", given["population"], {"at_least": 0})  # before it is the number of seeds
        if given.get("seeds", given["population"]) != given["population"]:
            raise UserError("a population is one run of --population agents: leave --seeds out, and repeat it with another --seed")
        given["seeds"] = given["population"]
    # After the preset, which may name the rule that this depends on, or the steps themselves.
    given.setdefault("steps", recommended_steps(given.get("rule", DEFAULT_RULE)))
    return assemble(cls, given)


def is_schedule_file(schedule: Any) -> bool:
    """Whether `--schedule` names a file of points, or the run folder of a population, which holds one."""
    named = str(schedule)
    return named.endswith(".json") or (named not in ("", *STEP_SIZES) and Path(named).is_dir())


def schedule_path(schedule: Any) -> str:
    """The file that it names."""
    path = Path(str(schedule))
    return str(path / folders.SCHEDULE if path.is_dir() else path)


def check_schedule_alone(given: Mapping[str, Any]) -> None:
    """Refuse a value of a hyper-parameter that a schedule sets from the first step on: it would have no effect."""
    for name in read_schedule(given["schedule_file"])[0]:
        if name in given or name in given.get("rule_options", {}):
            raise UserError(
                f"{given['schedule_file']} is a schedule of {name}, so that another value would have no effect: leave it out"
            )


def check_train(config: TrainConfig) -> None:
    """The command's own numbers, and that there is something to train."""
    check_bounds(config)
    if config.save_best and not config.save_best.endswith(".safetensors"):
        raise UserError(f"an agent is saved in a file that ends in .safetensors, not in '{config.save_best}'")
    if config.eval_randomise and not config.eval_every:
        raise UserError("eval_randomise is for evaluations during training, and there are none: give --eval-every STEPS too")
    check_population(config)
    if config.tune and not config.population:
        raise UserError("in Python a search for settings is rulax.tune(env, space={...})")
    if not config.env and config.preset:
        example = load_preset(config.preset).get(EXAMPLE, "ENV")
        line = f"rulax train {example} --preset {config.preset}"
        raise UserError(f"which environment? '{config.preset}' names none; for example: {line} (`rulax envs` lists them all)")
    if not config.env:
        raise UserError("which environment? for example: rulax train catch (`rulax envs` lists them all)")


def check_population(config: TrainConfig) -> None:
    """What a population needs, and what is only for one."""
    if config.population == 1:
        raise UserError("a population of 1 has nobody to copy: give --population at least 2, or leave it out")
    if not config.population:
        given = [
            name for name, value in (("exploit", config.exploit != "truncation"), ("exploit_every", config.exploit_every)) if value
        ]
        if given:
            raise UserError(f"{given[0]} is for a population: give --population K and --tune too, or leave it out")
        return
    if config.schedule_file:
        raise UserError(f"a population finds a schedule and does not follow one: leave --schedule {config.schedule_file} out")
    if config.task == "random":
        raise UserError("the members of a population need the same task, or their returns could not be compared: leave --task out")
